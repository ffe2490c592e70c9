/* jit/driver: the CUDA driver library, opened and resolved once a process. Only jit/backend_cuda* includes this. */
#ifndef KN_JIT_DRIVER_H
#define KN_JIT_DRIVER_H

#include "base/status.h"
#include "jit/driver_api.h"

#include <stdbool.h>

enum { KN_DRIVER_OLDEST = 12000 }; /* CUDA 12.0: the first that has tensor maps and stream ids */

typedef struct kn_driver {
#define KN_DRIVER(symbol, since, required, args) kn_cu_result(*symbol) args;
#include "jit/driver.def"
#undef KN_DRIVER
} kn_driver;

/** Version (12040 = 12.4) and path of the driver library; it is opened but not initialised. KN_E_UNAVAILABLE with the
 *  paths tried, or when the library is the toolkit's link-time stub. */
kn_status kn_driver_version(int *version, const char **path);

/** The functions, after a successful cuInit in this process. KN_E_UNAVAILABLE names an old driver's version or the
 *  missing function; KN_E_FORK in a child of the process that initialised it. */
kn_status kn_driver_get(const kn_driver **out);

/** KN_E_FORK if this process is a child of the one that initialised the driver. */
kn_status kn_driver_check_process(void);

/** Fail with "CALL: NAME (text); detail". Codes that say what happened whatever the call was (out of memory, capture,
 *  device fault, no driver) choose their own status, all others become `code`. Returns the status. */
kn_status kn_driver_fail(const kn_driver *cu, kn_status code, const char *call, kn_cu_result rc, const char *fmt, ...)
    __attribute__((format(printf, 5, 6), cold));

/** True for success, and for results that mean that the context or the driver is gone and took its objects along. */
bool kn_driver_gone(kn_cu_result rc);

#endif
