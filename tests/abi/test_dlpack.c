/* kiln.h's declaration of DLTensor against DLPack's: same layout, same codes. */
#include "dlpack_layout.h"
#include "support/suite.h"

#include <dlpack/dlpack.h>

START_TEST(layouts_agree) {
    for (int i = 0; i < DLPACK_FIGURES; i++)
        ck_assert_msg(dlpack_layout_real[i] == dlpack_layout_own[i], "figure %d: DLPack %zu, kiln.h %zu", i,
                      dlpack_layout_real[i], dlpack_layout_own[i]);
}
END_TEST

/* The numbers that kiln.h's comments promise. */
START_TEST(codes_agree) {
    ck_assert_int_eq(kDLCPU, 1);
    ck_assert_int_eq(kDLCUDA, 2);
    ck_assert_int_eq(kDLCUDAHost, 3);
    ck_assert_int_eq(kDLCUDAManaged, 13);
    ck_assert_int_eq(kDLInt, 0);
    ck_assert_int_eq(kDLUInt, 1);
    ck_assert_int_eq(kDLFloat, 2);
    ck_assert_int_eq(kDLBfloat, 4);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dlpack");
    TCase *t = tcase_create("layout");
    tcase_add_test(t, layouts_agree);
    tcase_add_test(t, codes_agree);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
