/* The table of architectures and the .version rule. */
#include "jit/target.h"
#include "support/suite.h"

#include <string.h>

START_TEST(by_name) {
    const kn_target *t = NULL;
    ck_assert_ok(kn_target_by_name("sm_90a", &t));
    ck_assert_uint_eq(t->cc, 90);
    ck_assert_uint_eq(t->min_ptx, 80);
    ck_assert(t->wgmma && t->tma && t->cluster);
    ck_assert_uint_eq(t->smem_per_block, 232448);
    ck_assert_ok(kn_target_by_name("sm_80", &t));
    ck_assert_uint_eq(t->min_ptx, 70);
    ck_assert(!t->wgmma && !t->tma && !t->cluster);
    ck_assert_uint_eq(t->smem_per_block, 166912);
    ck_assert_fails(kn_target_by_name("sm_70", &t), KN_E_UNSUPPORTED,
                    "unknown architecture \"sm_70\": known are sm_80, sm_86");
    ck_assert_fails(kn_target_by_name("sm_9", &t), KN_E_UNSUPPORTED, "sm_121");
    ck_assert_fails(kn_target_by_name("", &t), KN_E_UNSUPPORTED, "unknown");
}
END_TEST

START_TEST(table) {
    ck_assert_int_gt(kn_target_count(), 5);
    for (int i = 0; i < kn_target_count(); i++) {
        const kn_target *t = kn_target_at(i), *same = NULL;
        ck_assert_ok(kn_target_by_name(t->name, &same));
        ck_assert_ptr_eq(t, same);
        ck_assert(t->wgmma == (strcmp(t->name, "sm_90a") == 0)); /* wgmma exists there and nowhere else */
        ck_assert(t->tma == (t->cc >= 90) && t->cluster == t->tma);
        ck_assert_uint_lt(t->smem_per_block, t->smem_per_sm);
    }
    ck_assert_ptr_null(kn_target_at(-1));
    ck_assert_ptr_null(kn_target_at(kn_target_count()));
}
END_TEST

START_TEST(for_device) {
    const kn_target *t = NULL;
    ck_assert_ok(kn_target_for_device(9, 0, &t));
    ck_assert_str_eq(t->name, "sm_90a");
    ck_assert_ok(kn_target_for_device(8, 9, &t));
    ck_assert_str_eq(t->name, "sm_89");
    ck_assert_ok(kn_target_for_device(12, 1, &t));
    ck_assert_str_eq(t->name, "sm_121");
    ck_assert(!t->wgmma);
    ck_assert_fails(kn_target_for_device(7, 5, &t), KN_E_UNSUPPORTED, "compute capability 7.5");
    ck_assert_fails(kn_target_for_device(9, 1, &t), KN_E_UNSUPPORTED, "compute capability 9.1");
    ck_assert_fails(kn_target_for_device(13, 0, &t), KN_E_UNSUPPORTED, "sm_80");
    ck_assert_fails(kn_target_for_device(7, 10, &t), KN_E_UNSUPPORTED, "7.10");
}
END_TEST

START_TEST(version) {
    const kn_target *a = NULL, *b = NULL;
    uint32_t v = 0;
    ck_assert_ok(kn_target_by_name("sm_90a", &a));
    ck_assert_ok(kn_target_by_name("sm_80", &b));
    ck_assert_ok(kn_ptx_version(a, 70, 90, &v));
    ck_assert_uint_eq(v, 80);
    ck_assert_ok(kn_ptx_version(a, 81, 81, &v));
    ck_assert_uint_eq(v, 81);
    ck_assert_ok(kn_ptx_version(b, 70, 0, &v)); /* no assembler yet: no cap */
    ck_assert_uint_eq(v, 70);
    ck_assert_fails(kn_ptx_version(a, 81, 80, &v), KN_E_UNSUPPORTED,
                    "needs PTX 8.1 on sm_90a, but the assembler or driver knows PTX up to 8.0");
    ck_assert_fails(kn_ptx_version(a, 70, 78, &v), KN_E_UNSUPPORTED, "needs PTX 8.0");
    ck_assert_uint_eq(kn_ptx_version_of_cuda(13000), 90);
    ck_assert_uint_eq(kn_ptx_version_of_cuda(12060), 85);
    ck_assert_uint_eq(kn_ptx_version_of_cuda(12050), 85);
    ck_assert_uint_eq(kn_ptx_version_of_cuda(12040), 84);
    ck_assert_uint_eq(kn_ptx_version_of_cuda(11080), 78);
    ck_assert_uint_eq(kn_ptx_version_of_cuda(10020), 0);
    ck_assert_uint_ge(kn_ptx_version_of_cuda(99000), 91);
    ck_assert_int_eq(kn_driver_for_cubin(12080), 12000);
    ck_assert_int_eq(kn_driver_for_cubin(13000), 13000);
}
END_TEST

int main(void) {
    Suite *s = suite_create("target");
    TCase *t = tcase_create("target");
    tcase_add_test(t, by_name);
    tcase_add_test(t, table);
    tcase_add_test(t, for_device);
    tcase_add_test(t, version);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
