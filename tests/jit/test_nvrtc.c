/* jit/nvrtc: CUDA C text to PTX, with the real NVRTC. Without one the tests are skipped, and fail under CI=true. */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"
#include "jit/assemble.h"
#include "support/cuda_c.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

static const char activation[] = "extern \"C\" __device__ float act(float x, float y) { return x * y + 1.0f; }\n"
                                 "extern \"C\" __global__ void run(float *p) { p[0] = act(p[1], p[2]); }\n";

START_TEST(compiles) {
    if (!kn_have_nvrtc()) return;
    uint32_t version = 0;
    const char *path = NULL;
    ck_assert_ok(kn_nvrtc_id(&version, &path));
    ck_assert_uint_ge(version, 12000);
    ck_assert_int_eq(path[0], '/');
    char *ptx = NULL;
    size_t len = 0;
    ck_assert_ok(kn_nvrtc_compile(activation, "act.cu", "sm_90a", &ptx, &len));
    ck_assert_uint_eq(len, strlen(ptx));
    ck_assert_ptr_nonnull(strstr(ptx, ".target sm_90a"));
    ck_assert_ptr_nonnull(strstr(ptx, ".entry run"));
    ck_assert_ptr_nonnull(strstr(ptx, "mul.rn.f32")); /* no contraction */
    ck_assert_ptr_nonnull(strstr(ptx, "add.rn.f32"));
    ck_assert_ptr_null(strstr(ptx, "fma"));
    kn_free(ptx);
    ck_assert_ok(kn_nvrtc_compile(activation, "act.cu", "sm_80", &ptx, &len));
    ck_assert_ptr_nonnull(strstr(ptx, ".target sm_80"));
    kn_free(ptx);
}
END_TEST

START_TEST(errors_quote_the_log) {
    if (!kn_have_nvrtc()) return;
    char *ptx = (char *)1;
    size_t len = 1;
    ck_assert_fails(kn_nvrtc_compile("__device__ float f(float x) { return y; }", "mine.cu", "sm_90a", &ptx, &len),
                    KN_E_ASSEMBLE, "mine.cu(1): error: identifier \"y\" is undefined");
    ck_assert_ptr_null(ptx);
    ck_assert_uint_eq(len, 0);
    ck_assert_fails(kn_nvrtc_compile(activation, "act.cu", "compute_90", &ptx, &len), KN_E_ARG, "compute_90");
    ck_assert_fails(kn_nvrtc_compile(activation, "act.cu", "sm_7", &ptx, &len), KN_E_ASSEMBLE, "act.cu");
}
END_TEST

START_TEST(switched_off) {
    char *ptx = NULL;
    size_t len = 0;
    setenv("KILN_LIBNVRTC", "off", 1);
    ck_assert_fails(kn_nvrtc_compile(activation, "act.cu", "sm_90a", &ptx, &len), KN_E_UNAVAILABLE, "KILN_LIBNVRTC");
    uint32_t version = 1;
    const char *path = "x";
    ck_assert_int_eq(kn_nvrtc_id(&version, &path), KN_E_UNAVAILABLE);
    ck_assert_ptr_null(path);
}
END_TEST

#ifdef KN_FAULT_INJECTION
START_TEST(out_of_memory) {
    if (!kn_have_nvrtc()) return;
    char *ptx;
    size_t len;
    kn_fault_arm(1);
    kn_status st = kn_nvrtc_compile(activation, "act.cu", "sm_90a", &ptx, &len);
    kn_fault_arm(0);
    ck_assert_int_eq(st, KN_E_NOMEM);
    ck_assert_ptr_null(ptx);
    kn_fault_arm(1);
    st = kn_nvrtc_compile("nonsense", "act.cu", "sm_90a", &ptx, &len);
    kn_fault_arm(0);
    ck_assert_int_eq(st, KN_E_NOMEM);
}
END_TEST
#endif

int main(void) {
    Suite *s = suite_create("jit/nvrtc");
    TCase *t = tcase_create("all");
    tcase_add_test(t, compiles);
    tcase_add_test(t, errors_quote_the_log);
    tcase_add_test(t, switched_off);
#ifdef KN_FAULT_INJECTION
    tcase_add_test(t, out_of_memory);
#endif
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
