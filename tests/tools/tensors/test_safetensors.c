/* tools/kiln/safetensors*.c: what is read, what is refused and why, what is written. */
#include "support/suite.h"
#include "tensors/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned char image[4096];

/* A file with this header text and `room` bytes behind it. */
static size_t make(const char *header, size_t room) {
    size_t n = strlen(header);
    memset(image, 0, sizeof image);
    for (int i = 0; i < 8; i++) image[i] = (unsigned char)(n >> 8 * i);
    memcpy(image + 8, header, n);
    for (size_t i = 0; i < room; i++) image[8 + n + i] = (unsigned char)i;
    return 8 + n + room;
}

START_TEST(reads_tensors_and_metadata) {
    size_t n =
        make("{\"__metadata__\":{\"op\":\"gemm\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[4,8]},"
             "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
             "\"none\":{\"dtype\":\"I64\",\"shape\":[0,3],\"data_offsets\":[8,8]},"
             "\"one\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}",
             9);
    kt_safetensors file;
    ck_assert_int_eq(kt_safetensors_parse(image, n, &file), KT_GOOD);
    ck_assert_uint_eq(file.n, 4);
    const kt_st_tensor *b = kt_safetensors_find(&file, "b");
    ck_assert_ptr_nonnull(b);
    ck_assert_str_eq(b->dtype->name, "bf16");
    ck_assert_int_eq(b->rank, 2);
    ck_assert_int_eq(b->shape[0], 2);
    ck_assert_uint_eq(b->bytes, 4);
    ck_assert_uint_eq(*(const unsigned char *)b->data, 4);
    ck_assert_uint_eq(kt_safetensors_find(&file, "none")->elements, 0);
    ck_assert_uint_eq(kt_safetensors_find(&file, "one")->elements, 1);
    ck_assert_ptr_null(kt_safetensors_find(&file, "c"));
    ck_assert_str_eq(kt_safetensors_metadata(&file, "op"), "gemm");
    ck_assert_ptr_null(kt_safetensors_metadata(&file, "options"));
    kt_safetensors_close(&file);
}
END_TEST

static const struct {
    const char *header;
    size_t room;
    const char *says;
} bad[] = {
    {"", 0, "does not start with {"},
    {"[]", 0, "does not start with {"},
    {"{", 0, "not valid JSON"},
    {"{}x", 0, "not valid JSON"},
    {"{\"a\":1}", 0, "not described by an object"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{}}", 4, "duplicate"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no string \"dtype\""},
    {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "has dtype \"F8_E4M3\""},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no list \"shape\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "whole number >= 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "whole number >= 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "has 9 dimensions"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
     "more than 2^64 elements"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
     "its shape and type need"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "no pair \"data_offsets\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "has bytes 4 to 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 4, "has bytes 4 to 8; the file has 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "has 4 bytes; its shape and type need 8"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "unknown field \"x\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
     "\"data_offsets\":[2,6]}}",
     6, "overlap"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}", 5, "1 bytes before tensor \"a\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "last 1 bytes"},
    {"{\"__metadata__\":{\"op\":1}}", 0, "value of \"op\" is not a string"},
    {"{\"__metadata__\":[]}", 0, "\"__metadata__\" is not an object"},
};

START_TEST(refuses_and_says_why) {
    kt_safetensors file;
    size_t n = make(bad[_i].header, bad[_i].room);
    int code = kt_safetensors_parse(image, n, &file);
    ck_assert_msg(code == KT_USAGE, "accepted: %s", bad[_i].header);
    ck_assert_msg(strstr(kt_message(), bad[_i].says) != NULL, "%s: says \"%s\", wanted \"%s\"", bad[_i].header,
                  kt_message(), bad[_i].says);
    ck_assert_ptr_null(file.tensor);
}
END_TEST

START_TEST(refuses_bad_lengths) {
    kt_safetensors file;
    for (size_t n = 0; n < 8; n++) ck_assert_int_eq(kt_safetensors_parse(image, n, &file), KT_USAGE);
    size_t n = make("{}", 0);
    ck_assert_int_eq(kt_safetensors_parse(image, n, &file), KT_GOOD);
    kt_safetensors_close(&file);
    image[0] = 3; /* longer than the file */
    ck_assert_int_eq(kt_safetensors_parse(image, n, &file), KT_USAGE);
    ck_assert_ptr_nonnull(strstr(kt_message(), "ends inside its header"));
    memset(image, 0xFF, 8); /* longer than any header may be */
    ck_assert_int_eq(kt_safetensors_parse(image, n, &file), KT_USAGE);
    ck_assert_ptr_nonnull(strstr(kt_message(), "more than"));
}
END_TEST

START_TEST(writes_what_it_reads) {
    char path[] = "/tmp/kiln_test_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    float f[3] = {1, 2, 3};
    unsigned char byte = 7;
    int64_t wide[2] = {-1, 1};
    kt_st_tensor out[] = {
        {"out.a", kt_dtype_named("f32"), 2, {3, 1}, 3, sizeof f, f},
        {"in.b", kt_dtype_named("u8"), 1, {1}, 1, 1, &byte},
        {"in.c", kt_dtype_named("i64"), 1, {2}, 2, sizeof wide, wide},
        {"in.d", kt_dtype_named("f16"), 2, {0, 4}, 0, 0, f},
    };
    json_t *metadata = json_pack("{s:s}", "op", "x");
    ck_assert_int_eq(kt_safetensors_write(path, out, 4, metadata), KT_GOOD);
    json_decref(metadata);
    kt_safetensors file;
    ck_assert_msg(kt_safetensors_open(path, &file) == KT_GOOD, "%s", kt_message());
    ck_assert_uint_eq(file.n, 4);
    ck_assert_str_eq(kt_safetensors_metadata(&file, "op"), "x");
    for (size_t i = 0; i < 4; i++) {
        const kt_st_tensor *t = kt_safetensors_find(&file, out[i].name);
        ck_assert_ptr_nonnull(t);
        ck_assert_ptr_eq(t->dtype, out[i].dtype);
        ck_assert_int_eq(t->rank, out[i].rank);
        ck_assert_mem_eq(t->data, out[i].data, t->bytes);
        ck_assert_uint_eq((uintptr_t)t->data % (t->dtype->bits / 8u), 0); /* aligned to its element */
    }
    kt_safetensors_close(&file);
    unlink(path);
    ck_assert_int_eq(kt_safetensors_open(path, &file), KT_ENVIRONMENT);
    ck_assert_int_eq(kt_safetensors_write("/nowhere/x", out, 4, NULL), KT_ENVIRONMENT);
}
END_TEST

START_TEST(converts_elements) {
    static const struct {
        const char *dtype;
        uint64_t raw;
        double value;
    } rows[] = {
        {"bf16", 0x3F80, 1},       {"bf16", 0xC040, -3},      {"f16", 0x3C00, 1},
        {"f16", 0x0001, 0x1p-24},  {"f16", 0x8400, -0x1p-14}, {"f16", 0x7BFF, 65504},
        {"f16", 0x7C00, INFINITY}, {"f32", 0x3F000000, 0.5},  {"f64", 0x3FF8000000000000, 1.5},
        {"i64", UINT64_MAX, -1},   {"i32", 0xFFFFFFFE, -2},   {"i16", 0x8000, -32768},
        {"i8", 0x80, -128},        {"u8", 0x80, 128},         {"bool", 1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(kt_element(kt_dtype_named(rows[i].dtype), &rows[i].raw, 0) == rows[i].value, "%s %llx",
                      rows[i].dtype, (unsigned long long)rows[i].raw);
    ck_assert(isnan(kt_element(kt_dtype_named("f16"), &(uint16_t){0x7E00}, 0)));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("safetensors");
    TCase *t = tcase_create("files");
    tcase_add_test(t, reads_tensors_and_metadata);
    tcase_add_loop_test(t, refuses_and_says_why, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, refuses_bad_lengths);
    tcase_add_test(t, writes_what_it_reads);
    tcase_add_test(t, converts_elements);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
