/* Which assembler builds for an engine, and what it is called in cache entries.
 *
 * nvJitLink, unless it is not there, makes code that the engine's driver is too old for, or is named by
 * KILN_BAD_ASSEMBLERS; then the driver's own. Most engines never need to know more than the name of it, which the cache
 * directory has a note of, so that a program that finds all kernels in its cache loads no library. */
#include "jit/dl.h"
#include "jit/kernel.h"
#include "jit/kernel_note.h"

#include <stdio.h>
#include <string.h>

/* The loaded nvJitLink's name for itself, once some call has loaded it. */
static char loaded_text[160];
static _Atomic(const char *) loaded;

/* ---- what must not be used --------------------------------------------------------------------------------------- */

/* Does the list "nvjitlink-12.3,driver-12.4" have this one? */
static bool is_listed(const char *list, const char *kind, uint32_t version) {
    char name[48];
    size_t n = (size_t)snprintf(name, sizeof name, "%s-%u.%u", kind, version / 1000, version % 1000 / 10);
    for (const char *s = list; s && *s; s += strspn(s, ",")) {
        size_t len = strcspn(s, ",");
        if (len == n && memcmp(s, name, n) == 0) return true;
        s += len;
    }
    return false;
}

/* Why `e` must not take code of this assembler; KN_OK: it may. */
static kn_status check(const kn_engine *e, const char *kind, uint32_t version) {
    uint32_t driver = e->backend->facts.driver_version, needed = (uint32_t)kn_driver_for_cubin((int)version);
    KN_REQUIRE(!driver || needed <= driver, KN_E_UNAVAILABLE,
               "%s %u.%u makes code for drivers from %u.%u on; this driver is %u.%u", kind, version / 1000,
               version % 1000 / 10, needed / 1000, needed % 1000 / 10, driver / 1000, driver % 1000 / 10);
    KN_REQUIRE(!is_listed(e->bad_assemblers, kind, version), KN_E_UNAVAILABLE, "KILN_BAD_ASSEMBLERS names %s %u.%u",
               kind, version / 1000, version % 1000 / 10);
    return KN_OK;
}

/* Kind and version of a name like "nvjitlink 13000 -O3"; false if it has none. */
static bool parse(const char *text, char kind[16], uint32_t *version) {
    return sscanf(text, "%15s %u", kind, version) == 2;
}

kn_status kn_kernel_check_assembler(const kn_engine *e, const char *text) {
    char kind[16];
    uint32_t version;
    return parse(text, kind, &version) ? check(e, kind, version) : KN_OK; /* PTX has no assembler */
}

kn_status kn_kernel_nvjitlink(const kn_engine *e, const kn_assembler_id **out) {
    const kn_assembler_id *id = NULL;
    *out = NULL;
    KN_TRY(kn_nvjitlink_id(&id));
    KN_TRY(check(e, id->kind, id->version));
    *out = id;
    return KN_OK;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

void kn_kernel_note_assembler(kn_engine *e) {
    const kn_assembler_id *id = NULL;
    const char *text = atomic_load(&loaded);
    char noted[160];
    kn_cache_stats cache;
    kn_cache_get_stats(e->cache, &cache);
    if (!text || !cache.dir_usable || kn_nvjitlink_id(&id) != KN_OK) return;
    if (kn_kernel_note_read(cache.dir, noted, sizeof noted) && strcmp(noted, text) == 0) return;
    kn_kernel_note_write(cache.dir, id->path, text);
}

static kn_status load_nvjitlink(kn_engine *e, char out[160]) {
    const kn_assembler_id *id = NULL;
    static kn_fork_lock lock = KN_FORK_LOCK_INIT;
    KN_TRY(kn_nvjitlink_id(&id));
    snprintf(out, 160, "%s %u %s", id->kind, id->version, id->options);
    kn_fork_lock_take(&lock);
    if (!atomic_load(&loaded)) {
        memcpy(loaded_text, out, sizeof loaded_text);
        atomic_store(&loaded, loaded_text);
    }
    kn_fork_lock_release(&lock);
    kn_kernel_note_assembler(e);
    return kn_kernel_check_assembler(e, out);
}

/* What can be known without loading anything; false where the library must be asked. */
static bool guess_assembler(kn_engine *e, char out[160]) {
    kn_cache_stats cache;
    const char *text = atomic_load(&loaded);
    kn_cache_get_stats(e->cache, &cache);
    if (text) {
        memcpy(out, text, 160);
    } else if (!cache.dir_usable) {
        snprintf(out, 160, "none"); /* packs match by key alone */
    } else if (!kn_kernel_note_read(cache.dir, out, 160)) {
        return false;
    }
    return kn_kernel_check_assembler(e, out) == KN_OK;
}

kn_status kn_kernel_assembler(kn_engine *e, bool load, char out[160]) {
    if (e->backend->runs_ptx) {
        snprintf(out, 160, "ptx");
        return KN_OK;
    }
    if (!load && guess_assembler(e, out)) return KN_OK;
    kn_status st = load_nvjitlink(e, out);
    if (st != KN_E_UNAVAILABLE) return st;
    if (e->backend->ops->link) {
        char why[KN_ERROR_CAP / 2];
        uint32_t driver = e->backend->facts.driver_version;
        snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, kn_error_message());
        snprintf(out, 160, "driver %u", driver);
        if (check(e, "driver", driver) == KN_OK) return KN_OK;
        st = kn_error_prefix(st, "%s; ", why);
    }
    if (load) return st;
    snprintf(out, 160, "none");
    return KN_OK;
}
