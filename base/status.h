/* Status codes, the calling thread's error sentence, and the three macros that every module uses to fail.
 *
 * Every fallible function of Kiln returns a kn_status. On failure the callee stores one sentence that names the
 * argument, what was seen and what was wanted; callers pass the status on unchanged (KN_TRY) and may put the place
 * in front of the sentence (kn_error_prefix). The codes equal the public KILN_E_* codes of kiln/kiln.h: ops/api.c
 * asserts it. */
#ifndef KN_BASE_STATUS_H
#define KN_BASE_STATUS_H

#include <stdarg.h>
#include <stdint.h>

typedef int32_t kn_status;

enum {
    KN_OK = 0,
    KN_E_ARG = 1,          /* an argument's value is not allowed */
    KN_E_SHAPE = 2,        /* a tensor's rank or shape does not fit the others */
    KN_E_DTYPE = 3,        /* a tensor's element type is not supported there */
    KN_E_ALIGN = 4,        /* a pointer or stride is not aligned to its element */
    KN_E_DEVICE = 5,       /* a tensor lives on another device than the context */
    KN_E_OVERLAP = 6,      /* an output shares memory with another tensor that it may not share with */
    KN_E_WORKSPACE = 7,    /* the caller's workspace is missing or too small */
    KN_E_UNAVAILABLE = 10, /* a driver, library, function or device is not there */
    KN_E_NOT_CACHED = 11,  /* KILN_ON_MISS=error and a kernel is not in any cache layer */
    KN_E_CAPTURE = 12,     /* not possible while the stream is being captured */
    KN_E_UNSUPPORTED = 13, /* a legal request that this device or version cannot serve */
    KN_E_TEMPLATE = 20,    /* a template does not expand */
    KN_E_ASSEMBLE = 21,    /* the assembler refused the PTX */
    KN_E_LOAD = 22,        /* the driver refused the machine code */
    KN_E_LAUNCH = 23,      /* the driver refused the launch, or the device reported a fault */
    KN_E_SIM = 24,         /* the simulator found a fault in a kernel */
    KN_E_IO = 30,          /* a file operation failed */
    KN_E_FORMAT = 31,      /* a file's contents are not valid */
    KN_E_NOMEM = 32,       /* an allocation failed */
    KN_E_ABI = 40,         /* the caller was built against another version of the interface */
    KN_E_HANDLE = 41,      /* a handle is NULL, freed, or not a handle */
    KN_E_FORK = 42,        /* the process was forked after the driver had been initialised */
    KN_E_INTERNAL = 99     /* a bug in Kiln */
};

#define KN_ERROR_CAP 4096 /* bytes of an error sentence, the NUL included; longer ones are cut */

/** Store `fmt` as the calling thread's error sentence and return `code`. Never allocates. */
kn_status kn_fail(kn_status code, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
kn_status kn_vfail(kn_status code, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0), cold));

/** Put `fmt` in front of the sentence that stands; returns `code` unchanged, so that it can be passed on. */
kn_status kn_error_prefix(kn_status code, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/** The calling thread's last error sentence; "" if none. Valid until that thread's next failure. */
const char *kn_error_message(void);
void kn_error_clear(void);

/** "KILN_E_SHAPE" and so on; "KILN_E_?" for a code that does not exist. Static storage. */
const char *kn_status_name(kn_status code);

/* The common code for an errno value (KN_E_NOMEM for ENOMEM, KN_E_IO otherwise). */
kn_status kn_status_from_errno(int err);

/* clang's analyzer does not see into status.c: here it learns that a failure is one, and which. */
#ifdef __clang_analyzer__
static inline kn_status kn_analyzed_failure_(kn_status code, kn_status same) {
    (void)same;
    if (code == KN_OK) __builtin_unreachable();
    return code;
}
#define kn_fail(code, ...) kn_analyzed_failure_((code), kn_fail((code), __VA_ARGS__))
#endif

/* Pass a failure on to the caller. */
#define KN_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        kn_status kn_try_status_ = (expr);                                                                             \
        if (kn_try_status_ != KN_OK) return kn_try_status_;                                                            \
    } while (0)

/* Set `st` and leave through the function's one exit label `out:`. */
#define KN_TRY_OUT(st, expr)                                                                                           \
    do {                                                                                                               \
        (st) = (expr);                                                                                                 \
        if ((st) != KN_OK) goto out;                                                                                   \
    } while (0)

#define KN_REQUIRE(cond, code, ...)                                                                                    \
    do {                                                                                                               \
        if (!(cond)) return kn_fail((code), __VA_ARGS__);                                                              \
    } while (0)

#endif
