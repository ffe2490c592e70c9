/* The kernels of an engine: a table by key, in which a kernel is first being made by one thread, then ready. The lock
 * guards the table and the reference counts; nothing is built, loaded or read while it is held. */
#include "jit/kernel.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAKING, READY, GONE }; /* kn_kernel.state; GONE: out of the table, for waiters to see */
enum { BUCKETS = 1024 };

typedef struct kn_kernel_table {
    kn_mutex lock;
    kn_cond changed;
    kn_kernel *bucket[BUCKETS];
    uint32_t count; /* READY ones */
    uint64_t clock; /* of last uses */
} kn_kernel_table;

kn_status kn_kernel_table_new(kn_kernel_table **out) {
    KN_TRY(KN_NEW(out, 1, "a table of kernels"));
    kn_mutex_init(&(*out)->lock);
    pthread_cond_init(&(*out)->changed, NULL);
    return KN_OK;
}

static void free_kernel(kn_kernel *k) {
    kn_blob_release(k->blob);
    kn_free(k->key);
    kn_free(k);
}

static void unload(kn_engine *e, kn_kernel *k) {
    e->backend->ops->module_unload(e->backend, k->module);
    kn_count(&e->count.kernels_unloaded, 1);
    kn_log(KN_LOG_PLAN, "unloaded %s", k->info.meta.entry);
    free_kernel(k);
}

/* Kernels of engines that are gone, which captured graphs may still launch. Nobody reads the list: it says that they
 * are kept, not forgotten. */
static _Atomic(kn_kernel *) kept;

static void keep_for_ever(kn_kernel *k) {
    k->next = atomic_load(&kept);
    while (!atomic_compare_exchange_weak(&kept, &k->next, k)) continue;
}

void kn_kernel_table_free(kn_engine *e) {
    kn_kernel_table *t = e->kernels;
    if (!t) return;
    for (int i = 0; i < BUCKETS; i++) {
        while (t->bucket[i]) {
            kn_kernel *k = t->bucket[i];
            t->bucket[i] = k->next;
            if (k->pinned)
                keep_for_ever(k);
            else
                unload(e, k);
        }
    }
    pthread_cond_destroy(&t->changed);
    kn_mutex_destroy(&t->lock);
    kn_free(t);
    e->kernels = NULL;
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

/* The text of the line map, inside the blob; NULL without one. */
static const char *map_of(const kn_blob *blob) {
    static const char mark[] = "\nmap=\n";
    const char *at = strstr(blob->meta, mark);
    return at ? at + strlen(mark) : NULL;
}

static kn_status load_blob(kn_engine *e, kn_kernel *k, const kn_blob *blob) {
    kn_backend *b = e->backend;
    uint64_t start = kn_clock_ns();
    KN_TRY(kn_kernel_info_read(blob, &k->info));
    KN_REQUIRE(strcmp(k->info.meta.target, b->target->name) == 0, KN_E_LOAD,
               "the entry of %s is for %s, the device is %s", k->info.meta.entry, k->info.meta.target, b->target->name);
    KN_REQUIRE(!b->facts.driver_version || k->info.driver_version <= b->facts.driver_version, KN_E_LOAD,
               "%s was assembled by %s and needs driver %u; the driver is %u", k->info.meta.entry, k->info.assembler,
               k->info.driver_version, b->facts.driver_version);
    if (kn_kernel_check_assembler(e, k->info.assembler) != KN_OK)
        return kn_error_prefix(KN_E_LOAD, "%s: ", k->info.meta.entry);
    const char *map = map_of(blob);
    kn_status st = b->ops->module_load(b, blob->payload, blob->payload_len, &k->info.meta, &k->module);
    if (st != KN_OK) return kn_backend_sim_map_error(st, map);
    if (map && b->ops->module_line_map) {
        b->ops->module_line_map(b, k->module, map);
        kn_blob_retain(blob);
        k->blob = blob;
    }
    kn_count(&e->count.load_ns, kn_clock_ns() - start);
    kn_count(&e->count.kernels_loaded, 1);
    return KN_OK;
}

/* Load from the first cache layer whose entry loads. *refused counts the entries that did not. */
static kn_status find(kn_engine *e, kn_kernel *k, const kn_key *key, bool *found, uint32_t *refused) {
    char assembler[160];
    KN_TRY(kn_kernel_assembler(e, false, assembler));
    for (*refused = 0;; ++*refused) {
        const kn_blob *blob = NULL;
        KN_TRY(kn_cache_find(e->cache, key, assembler, *refused, &blob));
        if (!blob) return KN_OK;
        kn_status st = load_blob(e, k, blob);
        kn_blob_release(blob);
        *found = st == KN_OK;
        if (st == KN_OK || (st != KN_E_LOAD && st != KN_E_FORMAT && st != KN_E_SIM)) return st;
        kn_log(KN_LOG_WARN, "cached kernel not used: %s", kn_error_message());
    }
}

static kn_status not_cached(const kn_kernel_spec *spec, const kn_key_inputs *in, uint32_t refused) {
    char seen[KN_ERROR_CAP / 2];
    snprintf(seen, sizeof seen, "%s%.1500s", refused ? "; an entry did not load: " : "",
             refused ? kn_error_message() : "");
    kn_buf params;
    kn_buf_init(&params, 1 << 16);
    kn_params_write(&spec->params, &params);
    kn_status st =
        kn_fail(KN_E_NOT_CACHED, "kernel %s (%.800s) for %s is in no cache layer, and KILN_ON_MISS is error%s",
                spec->template_name, params.data, in->target, seen);
    kn_buf_free(&params);
    return st;
}

/* Everything between a new table entry and a loaded kernel. *found false with KN_OK: not to be had that way. */
static kn_status make(kn_engine *e, kn_kernel *k, const kn_kernel_spec *spec, const kn_key_inputs *in,
                      const kn_key *key, kn_want want, bool *found) {
    const kn_blob *blob = NULL;
    uint32_t refused = 0;
    *found = false;
    KN_TRY(find(e, k, key, found, &refused));
    if (*found || want == KN_WANT_CACHED) return KN_OK;
    if (e->on_miss == KN_ON_MISS_ERROR) return not_cached(spec, in, refused);
    kn_status st = kn_kernel_build(e, in, key, &blob, &k->built);
    if (st == KN_OK) st = load_blob(e, k, blob);
    kn_blob_release(blob);
    *found = st == KN_OK;
    return st;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static kn_kernel **bucket_of(kn_kernel_table *t, kn_digest d) {
    return &t->bucket[d.lo % BUCKETS];
}

static kn_kernel *look_up(kn_kernel_table *t, kn_digest d, const kn_key *key) {
    kn_kernel *k = *bucket_of(t, d);
    while (k && (k->key_len != key->bytes.len || memcmp(k->key, key->bytes.data, k->key_len) != 0)) k = k->next;
    return k;
}

static void unlink_kernel(kn_kernel_table *t, kn_kernel *k) {
    kn_kernel **link = bucket_of(t, k->digest);
    while (*link != k) link = &(*link)->next;
    *link = k->next;
}

static kn_status new_kernel(kn_digest d, kn_key *key, kn_kernel **out) {
    KN_TRY(KN_NEW(out, 1, "a kernel"));
    (*out)->digest = d;
    (*out)->refs = 1;
    (*out)->state = MAKING;
    (*out)->key = kn_buf_take(&key->bytes, &(*out)->key_len);
    return KN_OK;
}

/* Wait for the thread that makes `k`; the lock is held. *again: it did not go as far as this caller wants to go. */
static kn_status wait_for(kn_kernel_table *t, kn_kernel *k, kn_want want, kn_kernel **out, bool *again) {
    k->refs++;
    while (k->state == MAKING) pthread_cond_wait(&t->changed, &t->lock);
    *again = false;
    if (k->state == READY) {
        *out = k;
        return KN_OK;
    }
    kn_status st = k->status == KN_OK ? KN_OK : kn_fail(k->status, "%s", k->message);
    *again = st == KN_OK && k->wanted < (uint32_t)want;
    if (--k->refs == 0) free_kernel(k);
    return st;
}

static kn_status finish(kn_kernel_table *t, kn_kernel *k, kn_status st, bool found, kn_kernel **out) {
    kn_lock(&t->lock);
    k->state = found ? READY : GONE;
    k->status = st;
    if (found) {
        t->count++;
        k->used = ++t->clock;
        *out = k;
    } else {
        if (st != KN_OK) snprintf(k->message, sizeof k->message, "%.511s", kn_error_message());
        unlink_kernel(t, k);
        if (--k->refs == 0) free_kernel(k);
    }
    pthread_cond_broadcast(&t->changed);
    kn_unlock(&t->lock);
    return st;
}

static kn_status acquire(kn_engine *e, const kn_kernel_spec *spec, const kn_key_inputs *in, kn_key *key, kn_want want,
                         kn_kernel **out) {
    kn_kernel_table *t = e->kernels;
    kn_digest d = kn_hash(key->bytes.data, key->bytes.len);
    kn_status st = KN_OK;
    bool again = true;
    kn_lock(&t->lock);
    kn_kernel *k = look_up(t, d, key);
    while (k && again) {
        if (k->state == MAKING && want == KN_WANT_LOADED) break;
        st = wait_for(t, k, want, out, &again);
        k = look_up(t, d, key);
    }
    if (!again || want == KN_WANT_LOADED) {
        kn_unlock(&t->lock);
        return st;
    }
    st = new_kernel(d, key, &k);
    if (st == KN_OK) {
        k->wanted = want;
        k->next = *bucket_of(t, d);
        *bucket_of(t, d) = k;
    }
    kn_unlock(&t->lock);
    if (st != KN_OK) return st;
    /* The key's bytes now belong to the entry, which nobody frees while it is MAKING. */
    const kn_key view = {.bytes = {.data = k->key, .len = k->key_len}};
    bool found;
    st = make(e, k, spec, in, &view, want, &found);
    return finish(t, k, st, found, out);
}

kn_status kn_kernel_acquire(kn_engine *e, const kn_kernel_spec *spec, kn_want want, kn_kernel **out) {
    const kn_key_inputs in = kn_kernel_inputs(e, spec);
    kn_key key;
    *out = NULL;
    KN_TRY(kn_kernel_key(&in, &key));
    kn_status st = acquire(e, spec, &in, &key, want, out);
    kn_key_free(&key);
    return st;
}

void kn_kernel_release(kn_engine *e, kn_kernel *k) {
    kn_kernel_table *t = e->kernels;
    kn_lock(&t->lock);
    k->refs--;
    k->used = ++t->clock;
    kn_unlock(&t->lock);
}

void kn_kernel_pin(kn_engine *e, kn_kernel *k) {
    kn_lock(&e->kernels->lock);
    k->pinned = true;
    kn_unlock(&e->kernels->lock);
}

uint32_t kn_kernel_count(kn_engine *e) {
    kn_lock(&e->kernels->lock);
    uint32_t n = e->kernels->count;
    kn_unlock(&e->kernels->lock);
    return n;
}

/* The unreferenced kernel that was used longest ago; NULL if there is none. */
static kn_kernel *oldest_unused(kn_kernel_table *t) {
    kn_kernel *oldest = NULL;
    for (int i = 0; i < BUCKETS; i++)
        for (kn_kernel *k = t->bucket[i]; k; k = k->next)
            if (k->state == READY && k->refs == 0 && !k->pinned && (!oldest || k->used < oldest->used)) oldest = k;
    return oldest;
}

void kn_kernel_collect(kn_engine *e, uint32_t keep) {
    kn_kernel_table *t = e->kernels;
    for (;;) {
        kn_lock(&t->lock);
        kn_kernel *k = t->count > keep ? oldest_unused(t) : NULL;
        if (k) {
            unlink_kernel(t, k);
            t->count--;
        }
        kn_unlock(&t->lock);
        if (!k) return;
        unload(e, k);
    }
}
