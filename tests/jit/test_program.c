/* jit/program.c: the builders' bounds. What overflows is the first failure of the builder, and what planners write
 * after it goes nowhere. */
#include "jit/program.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"

static kn_program *program;
static kn_program_builder builder;

static void setup(void) {
    program = calloc(1, sizeof *program);
    builder = (kn_program_builder){.program = program};
}

static void teardown(void) {
    free(program);
}

START_TEST(kernels_and_launches) {
    int index;
    for (int i = 0; i < KN_MAX_KERNELS; i++) {
        kn_params *p = kn_add_kernel(&builder, "x.ptxt", &index);
        ck_assert_int_eq(index, i);
        ck_assert_ptr_eq(p, &program->kernel[i].params);
    }
    for (int i = 0; i < KN_MAX_LAUNCHES; i++)
        ck_assert_ptr_eq(kn_add_launch(&builder, i, 1, 2, 3), &program->launch[i]);
    ck_assert_int_eq(builder.status, KN_OK);
    ck_assert_uint_eq(program->launch[3].kernel, 3);
    ck_assert_uint_eq(program->launch[3].grid[2], 3);
    kn_params *lost = kn_add_kernel(&builder, "x.ptxt", &index);
    kn_params_set(lost, "N", 1);
    kn_bind_i64(kn_add_launch(&builder, 0, 1, 1, 1), 5);
    ck_assert_int_eq(builder.status, KN_E_INTERNAL);
    ck_assert_str_eq(kn_error_message(), "a program has more than 16 kernels");
    ck_assert_uint_eq(program->n_kernels, KN_MAX_KERNELS);
    ck_assert_uint_eq(program->n_launches, KN_MAX_LAUNCHES);
}
END_TEST

START_TEST(too_many_launches) {
    for (int i = 0; i <= KN_MAX_LAUNCHES; i++) kn_add_launch(&builder, 0, 1, 1, 1);
    ck_assert_int_eq(builder.status, KN_E_INTERNAL);
    ck_assert_str_eq(kn_error_message(), "a program has more than 16 launches");
}
END_TEST

START_TEST(a_name_that_is_too_long) {
    int index;
    char name[80];
    memset(name, 'x', sizeof name);
    name[63] = '\0';
    kn_add_kernel(&builder, name, &index);
    ck_assert_int_eq(builder.status, KN_OK);
    name[63] = 'x';
    name[64] = '\0';
    kn_add_kernel(&builder, name, &index);
    ck_assert_int_eq(builder.status, KN_E_INTERNAL);
}
END_TEST

START_TEST(workspace) {
    ck_assert_int_eq(kn_add_workspace(&builder, 1), 0);
    ck_assert_int_eq(kn_add_workspace(&builder, 256), 256);
    ck_assert_int_eq(kn_add_workspace(&builder, 0), 512);
    ck_assert_uint_eq(program->workspace_bytes, 512);
    ck_assert_int_eq(builder.status, KN_OK);
    ck_assert_int_eq(kn_add_workspace(&builder, UINT64_MAX), 0);
    ck_assert_int_eq(builder.status, KN_E_SHAPE);
    ck_assert_uint_eq(program->workspace_bytes, 512);
    ck_assert_int_eq(kn_add_workspace(&builder, 1), 0); /* the first failure stays */
    ck_assert_uint_eq(program->n_slices, 3);
}
END_TEST

START_TEST(slices_and_maps) {
    const kn_map_spec map = {.arg = 3};
    for (int i = 0; i < KN_MAX_MAPS; i++) ck_assert_int_eq(kn_add_map(&builder, &map), i);
    ck_assert_uint_eq(program->map[KN_MAX_MAPS - 1].arg, 3);
    ck_assert_int_eq(builder.status, KN_OK);
    ck_assert_int_eq(kn_add_map(&builder, &map), 0);
    ck_assert_str_eq(kn_error_message(), "a program has more than 48 tensor maps");
    builder.status = KN_OK;
    for (int i = 0; i <= KN_MAX_SLICES; i++) kn_add_workspace(&builder, 1);
    ck_assert_str_eq(kn_error_message(), "a program has more than 32 workspace slices");
    ck_assert_uint_eq(program->n_slices, KN_MAX_SLICES);
}
END_TEST

START_TEST(element_types) {
    ck_assert_uint_eq(kn_dtype_size(KN_BF16), 2);
    ck_assert_uint_eq(kn_dtype_size(KN_BOOL), 1);
    ck_assert_uint_eq(kn_dtype_size(KN_DTYPE_COUNT), 0);
    ck_assert_str_eq(kn_dtype_name(KN_I64), "i64");
    ck_assert_str_eq(kn_dtype_name(KN_DTYPE_COUNT), "?");
}
END_TEST

int main(void) {
    Suite *s = suite_create("jit/program");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, kernels_and_launches);
    tcase_add_test(t, too_many_launches);
    tcase_add_test(t, a_name_that_is_too_long);
    tcase_add_test(t, workspace);
    tcase_add_test(t, slices_and_maps);
    tcase_add_test(t, element_types);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
