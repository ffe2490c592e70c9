/* What is refused of tensors and options, and with which sentence. The operation here is made up, so that every kind of
 * rule is there. */
#include "base/status.h"
#include "ops/validate.h"
#include "ops_support.h"

enum { X, W, IDS, OFFSETS, FREE, Y, Z, N_ARGS };

static const kn_arg_info infos[N_ARGS] = {
    [X] = {"x", "bf16,f16,f32", "T,H", "rows", 'i'}, [W] = {"w", "=x", "E,H", "either", 'i'},
    [IDS] = {"ids", "int", "T,2", "rows", 'o'},      [OFFSETS] = {"offsets", "int", "E+1", "rows", 'o'},
    [FREE] = {"free", "any", "?", "any", 'o'},       [Y] = {"y", "bf16,f16,f32", "T,H", "rows", 'w'},
    [Z] = {"z", "f32", "T,E", "rows", 'w'},
};
#define FLOATS (1u << KN_BF16 | 1u << KN_F16 | 1u << KN_F32)
#define INTS (1u << KN_I32 | 1u << KN_I64)
static const kn_arg_rule rules[N_ARGS] = {
    [X] = {FLOATS, -1, 2, KN_LAYOUT_ROWS, {{'T', 0}, {'H', 0}}},
    [W] = {FLOATS, X, 2, KN_LAYOUT_COLS, {{'E', 0}, {'H', 0}}},
    [IDS] = {INTS, -1, 2, KN_LAYOUT_ROWS, {{'T', 0}, {0, 2}}},
    [OFFSETS] = {INTS, -1, 1, KN_LAYOUT_ROWS, {{'E', 1}}},
    [FREE] = {0x3fe, -1, -1, KN_LAYOUT_ANY, {{0}}},
    [Y] = {FLOATS, -1, 2, KN_LAYOUT_ROWS, {{'T', 0}, {'H', 0}}},
    [Z] = {1u << KN_F32, -1, 2, KN_LAYOUT_ROWS, {{'T', 0}, {'E', 0}}},
};
static const kn_option_info option[] = {
    {"mode", "0", "one,two", 'i', offsetof(kiln_gemm_options, math)},
};

static kn_status describe(const kn_call *call, kn_problem *p) {
    p->axis[0] = call->letter['T' - 'A'];
    return KN_OK;
}

static const kn_op op = {.name = "made_up",
                         .args = infos,
                         .n_args = N_ARGS,
                         .n_outputs = 2,
                         .rules = rules,
                         .option = option,
                         .n_options = 1,
                         .options_size = sizeof(kiln_gemm_options),
                         .describe = describe,
                         .may_alias = 1};

/* T = 4, H = 8, E = 3. */
static test_tensor x, w, ids, offsets, freely, y, z;
static const DLTensor *args[N_ARGS];
static kn_place_rule place;
static kn_call call;
static kn_options options;

/* Addresses that are never followed. */
static void *at(uintptr_t address) {
    return (void *)address;
}

static void setup(void) {
    memset(args, 0, sizeof args);
    args[X] = tensor(&x, at(0x10000), KT_BF16, SHAPE(4, 8));
    args[W] = tensor(&w, at(0x20000), KT_BF16, SHAPE(3, 8));
    args[Y] = tensor(&y, at(0x30000), KT_F32, SHAPE(4, 8));
    args[Z] = tensor(&z, at(0x40000), KT_F32, SHAPE(4, 3));
    place = (kn_place_rule){.device_type = 1};
    call.options = options.bytes;
}

static kn_status check(void) {
    return kn_validate_tensors(&op, args, N_ARGS, &place, &call);
}

START_TEST(accepts_the_plain_call) {
    ck_assert_ok(check());
    ck_assert_int_eq(call.letter['T' - 'A'], 4);
    ck_assert_int_eq(call.letter['H' - 'A'], 8);
    ck_assert_int_eq(call.letter['E' - 'A'], 3);
    ck_assert_int_eq(call.letter['K' - 'A'], -1);
    ck_assert_int_eq(call.tensor[X].stride[0], 8);
    ck_assert_int_eq(call.tensor[X].stride[1], 1);
    ck_assert_uint_eq(call.tensor[X].bytes, 64);
    ck_assert_int_eq(call.tensor[IDS].dtype, KN_DTYPE_NONE);
}
END_TEST

START_TEST(presence) {
    ck_assert_fails(kn_validate_tensors(&op, args, N_ARGS - 1, &place, &call), KN_E_ARG, "got 6 tensors; wanted 7");
    ck_assert_fails(kn_validate_tensors(&op, NULL, N_ARGS, &place, &call), KN_E_ARG, "array of tensors is NULL");
    args[W] = NULL;
    ck_assert_fails(check(), KN_E_ARG, "w is NULL; it is required");
    setup();
    args[Y] = NULL; /* an unwanted output */
    ck_assert_ok(check());
    args[Y] = &y.t;
    y.t.data = NULL;
    ck_assert_fails(check(), KN_E_ARG, "y: data is NULL, but it has elements");
    place.without_data = true;
    ck_assert_ok(check());
}
END_TEST

START_TEST(element_types) {
    x.t.dtype.lanes = 2;
    ck_assert_fails(check(), KN_E_DTYPE, "x: lanes is 2; wanted 1");
    setup();
    x.t.dtype = KT_I32;
    ck_assert_fails(check(), KN_E_DTYPE, "x: element type is i32; wanted one of bf16, f16, f32");
    setup();
    x.t.dtype = (DLDataType){5, 64, 1};
    ck_assert_fails(check(), KN_E_DTYPE, "x: element type is DLPack code 5 with 64 bits; wanted one of");
    setup();
    w.t.dtype = KT_F16;
    ck_assert_fails(check(), KN_E_DTYPE, "w: element type is f16, but x is bf16; wanted the same");
    setup();
    z.t.dtype = KT_BF16;
    ck_assert_fails(check(), KN_E_DTYPE, "z: element type is bf16; wanted one of f32");
    setup();
    args[FREE] = tensor(&freely, at(0x50001), KT_BOOL, SHAPE(3, 2, 1));
    ck_assert_ok(check());
    ck_assert_int_eq(call.tensor[FREE].dtype, KN_BOOL);
}
END_TEST

START_TEST(ranks_and_sizes) {
    x.t.ndim = 3;
    ck_assert_fails(check(), KN_E_SHAPE, "x: has 3 axes; wanted 2 (T,H)");
    x.t.ndim = 0;
    ck_assert_fails(check(), KN_E_SHAPE, "x: has 0 axes; wanted 2");
    setup();
    args[FREE] = tensor(&freely, at(0x50000), KT_I32, SHAPE(1, 1, 1, 1, 1, 1));
    ck_assert_fails(check(), KN_E_SHAPE, "free: has 6 axes; wanted 0 to 5");
    freely.t.ndim = 9;
    ck_assert_fails(check(), KN_E_SHAPE, "free: has 9 axes; wanted 0 to 5");
    freely.t.ndim = -1;
    ck_assert_fails(check(), KN_E_SHAPE, "free: has -1 axes");
    setup();
    x.t.shape = NULL;
    ck_assert_fails(check(), KN_E_ARG, "x: shape is NULL");
    setup();
    x.shape[1] = -8;
    ck_assert_fails(check(), KN_E_SHAPE, "x: axis 1 is -8; wanted 0 or more");
    setup();
    w.shape[1] = 100;
    ck_assert_fails(check(), KN_E_SHAPE, "w: axis 1 (H) is 100; x has H = 8");
    setup();
    args[IDS] = tensor(&ids, at(0x50000), KT_I64, SHAPE(4, 3));
    ck_assert_fails(check(), KN_E_SHAPE, "ids: axis 1 is 3; wanted 2");
    setup();
    args[OFFSETS] = tensor(&offsets, at(0x50000), KT_I32, SHAPE(3));
    ck_assert_fails(check(), KN_E_SHAPE, "offsets: axis 0 (E+1) is 3; w has E = 3");
    offsets.shape[0] = 0;
    ck_assert_fails(check(), KN_E_SHAPE, "offsets: axis 0 (E+1) is 0; wanted at least 1");
    offsets.shape[0] = 4;
    ck_assert_ok(check());
}
END_TEST

START_TEST(overflowing_extents) {
    x.shape[0] = y.shape[0] = z.shape[0] = (int64_t)1 << 40;
    x.shape[1] = w.shape[1] = y.shape[1] = (int64_t)1 << 40;
    ck_assert_fails(check(), KN_E_SHAPE, "x: its shape and strides reach beyond the address space");
    setup();
    strided(&x, STRIDE(INT64_MAX / 2, 1));
    ck_assert_fails(check(), KN_E_SHAPE, "x: its shape and strides reach beyond");
    setup();
    x.t.data = at(UINTPTR_MAX - 31); /* 64 bytes from here wrap around */
    ck_assert_fails(check(), KN_E_SHAPE, "x: its shape and strides reach beyond");
}
END_TEST

START_TEST(strides) {
    strided(&x, STRIDE(16, 1)); /* columns of a wider matrix */
    ck_assert_ok(check());
    ck_assert_uint_eq(call.tensor[X].bytes, (3 * 16 + 8) * 2);
    strided(&x, STRIDE(0, 1)); /* an expanded row */
    ck_assert_ok(check());
    ck_assert_uint_eq(call.tensor[X].bytes, 16);
    strided(&x, STRIDE(9, 1)); /* odd */
    ck_assert_ok(check());
    strided(&x, STRIDE(1, 4)); /* transposed */
    ck_assert_fails(check(), KN_E_ARG, "x: stride of the last axis is 4; wanted 1");
    strided(&x, STRIDE(-8, 1));
    ck_assert_fails(check(), KN_E_SHAPE, "x: stride of axis 0 is -8; wanted 0 or more");
    setup();
    strided(&w, STRIDE(1, 3)); /* "either" */
    ck_assert_ok(check());
    strided(&w, STRIDE(2, 3));
    ck_assert_fails(check(), KN_E_ARG, "w: stride of the last axis is 3; wanted 1 there or along the axis before");
    setup();
    args[FREE] = tensor(&freely, at(0x50000), KT_I32, SHAPE(3, 2, 5));
    strided(&freely, STRIDE(2, 7, 0));
    ck_assert_ok(check());
}
END_TEST

START_TEST(strides_of_single_rows_are_ignored) {
    x.shape[0] = y.shape[0] = z.shape[0] = 1;
    x.shape[1] = w.shape[1] = y.shape[1] = 5;
    for (int64_t s = -7; s <= 7; s += 7) {
        strided(&x, STRIDE(s, 1));
        ck_assert_ok(check());
        ck_assert_uint_eq(call.tensor[X].bytes, 10);
        ck_assert_int_eq(call.tensor[X].stride[0] * 2 % 16, 0); /* as copy engines want it */
    }
}
END_TEST

START_TEST(empty_tensors) {
    x.shape[0] = y.shape[0] = z.shape[0] = 0;
    x.t.data = y.t.data = z.t.data = NULL;
    strided(&x, STRIDE(-5, 77));
    ck_assert_ok(check());
    ck_assert_uint_eq(call.tensor[X].bytes, 0);
    ck_assert_int_eq(call.letter['T' - 'A'], 0);
    x.shape[1] = w.shape[1] = y.shape[1] = INT64_MAX; /* no extent, so none that overflows */
    w.shape[0] = z.shape[1] = 0;
    ck_assert_ok(check());
}
END_TEST

START_TEST(addresses) {
    x.t.byte_offset = 256;
    ck_assert_ok(check());
    ck_assert_ptr_eq(call.tensor[X].data, at(0x10100));
    x.t.byte_offset = 2;
    ck_assert_ok(check());
    ck_assert_ptr_eq(call.tensor[X].data, at(0x10002));
    x.t.byte_offset = 1;
    ck_assert_fails(check(), KN_E_ALIGN, "x: address 0x10001 is not a multiple of its element's 2 bytes");
    setup();
    z.t.byte_offset = 6;
    ck_assert_fails(check(), KN_E_ALIGN, "z: address 0x40006 is not a multiple of its element's 4 bytes");
}
END_TEST

START_TEST(devices) {
    x.t.device.device_type = 2;
    ck_assert_fails(check(), KN_E_DEVICE, "x: lives on CUDA device 0 (DLPack type 2); the context's device is CPU 0");
    place.device_type = 2;
    ck_assert_fails(check(), KN_E_DEVICE, "w: lives on CPU device 0 (DLPack type 1); the context's device is CUDA 0");
    w.t.device.device_type = y.t.device.device_type = z.t.device.device_type = 2;
    ck_assert_ok(check());
    x.t.device.device_type = 13; /* managed memory is the device's, too */
    ck_assert_ok(check());
    z.t.device.device_id = 99;
    ck_assert_fails(check(), KN_E_DEVICE, "z: lives on CUDA device 99");
    z.t.device = (DLDevice){3, 0};
    ck_assert_fails(check(), KN_E_DEVICE, "z: lives on CUDA host device 0");
    z.t.device.device_type = 10000;
    ck_assert_fails(check(), KN_E_DEVICE, "z: lives on ? device 0 (DLPack type 10000)");
}
END_TEST

START_TEST(outputs_may_not_overlap) {
    z.t.data = at(0x30000);
    ck_assert_fails(check(), KN_E_OVERLAP, "z at 0x30000 (48 bytes) shares memory with y at 0x30000 (128 bytes)");
    setup();
    z.t.data = at(0x1003c); /* the last element of x */
    ck_assert_fails(check(), KN_E_OVERLAP, "z at 0x1003c (48 bytes) shares memory with x at 0x10000 (64 bytes)");
    z.t.data = at(0x10040);
    ck_assert_ok(check());
    setup();
    strided(&y, STRIDE(0, 1));
    ck_assert_fails(check(), KN_E_OVERLAP, "y: an output with a stride that is smaller than what lies inside it");
    strided(&y, STRIDE(7, 1));
    ck_assert_fails(check(), KN_E_OVERLAP, "y: an output with a stride that is smaller");
}
END_TEST

START_TEST(an_output_may_be_an_input_only_where_it_says_so) {
    y.t.dtype = KT_BF16;
    y.t.data = at(0x10000);
    ck_assert_ok(check());  /* may_alias has bit 0 */
    y.t.data = at(0x10010); /* shifted by a row */
    ck_assert_fails(check(), KN_E_OVERLAP,
                    "y at 0x10010 (64 bytes) shares memory with x at 0x10000 (64 bytes); wanted "
                    "the same tensor or none of it");
    setup();
    y.t.data = at(0x10000); /* f32 over bf16 */
    ck_assert_fails(check(), KN_E_OVERLAP, "wanted the same tensor or none of it");
    setup();
    z.shape[1] = 8;
    w.shape[0] = 8;
    x.t.dtype = w.t.dtype = KT_F32;
    z.t.data = at(0x10000);
    ck_assert_fails(check(), KN_E_OVERLAP, "z at 0x10000 (128 bytes) shares memory with x");
}
END_TEST

START_TEST(alignment_and_layout_of_the_problem) {
    kn_problem p;
    options.common.accumulate = 3;
    ck_assert_ok(check());
    ck_assert_ok(kn_validate_problem(&call, &p));
    ck_assert_int_eq(p.align_log2[X], 4); /* rows of 16 bytes */
    ck_assert_int_eq(p.align_log2[Y], 5);
    ck_assert_int_eq(p.align_log2[Z], 2);
    ck_assert_int_eq(p.dtype[X], KN_BF16);
    ck_assert_int_eq(p.dtype[IDS], KN_DTYPE_NONE);
    ck_assert_int_eq(p.axis[0], 4);
    ck_assert_uint_eq(p.accumulate, 3);
    x.t.byte_offset = 2;
    strided(&w, STRIDE(1, 16));
    ck_assert_ok(check());
    ck_assert_ok(kn_validate_problem(&call, &p));
    ck_assert_int_eq(p.align_log2[X], 1);
    ck_assert_int_eq(p.layout[W], KN_LAYOUT_COLS);
    ck_assert_int_eq(p.align_log2[W], 5); /* 16 elements of 2 bytes */
    x.t.byte_offset = 0;
    strided(&x, STRIDE(0, 1)); /* one row for all of them */
    ck_assert_ok(check());
    ck_assert_ok(kn_validate_problem(&call, &p));
    ck_assert_int_eq(p.align_log2[X], 1);
    args[Y] = NULL; /* what is absent is not accumulated into */
    ck_assert_ok(check());
    ck_assert_ok(kn_validate_problem(&call, &p));
    ck_assert_uint_eq(p.accumulate, 2);
    options.common.accumulate = 0;
}
END_TEST

START_TEST(option_structs) {
    union {
        kiln_gemm_options o;
        unsigned char bytes[256];
    } given;
    kn_options seen;
    ck_assert_ok(kn_validate_options(&op, NULL, &seen));
    ck_assert_int_eq(seen.common.struct_size, op.options_size);
    memset(&given, 0, sizeof given);
    ck_assert_fails(kn_validate_options(&op, &given, &seen), KN_E_ABI,
                    "struct_size is 0; wanted sizeof(kiln_made_up_options)");
    given.o.common.struct_size = sizeof given.o;
    given.o.math = 1;
    ck_assert_ok(kn_validate_options(&op, &given, &seen));
    ck_assert_int_eq(((kiln_gemm_options *)seen.bytes)->math, 1);
    given.o.math = 2;
    ck_assert_fails(kn_validate_options(&op, &given, &seen), KN_E_ARG, "option mode is 2; wanted 0 to 1 (one,two)");
    given.o.common.struct_size = sizeof given.o.common; /* an older caller: the rest is not read */
    ck_assert_ok(kn_validate_options(&op, &given, &seen));
    ck_assert_int_eq(((kiln_gemm_options *)seen.bytes)->math, 0);
    given.o.math = 0;
    given.o.common.struct_size = sizeof given.bytes; /* a newer caller that uses nothing new */
    ck_assert_ok(kn_validate_options(&op, &given, &seen));
    given.bytes[255] = 1;
    ck_assert_fails(kn_validate_options(&op, &given, &seen), KN_E_ABI, "byte 255 of 256 is set");
    given.o.common.struct_size = UINT32_MAX;
    ck_assert_fails(kn_validate_options(&op, &given, &seen), KN_E_ABI, "struct_size is 4294967295");
    given.o.common.struct_size = sizeof given.o;
    given.o.common.flags = 2;
    ck_assert_fails(kn_validate_options(&op, &given, &seen), KN_E_ARG, "flags is 0x2");
    given.o.common.flags = 0;
    given.o.common.accumulate = 4;
    ck_assert_fails(kn_validate_options(&op, &given, &seen), KN_E_ARG, "accumulate is 0x4, but there are 2 outputs");
}
END_TEST

int main(void) {
    Suite *s = suite_create("validate");
    TCase *t = tcase_create("tensors");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, accepts_the_plain_call);
    tcase_add_test(t, presence);
    tcase_add_test(t, element_types);
    tcase_add_test(t, ranks_and_sizes);
    tcase_add_test(t, overflowing_extents);
    tcase_add_test(t, strides);
    tcase_add_test(t, strides_of_single_rows_are_ignored);
    tcase_add_test(t, empty_tensors);
    tcase_add_test(t, addresses);
    tcase_add_test(t, devices);
    tcase_add_test(t, outputs_may_not_overlap);
    tcase_add_test(t, an_output_may_be_an_input_only_where_it_says_so);
    tcase_add_test(t, alignment_and_layout_of_the_problem);
    tcase_add_test(t, option_structs);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
