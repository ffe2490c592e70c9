/* Environment variables, all of them in env.def. Read when asked, never cached: callers read once when they create
 * their object (a context, a cache), so that tests and programs may change them in between. */
#ifndef KN_BASE_ENV_H
#define KN_BASE_ENV_H

#include "base/status.h"

typedef enum kn_env_id {
#define KN_ENV(id, name, dflt, meaning) KN_ENV_##id,
#include "base/env.def"
#undef KN_ENV
    KN_ENV_COUNT
} kn_env_id;

typedef struct kn_env_row {
    const char *name, *dflt, *meaning;
} kn_env_row;

extern const kn_env_row kn_env_table[KN_ENV_COUNT];

/** The variable's value; NULL when it is unset or empty. */
const char *kn_env(kn_env_id id);
/** A variable of the system, not of Kiln (HOME, XDG_CACHE_HOME); NULL when it is unset or empty. */
const char *kn_env_system(const char *name);
/** A whole number in [lo, hi] into *out, `dflt` when unset; KN_E_ARG naming variable and range otherwise. */
kn_status kn_env_i64(kn_env_id id, int64_t dflt, int64_t lo, int64_t hi, int64_t *out);
/** Bytes with an optional suffix K, M, G or T (powers of 1024); same rules as kn_env_i64. */
kn_status kn_env_bytes(kn_env_id id, int64_t dflt, int64_t *out);
/** Index of the value in the NULL-ended list `choices`, `dflt` when unset; KN_E_ARG listing them otherwise. */
kn_status kn_env_choice(kn_env_id id, const char *const *choices, int dflt, int *out);

#endif
