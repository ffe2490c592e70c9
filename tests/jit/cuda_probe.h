/* A small kernel, its launch and its load on the fake driver, for the tests of jit/backend_cuda. */
#ifndef KN_TESTS_CUDA_PROBE_H
#define KN_TESTS_CUDA_PROBE_H

#include "fakecuda/fake_user.h"
#include "jit/backend.h"
#include "support/suite.h"

static char ptx[] = ".version 8.0\n.target sm_90a\n.visible .entry probe(.param .u64 p)\n{ ret; }\n";
static const char foreign_cubin[] = "\177ELF somebody's";

static inline kn_expansion probe_kernel(void) {
    kn_expansion x = {.ptx = ptx, .ptx_len = strlen(ptx)};
    strcpy(x.meta.entry, "probe");
    strcpy(x.meta.target, "sm_90a");
    x.meta.threads[0] = 128;
    x.meta.threads[1] = x.meta.threads[2] = 1;
    x.meta.n_args = 2;
    x.meta.arg[0] = (kn_kernel_arg){"p", 0, 8, 8};
    x.meta.arg[1] = (kn_kernel_arg){"n", 8, 4, 4};
    return x;
}

typedef struct probe_params {
    void *p;
    uint32_t n;
} probe_params;

static inline kn_status launch(kn_backend *b, kn_module *m, uint32_t blocks, bool dependent, void *stream) {
    probe_params params = {NULL, 7};
    kn_launch_args a = {.module = m,
                        .grid = {blocks, 1, 1},
                        .dependent = dependent,
                        .params = &params,
                        .params_len = 12,
                        .stream = stream};
    return b->ops->launch(b, &a);
}

static inline kn_module *load(kn_backend *b, const kn_kernel_meta *meta) {
    kn_module *m = NULL;
    ck_assert_ok(b->ops->module_load(b, foreign_cubin, sizeof foreign_cubin, meta, &m));
    return m;
}

/* A log callback that counts lines. */
static inline void mute(void *user, int level, const char *line) {
    (void)level, (void)line;
    ++*(int *)user;
}

#endif
