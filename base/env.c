/* The table of environment variables: see env.h. */
#include "base/env.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const kn_env_row kn_env_table[KN_ENV_COUNT] = {
#define KN_ENV(id, name, dflt, meaning) {name, dflt, meaning},
#include "base/env.def"
#undef KN_ENV
};

const char *kn_env(kn_env_id id) {
    const char *v = getenv(kn_env_table[id].name);
    return v && *v ? v : NULL;
}

const char *kn_env_system(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

kn_status kn_env_i64(kn_env_id id, int64_t dflt, int64_t lo, int64_t hi, int64_t *out) {
    const char *v = kn_env(id);
    *out = dflt;
    if (!v) return KN_OK;
    char *end = NULL;
    errno = 0;
    long long n = strtoll(v, &end, 10);
    if (errno != 0 || *end != '\0' || n < lo || n > hi)
        return kn_fail(KN_E_ARG, "%s is \"%s\"; wanted a whole number from %" PRId64 " to %" PRId64,
                       kn_env_table[id].name, v, lo, hi);
    *out = n;
    return KN_OK;
}

kn_status kn_env_bytes(kn_env_id id, int64_t dflt, int64_t *out) {
    const char *v = kn_env(id);
    *out = dflt;
    if (!v) return KN_OK;
    char *end = NULL;
    errno = 0;
    long long n = strtoll(v, &end, 10);
    int shift = 0;
    if (errno == 0 && end != v && *end) {
        const char *suffix = strchr("KMGT", *end);
        if (suffix) {
            shift = 10 * (int)(suffix - "KMGT" + 1);
            end++;
        }
    }
    if (errno != 0 || end == v || *end != '\0' || n < 0 || n > (INT64_MAX >> shift))
        return kn_fail(KN_E_ARG, "%s is \"%s\"; wanted bytes, or a number with a suffix K, M, G or T",
                       kn_env_table[id].name, v);
    *out = (int64_t)n << shift;
    return KN_OK;
}

kn_status kn_env_choice(kn_env_id id, const char *const *choices, int dflt, int *out) {
    const char *v = kn_env(id);
    *out = dflt;
    if (!v) return KN_OK;
    char list[256] = "";
    for (int i = 0; choices[i]; i++) {
        if (strcmp(v, choices[i]) == 0) {
            *out = i;
            return KN_OK;
        }
        size_t used = strlen(list);
        if (used + strlen(choices[i]) + 3 < sizeof list) {
            if (used) memcpy(list + used, ", ", 3), used += 2;
            memcpy(list + used, choices[i], strlen(choices[i]) + 1);
        }
    }
    return kn_fail(KN_E_ARG, "%s is \"%s\"; wanted one of: %s", kn_env_table[id].name, v, list);
}
