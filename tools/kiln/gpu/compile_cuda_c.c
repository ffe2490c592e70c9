/* NVRTC: see compile_cuda_c.h. */
#include "gpu/compile_cuda_c.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Our declarations of nvrtc.h: its types as far as a caller's machine code sees them. */
typedef void *program;
typedef struct functions {
    int (*create)(program *out, const char *source, const char *name, int n_headers, const char *const *headers,
                  const char *const *names);
    int (*compile)(program p, int n_options, const char *const *options);
    int (*log_size)(program p, size_t *n);
    int (*log)(program p, char *text);
    int (*ptx_size)(program p, size_t *n);
    int (*ptx)(program p, char *text);
    int (*destroy)(program *p);
} functions;

static int find(functions *f) {
    static const char *const paths[] = {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12"};
    const struct {
        const char *name;
        void *at;
    } symbols[] = {{"nvrtcCreateProgram", &f->create},       {"nvrtcCompileProgram", &f->compile},
                   {"nvrtcGetProgramLogSize", &f->log_size}, {"nvrtcGetProgramLog", &f->log},
                   {"nvrtcGetPTXSize", &f->ptx_size},        {"nvrtcGetPTX", &f->ptx},
                   {"nvrtcDestroyProgram", &f->destroy}};
    const char *own = getenv("KILN_LIBNVRTC");
    bool named = own && *own;
    void *library = named ? dlopen(own, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (named && !library) return kt_fail(KT_ENVIRONMENT, "no NVRTC: KILN_LIBNVRTC is \"%s\"", own);
    for (size_t i = 0; i < sizeof paths / sizeof *paths && !library; i++)
        library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return kt_fail(KT_ENVIRONMENT, "no libnvrtc.so.13 or .12 where the system looks or in /usr/local/cuda; "
                                       "KILN_LIBNVRTC may name it");
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address) return kt_fail(KT_ENVIRONMENT, "NVRTC has no function %s", symbols[i].name);
        memcpy(symbols[i].at, &address, sizeof address);
    }
    return KT_GOOD; /* it stays open: it is used again */
}

static int refused(const functions *f, program p, const char *name) {
    size_t n = 0;
    char *log = NULL;
    if (f->log_size(p, &n) == 0 && n > 1) {
        log = kt_alloc(n + 1, 1);
        if (f->log(p, log) != 0) log[0] = '\0';
    }
    int code = kt_fail(KT_ENVIRONMENT, "NVRTC refused %s: %s", name, log ? log : "it gives no reason");
    free(log);
    return code;
}

static int take_ptx(const functions *f, program p, const char *name, char **ptx) {
    size_t n = 0;
    if (f->ptx_size(p, &n) != 0 || n == 0) return kt_fail(KT_ENVIRONMENT, "NVRTC has no PTX of %s", name);
    *ptx = kt_alloc(n + 1, 1);
    if (f->ptx(p, *ptx) == 0) return KT_GOOD;
    free(*ptx);
    *ptx = NULL;
    return kt_fail(KT_ENVIRONMENT, "NVRTC does not give the PTX of %s", name);
}

int kt_nvrtc_ptx(const char *source, const char *name, const char *arch, char **ptx) {
    functions f;
    program p = NULL;
    char option[48];
    *ptx = NULL;
    KT_TRY(find(&f));
    snprintf(option, sizeof option, "--gpu-architecture=compute_%s", strncmp(arch, "sm_", 3) == 0 ? arch + 3 : arch);
    const char *options[] = {option, "--std=c++17"};
    if (f.create(&p, source, name, 0, NULL, NULL) != 0)
        return kt_fail(KT_ENVIRONMENT, "NVRTC makes no program of %s", name);
    int code = f.compile(p, 2, options) == 0 ? take_ptx(&f, p, name, ptx) : refused(&f, p, name);
    f.destroy(&p);
    return code;
}
