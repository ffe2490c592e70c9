/* Contexts: creation from a device string and options, and the table of handles. See api_context.h. */
#include "ops/api_context.h"

#include "base/env.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table of handles ------------------------------------------------------------------------------------------
 * A handle is TAG (bits 48..52), the row's serial number (16..47) and the row (0..15). Cut to 32 bits it loses its
 * tag; freed, its serial number is no longer the row's. It fits a double. */

enum { ROWS = 1024, ROW_BITS = 16, SERIAL_BITS = 32 };
static const uint64_t tag = (uint64_t)0x15 << (ROW_BITS + SERIAL_BITS);

/* row.state: the serial number in the upper 32 bits, LIVE, and the number of calls that are inside. */
#define LIVE ((uint64_t)1 << 31)

static struct {
    atomic_uint_fast64_t state;
    kn_engine *engine; /* written while the row is not live and has no users */
    uint32_t process;
} rows[ROWS];

static kn_mutex rows_lock = KN_MUTEX_INIT; /* guards the choice of a row, and `serial` */
static uint32_t serial;

/* Counts forks along the line of processes: a context of another number was made by an ancestor. */
static atomic_uint process_number;

static void fork_prepare(void) {
    kn_lock(&rows_lock);
}
static void fork_parent(void) {
    kn_unlock(&rows_lock);
}
static void fork_child(void) {
    atomic_fetch_add(&process_number, 1);
    kn_unlock(&rows_lock);
}
static void watch_forks(void) {
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static kn_status add_row(kn_engine *e, kiln_context **out) {
    static kn_once once = KN_ONCE_INIT;
    kn_call_once(&once, watch_forks);
    kn_lock(&rows_lock);
    for (uint64_t i = 0; i < ROWS; i++) {
        if (rows[i].engine) continue;
        serial += 0x9e3779b1u; /* odd: all values come before one returns; never 0 twice in a row */
        if (serial == 0) serial += 0x9e3779b1u;
        rows[i].engine = e;
        rows[i].process = atomic_load(&process_number);
        atomic_store(&rows[i].state, (uint64_t)serial << 32 | LIVE);
        kn_unlock(&rows_lock);
        *out = (kiln_context *)(uintptr_t)(tag | (uint64_t)serial << ROW_BITS | i);
        return KN_OK;
    }
    kn_unlock(&rows_lock);
    return kn_fail(KN_E_UNAVAILABLE, "there are %d contexts already; destroy some", ROWS);
}

static kn_status bad_handle(kiln_context *handle) {
    if (!handle) return kn_fail(KN_E_HANDLE, "the context is NULL");
    return kn_fail(KN_E_HANDLE, "%p is not a context of this library, or was destroyed", (void *)handle);
}

/* Row of a handle that looks like one; -1 otherwise. */
static int row_of(kiln_context *handle, uint64_t *serial_bits) {
    uint64_t v = (uint64_t)(uintptr_t)handle;
    uint64_t row = v & ((1u << ROW_BITS) - 1);
    *serial_bits = (v >> ROW_BITS & UINT32_MAX) << 32;
    return v >> (ROW_BITS + SERIAL_BITS) == tag >> (ROW_BITS + SERIAL_BITS) && row < ROWS ? (int)row : -1;
}

kn_status kn_context_enter(kiln_context *handle, kn_engine **out) {
    uint64_t wanted;
    int row = row_of(handle, &wanted);
    if (row < 0) return bad_handle(handle);
    uint64_t state = atomic_load_explicit(&rows[row].state, memory_order_acquire);
    do {
        if ((state & ~(LIVE - 1)) != (wanted | LIVE)) return bad_handle(handle);
    } while (!atomic_compare_exchange_weak_explicit(&rows[row].state, &state, state + 1, memory_order_acquire,
                                                    memory_order_acquire));
    *out = rows[row].engine;
    if (rows[row].process == atomic_load_explicit(&process_number, memory_order_relaxed)) return KN_OK;
    kn_context_leave(handle);
    return kn_fail(KN_E_FORK, "the context was created before this process was forked; create one in this process");
}

/* The last user of a row that is no longer live frees it. */
static void release_row(int row, uint64_t state) {
    if (state & (LIVE | (LIVE - 1))) return;
    kn_engine *e = rows[row].engine;
    bool own = rows[row].process == atomic_load(&process_number);
    if (own) kn_engine_destroy(e); /* an ancestor's: its device and locks are in an unknown state */
    kn_lock(&rows_lock);
    rows[row].engine = NULL;
    kn_unlock(&rows_lock);
}

void kn_context_leave(kiln_context *handle) {
    uint64_t serial_bits;
    int row = row_of(handle, &serial_bits);
    uint64_t state = atomic_fetch_sub_explicit(&rows[row].state, 1, memory_order_acq_rel) - 1;
    release_row(row, state);
}

int32_t kiln_context_destroy(kiln_context *ctx) {
    uint64_t wanted;
    int row = row_of(ctx, &wanted);
    if (row < 0) return bad_handle(ctx);
    uint64_t state = atomic_load(&rows[row].state);
    do {
        if ((state & ~(LIVE - 1)) != (wanted | LIVE)) return bad_handle(ctx);
    } while (!atomic_compare_exchange_weak(&rows[row].state, &state, state & ~LIVE));
    release_row(row, state & ~LIVE);
    return KN_OK;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static kn_status bad_device(const char *device) {
    return kn_fail(KN_E_ARG,
                   "device is \"%.100s\"; wanted auto, cuda:N, sim, sim:ARCH, null, null:ARCH or offline:MACHINE",
                   device);
}

static kn_status cuda_backend(const char *device, kn_backend **out) {
    int index = 0;
    if (strcmp(device, "cuda") != 0) {
        char *end;
        if (device[5] < '0' || device[5] > '9') return bad_device(device);
        long n = strtol(device + 5, &end, 10);
        if (*end || n > 65535) return bad_device(device);
        index = (int)n;
    }
    return kn_backend_cuda_create(index, out);
}

/* Builds real machine code for a machine that is not there; launches return at once. */
static kn_status offline_backend(const char *machine, kn_backend **out) {
    KN_TRY(kn_backend_null_create(machine, out));
    (*out)->runs_ptx = false;
    return KN_OK;
}

/* Make the backend that a device string names. */
static kn_status make_backend(const char *device, kn_backend **out) {
    if (!device) device = kn_env(KN_ENV_DEVICE);
    if (!device) device = "auto";
    if (strcmp(device, "auto") == 0) {
        int count = 0;
        kn_status st = kn_backend_cuda_count(&count);
        if (st == KN_OK && count > 0) return kn_backend_cuda_create(0, out);
        if (st != KN_OK && st != KN_E_UNAVAILABLE) return st;
        return kn_backend_sim_create("sm_90a", out);
    }
    if (strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", 5) == 0) return cuda_backend(device, out);
    if (strcmp(device, "sim") == 0) return kn_backend_sim_create("sm_90a", out);
    if (strncmp(device, "sim:", 4) == 0) return kn_backend_sim_create(device + 4, out);
    if (strcmp(device, "null") == 0) return kn_backend_null_create("sm_90a", out);
    if (strncmp(device, "null:", 5) == 0) return kn_backend_null_create(device + 5, out);
    if (strncmp(device, "offline:", 8) == 0) return offline_backend(device + 8, out);
    return bad_device(device);
}

/* ---- creation ---------------------------------------------------------------------------------------------------- */

static kn_status check_range(const char *name, int32_t value, int32_t most) {
    KN_REQUIRE(value >= 0 && value <= most, KN_E_ARG, "options: %s is %d; wanted 0 to %d", name, value, most);
    return KN_OK;
}

static kn_status read_options(const kiln_context_options *given, kiln_context_options *o) {
    memset(o, 0, sizeof *o);
    if (!given) return KN_OK;
    uint32_t size = given->struct_size, known = (uint32_t)sizeof *o;
    KN_REQUIRE(size >= sizeof(uint32_t) && size <= 4096, KN_E_ABI,
               "options: struct_size is %u; wanted sizeof(kiln_context_options) = %u", size, known);
    for (uint32_t i = known; i < size; i++)
        KN_REQUIRE(((const unsigned char *)given)[i] == 0, KN_E_ABI,
                   "options: byte %u of %u is set, but this library knows %u bytes: the caller needs a newer libkiln",
                   i, size, known);
    memcpy(o, given, size < known ? size : known);
    KN_TRY(check_range("on_miss", o->on_miss, KILN_ON_MISS_ERROR));
    KN_TRY(check_range("shapes", o->shapes, KILN_SHAPES_GENERIC));
    KN_TRY(check_range("path", o->path, KILN_PATH_PORTABLE));
    KN_TRY(check_range("sm_limit", o->sm_limit, INT32_MAX));
    KN_TRY(check_range("max_modules", o->max_modules, 1 << 20));
    KN_REQUIRE(o->cache_max_bytes >= 0, KN_E_ARG, "options: cache_max_bytes is %lld; wanted 0 or more",
               (long long)o->cache_max_bytes);
    return KN_OK;
}

int32_t kiln_context_create(const char *device, const kiln_context_options *options, kiln_context **out) {
    KN_REQUIRE(out, KN_E_ARG, "kiln_context_create: out is NULL");
    *out = NULL;
    kiln_context_options o;
    KN_TRY(read_options(options, &o));
    const kn_engine_options eo = {.on_miss = o.on_miss,
                                  .shapes = o.shapes,
                                  .path = o.path,
                                  .sm_limit = (uint32_t)o.sm_limit,
                                  .max_modules = o.max_modules,
                                  .cache_dir = o.cache_dir,
                                  .cache_read_only = o.cache_read_only,
                                  .cache_max_bytes = o.cache_max_bytes,
                                  .record = o.record,
                                  .tuning = o.tuning};
    kn_backend *backend = NULL;
    kn_engine *e = NULL;
    KN_TRY(make_backend(device, &backend));
    KN_TRY(kn_engine_create(backend, &eo, &e));
    kn_status st = add_row(e, out);
    if (st != KN_OK) kn_engine_destroy(e);
    return st;
}
