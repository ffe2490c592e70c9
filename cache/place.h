/* Where the cache lives: options, environment and defaults put together. */
#ifndef KN_CACHE_PLACE_H
#define KN_CACHE_PLACE_H

#include "cache/cache.h"

/** Absolute path of the cache directory into *path (kn_free). *path NULL with KN_OK: no directory, `reason` says why,
 *  and *wanted whether it is missing against the user's will. Fails for KN_E_NOMEM alone. */
kn_status kn_place_dir(const char *option, char **path, char *reason, size_t reason_cap, bool *wanted);
/** The first `len` bytes of `path`, made absolute, into *out (kn_free). KN_E_IO if there is no working directory. */
kn_status kn_place_absolute(const char *path, size_t len, char **out);
/** True if the process runs with more rights than its user has; cached code is not trusted then. */
bool kn_place_privileged(void);

#endif
