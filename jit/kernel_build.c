/* Building a kernel: expand, assemble, publish; and the rule that a process builds a key once at a time. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "jit/dl.h"
#include "jit/kernel.h"
#include "jit/kernel_note.h"
#include "jit/user_function.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* The .version that a template asks for must be one that target and assembler know; it is refused, never lowered. */
static kn_status check_version(const kn_engine *e, const kn_kernel_meta *meta, uint32_t assembler_version) {
    uint32_t version;
    kn_status st =
        kn_ptx_version(e->backend->target, meta->ptx_version, kn_ptx_version_of_cuda((int)assembler_version), &version);
    return st == KN_OK ? KN_OK : kn_error_prefix(st, "%s: ", meta->entry);
}

static kn_status assemble(kn_engine *e, const kn_expansion *x, kn_kernel_info *info, void **cubin, size_t *len) {
    const kn_assembler_id *id = NULL;
    uint64_t start = kn_clock_ns();
    kn_status st = kn_kernel_nvjitlink(e, &id);
    if (st == KN_OK) {
        KN_TRY(check_version(e, &x->meta, id->version));
        KN_TRY(kn_nvjitlink_assemble(x, cubin, len, &info->report));
        info->driver_version = (uint32_t)kn_driver_for_cubin((int)id->version);
    } else {
        if (st != KN_E_UNAVAILABLE || !e->backend->ops->link) return st;
        uint32_t driver = e->backend->facts.driver_version;
        KN_TRY(check_version(e, &x->meta, driver));
        KN_TRY(e->backend->ops->link(e->backend, x, cubin, len, &info->report));
        info->driver_version = (uint32_t)kn_driver_for_cubin((int)driver);
    }
    if (!info->report.assemble_ns) info->report.assemble_ns = kn_clock_ns() - start;
    return KN_OK;
}

kn_status kn_kernel_make(kn_engine *e, const kn_key_inputs *in, kn_expansion *x, kn_kernel_info *info, void **cubin,
                         size_t *cubin_len) {
    memset(info, 0, sizeof *info);
    memset(x, 0, sizeof *x);
    void *code = NULL;
    size_t code_len = 0;
    uint64_t start = kn_clock_ns();
    KN_TRY(kn_kernel_expand(in, x));
    uint64_t expanded = kn_clock_ns();
    info->meta = x->meta;
    info->ptx = kn_hash(x->ptx, x->ptx_len);
    kn_status st = kn_kernel_assembler(e, !in->ptx, info->assembler);
    if (st == KN_OK && !in->ptx) st = assemble(e, x, info, &code, &code_len);
    kn_count(&e->count.expand_ns, expanded - start);
    kn_count(&e->count.assemble_ns, info->report.assemble_ns);
    if (st != KN_OK) {
        kn_expansion_free(x);
        return st;
    }
    if (cubin) {
        *cubin = code;
        *cubin_len = code_len;
    } else {
        kn_free(code);
    }
    return KN_OK;
}

/* ---- KILN_DUMP --------------------------------------------------------------------------------------------------- */

static kn_status dump_file(const kn_engine *e, const char *stem, const char *ext, const void *data, size_t len) {
    kn_buf path;
    kn_buf_init(&path, 4096);
    kn_buf_addf(&path, "%s/%s.%s", e->dump, stem, ext);
    kn_status st = kn_buf_status(&path);
    if (st == KN_OK) st = kn_file_write(path.data, data, len);
    kn_buf_free(&path);
    return st;
}

/* Files for people: a failure is warned of and otherwise ignored. */
static void dump(const kn_engine *e, const kn_key *key, const kn_expansion *x, const kn_buf *meta, const void *cubin,
                 size_t cubin_len) {
    char stem[200];
    kn_digest id = kn_hash(key->bytes.data, key->bytes.len);
    snprintf(stem, sizeof stem, "%s-%08x", x->meta.entry, (unsigned)(id.hi >> 32));
    int err = kn_mkdir(e->dump, 0777);
    kn_status st = err == 0 || err == EEXIST ? KN_OK : kn_fail(KN_E_IO, "%s: %s", e->dump, strerror(err));
    kn_buf report;
    kn_buf_init(&report, 1 << 24);
    kn_key_describe(key->bytes.data, key->bytes.len, &report);
    kn_buf_add_n(&report, meta->data, meta->len);
    if (st == KN_OK) st = kn_buf_status(&report);
    if (st == KN_OK) st = dump_file(e, stem, "ptx", x->ptx, x->ptx_len);
    if (st == KN_OK && cubin) st = dump_file(e, stem, "cubin", cubin, cubin_len);
    if (st == KN_OK) st = dump_file(e, stem, "txt", report.data, report.len);
    kn_buf_free(&report);
    if (st != KN_OK) kn_log(KN_LOG_WARN, "KILN_DUMP: %s", kn_error_message());
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* Metadata of an entry. A PTX payload brings its line map along, so that a cached kernel's faults name template lines;
 * a map that an entry cannot hold is left out, and faults then name PTX lines. */
static kn_status write_meta(const kn_expansion *x, const kn_kernel_info *info, bool with_map, kn_buf *out) {
    enum { META_MAX = 1 << 20 };
    kn_buf map;
    KN_TRY(kn_kernel_info_write(info, out));
    if (!with_map) return KN_OK;
    kn_buf_init(&map, META_MAX);
    kn_status st = kn_expansion_write_map(x, &map);
    if (st == KN_OK && out->len + map.len + 8 < META_MAX) {
        kn_buf_add(out, "map=\n");
        kn_buf_add_n(out, map.data, map.len);
        st = kn_buf_status(out);
    } else if (st != KN_E_NOMEM) {
        kn_log(KN_LOG_PLAN, "%s: the line map is too large for a cache entry", x->meta.entry);
        st = KN_OK;
    }
    kn_buf_free(&map);
    return st;
}

static kn_status build(kn_engine *e, const kn_key_inputs *in, const kn_key *key, const kn_blob **out) {
    kn_expansion x;
    kn_kernel_info *info = NULL;
    void *cubin = NULL;
    size_t cubin_len = 0;
    kn_buf meta;
    kn_buf_init(&meta, 1 << 21);
    memset(&x, 0, sizeof x);
    kn_status st;
    KN_TRY_OUT(st, KN_NEW(&info, 1, "a kernel's metadata"));
    KN_TRY_OUT(st, kn_kernel_make(e, in, &x, info, &cubin, &cubin_len));
    KN_TRY_OUT(st, write_meta(&x, info, in->ptx, &meta));
    if (e->dump) dump(e, key, &x, &meta, cubin, cubin_len);
    const void *payload = in->ptx ? x.ptx : cubin;
    size_t len = in->ptx ? x.ptx_len : cubin_len;
    KN_TRY_OUT(st, kn_cache_publish(e->cache, key, info->assembler, payload, len, meta.data, meta.len, out));
    if (!in->ptx) kn_kernel_note_assembler(e); /* publishing may have made the directory */
    kn_count(&e->count.kernels_built, 1);
    kn_log(KN_LOG_PLAN, "built %s for %s: %u lines, assembled by %s in %" PRIu64 " us", x.meta.entry, in->target,
           x.meta.ptx_lines, info->assembler, info->report.assemble_ns / 1000);
out:
    kn_free(cubin);
    kn_buf_free(&meta);
    kn_expansion_free(&x);
    kn_free(info);
    return st;
}

/* A key that some thread of this process is building. */
typedef struct flight {
    struct flight *next;
    kn_digest id;
    int pid; /* a forked child must not wait for a thread that it does not have */
    int users;
    bool done;
    kn_status status;
    const kn_blob *blob;
    char message[512];
    pthread_cond_t landed;
} flight;

static flight *flights;
static kn_fork_lock flights_lock = KN_FORK_LOCK_INIT;

static flight *find_flight(kn_digest id, int pid) {
    flight *f = flights;
    while (f && (f->id.hi != id.hi || f->id.lo != id.lo || f->pid != pid)) f = f->next;
    return f;
}

/* Under the lock. */
static void leave_flight(flight *f) {
    if (--f->users > 0) return;
    kn_blob_release(f->blob);
    pthread_cond_destroy(&f->landed);
    kn_free(f);
}

static void land(flight *f, kn_status st, const kn_blob *blob) {
    kn_fork_lock_take(&flights_lock);
    flight **link = &flights;
    while (*link != f) link = &(*link)->next;
    *link = f->next;
    f->done = true;
    f->status = st;
    if (st != KN_OK) snprintf(f->message, sizeof f->message, "%.511s", kn_error_message());
    f->blob = blob;
    if (blob) kn_blob_retain(blob);
    pthread_cond_broadcast(&f->landed);
    leave_flight(f);
    kn_fork_lock_release(&flights_lock);
}

kn_status kn_kernel_build(kn_engine *e, const kn_key_inputs *in, const kn_key *key, const kn_blob **out, bool *mine) {
    flight *f = NULL;
    kn_digest id = kn_hash(key->bytes.data, key->bytes.len);
    int pid = (int)getpid();
    *mine = false;
    kn_fork_lock_take(&flights_lock);
    f = find_flight(id, pid);
    if (f) {
        f->users++;
        while (!f->done) pthread_cond_wait(&f->landed, &flights_lock.mutex);
        kn_status st = f->status == KN_OK ? KN_OK : kn_fail(f->status, "%s", f->message);
        *out = f->blob;
        if (*out) kn_blob_retain(*out);
        leave_flight(f);
        kn_fork_lock_release(&flights_lock);
        return st;
    }
    kn_status st = KN_NEW(&f, 1, "a kernel being built");
    if (st == KN_OK) {
        f->id = id;
        f->pid = pid;
        f->users = 1;
        pthread_cond_init(&f->landed, NULL);
        f->next = flights;
        flights = f;
    }
    kn_fork_lock_release(&flights_lock);
    if (st != KN_OK) return st;
    *mine = true;
    *out = NULL;
    st = build(e, in, key, out);
    land(f, st, *out);
    return st;
}
