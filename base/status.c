/* Status codes and the thread-local error sentence: see status.h. */
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[KN_ERROR_CAP];

kn_status kn_vfail(kn_status code, const char *fmt, va_list ap) {
    /* Formatted aside first: an argument may be the sentence that stands. */
    char text[KN_ERROR_CAP];
    vsnprintf(text, sizeof text, fmt, ap);
    memcpy(error_text, text, strlen(text) + 1);
    return code;
}

#undef kn_fail
kn_status kn_fail(kn_status code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    kn_vfail(code, fmt, ap);
    va_end(ap);
    return code;
}

kn_status kn_error_prefix(kn_status code, const char *fmt, ...) {
    char text[KN_ERROR_CAP];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t used = strlen(text);
    size_t rest = strlen(error_text);
    if (rest > sizeof text - 1 - used) rest = sizeof text - 1 - used;
    memcpy(text + used, error_text, rest);
    text[used + rest] = '\0';
    memcpy(error_text, text, used + rest + 1);
    return code;
}

const char *kn_error_message(void) {
    return error_text;
}

void kn_error_clear(void) {
    error_text[0] = '\0';
}

const char *kn_status_name(kn_status code) {
    switch (code) {
    case KN_OK: return "KILN_OK";
    case KN_E_ARG: return "KILN_E_ARG";
    case KN_E_SHAPE: return "KILN_E_SHAPE";
    case KN_E_DTYPE: return "KILN_E_DTYPE";
    case KN_E_ALIGN: return "KILN_E_ALIGN";
    case KN_E_DEVICE: return "KILN_E_DEVICE";
    case KN_E_OVERLAP: return "KILN_E_OVERLAP";
    case KN_E_WORKSPACE: return "KILN_E_WORKSPACE";
    case KN_E_UNAVAILABLE: return "KILN_E_UNAVAILABLE";
    case KN_E_NOT_CACHED: return "KILN_E_NOT_CACHED";
    case KN_E_CAPTURE: return "KILN_E_CAPTURE";
    case KN_E_UNSUPPORTED: return "KILN_E_UNSUPPORTED";
    case KN_E_TEMPLATE: return "KILN_E_TEMPLATE";
    case KN_E_ASSEMBLE: return "KILN_E_ASSEMBLE";
    case KN_E_LOAD: return "KILN_E_LOAD";
    case KN_E_LAUNCH: return "KILN_E_LAUNCH";
    case KN_E_SIM: return "KILN_E_SIM";
    case KN_E_IO: return "KILN_E_IO";
    case KN_E_FORMAT: return "KILN_E_FORMAT";
    case KN_E_NOMEM: return "KILN_E_NOMEM";
    case KN_E_ABI: return "KILN_E_ABI";
    case KN_E_HANDLE: return "KILN_E_HANDLE";
    case KN_E_FORK: return "KILN_E_FORK";
    case KN_E_INTERNAL: return "KILN_E_INTERNAL";
    default: return "KILN_E_?";
    }
}

kn_status kn_status_from_errno(int err) {
    return err == ENOMEM ? KN_E_NOMEM : KN_E_IO;
}
