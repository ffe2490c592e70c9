/* cache/key.c: canonical form; every field and its place count, nothing else does (C-06, C-07, C-09). */
#define _GNU_SOURCE
#include "cache/cache_support.h"
#include "cache/entry.h"
#include "cache/store_dir.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

START_TEST(canonical_bytes) {
    kn_key k;
    kn_key_begin(&k);
    kn_key_add_text(&k, "op", "ab");
    kn_key_add(&k, "n", "\x01\x00", 2);
    ck_assert_ok(kn_key_status(&k));
    static const char want[] = "\x01\0\0\0"
                               "\x02\0\0\0op\x02\0\0\0ab"
                               "\x01\0\0\0n\x02\0\0\0\x01\0";
    ck_assert_uint_eq(k.bytes.len, sizeof want - 1);
    ck_assert_mem_eq(k.bytes.data, want, sizeof want - 1);
    kn_key_free(&k);
}
END_TEST

static bool same(const kn_key *a, const kn_key *b) {
    return a->bytes.len == b->bytes.len && memcmp(a->bytes.data, b->bytes.data, a->bytes.len) == 0;
}

/* Lists of fields whose concatenated text is equal. */
START_TEST(no_two_lists_collide) {
    static const char *const lists[][4] = {
        {"ab", "c", NULL, NULL}, {"a", "bc", NULL, NULL}, {"abc", "", NULL, NULL}, {"", "abc", NULL, NULL},
        {"a", "b", "c", ""},     {"a", "", "b", "c"},     {"", "", "ab", "c"},     {"ab", "c", "", ""},
    };
    enum { N = sizeof lists / sizeof *lists };
    kn_key keys[N];
    for (int i = 0; i < N; i++) {
        kn_key_begin(&keys[i]);
        kn_key_add_text(&keys[i], lists[i][0], lists[i][1]);
        if (lists[i][2]) kn_key_add_text(&keys[i], lists[i][2], lists[i][3]);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) ck_assert_msg(!same(&keys[i], &keys[j]), "lists %d and %d", i, j);
    for (int i = 0; i < N; i++) kn_key_free(&keys[i]);
}
END_TEST

/* What names a kernel: fields of the key, and the assembler's text. */
struct inputs {
    const char *field[6];
    const char *assembler;
};
static const char *const field_names[6] = {"format", "op", "template", "params", "target", "kind"};

static kn_digest name_of(const struct inputs *in) {
    kn_key k;
    kn_lookup q;
    kn_key_begin(&k);
    for (int i = 0; i < 6; i++) kn_key_add_text(&k, field_names[i], in->field[i]);
    ck_assert_ok(kn_key_status(&k));
    ck_assert_ok(kn_lookup_init(&q, k.bytes.data, k.bytes.len, in->assembler));
    kn_key_free(&k);
    return q.name_digest;
}

static const struct inputs base_inputs = {{"1", "gemm", "00ff", "BM=64;BN=128", "sm_90a", "cubin"},
                                          "nvjitlink 13.0 -O3"};

START_TEST(every_input_changes_the_name) {
    static const char *const other[6] = {"2", "gemm2", "00fe", "BM=64;BN=129", "sm_90", "ptx"};
    static const char *const assemblers[] = {"nvjitlink 13.1 -O3",
                                             "nvjitlink 13.0 -O2",
                                             "driver 580.65 -O3",
                                             "driver 580.66 -O3",
                                             "nvjitlink 13.0 -O3 -maxrregcount=64",
                                             ""};
    kn_digest seen[16];
    int n = 0;
    seen[n++] = name_of(&base_inputs);
    for (int i = 0; i < 6; i++) {
        struct inputs in = base_inputs;
        in.field[i] = other[i];
        seen[n++] = name_of(&in);
    }
    for (size_t i = 0; i < sizeof assemblers / sizeof *assemblers; i++) {
        struct inputs in = base_inputs;
        in.assembler = assemblers[i];
        seen[n++] = name_of(&in);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            ck_assert_msg(seen[i].hi != seen[j].hi || seen[i].lo != seen[j].lo, "variants %d and %d", i, j);
}
END_TEST

START_TEST(architectures_differ) {
    static const char *const archs[] = {"sm_80",   "sm_86",   "sm_89",   "sm_90",   "sm_90a", "sm_100a",
                                        "sm_100f", "sm_103a", "sm_120a", "sm_120f", "sm_121a"};
    enum { N = sizeof archs / sizeof *archs };
    kn_digest seen[N];
    for (int i = 0; i < N; i++) {
        struct inputs in = base_inputs;
        in.field[4] = archs[i];
        seen[i] = name_of(&in);
        for (int j = 0; j < i; j++) ck_assert_msg(seen[i].hi != seen[j].hi, "%s and %s", archs[i], archs[j]);
    }
}
END_TEST

/* Path, host, time, locale and environment do not reach the name: it is this constant on every machine. */
START_TEST(surroundings_do_not_matter) {
    char hex[33];
    kn_digest_hex(name_of(&base_inputs), hex);
    ck_assert_str_eq(hex, "501cb5b7f3e7f20ea283eafc0f7a2ca0");
    ck_assert_int_eq(chdir("/"), 0);
    setenv("LANG", "de_DE.UTF-8", 1);
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    setenv("HOSTNAME", "elsewhere", 1);
    setenv("KILN_CACHE_DIR", "/somewhere", 1);
    setenv("TZ", "Asia/Tokyo", 1);
    setlocale(LC_ALL, "");
    char again[33];
    kn_digest_hex(name_of(&base_inputs), again);
    ck_assert_str_eq(hex, again);
}
END_TEST

START_TEST(description) {
    kn_key k;
    kn_buf out;
    kn_buf_init(&out, 4096);
    kn_key_begin(&k);
    kn_key_add_text(&k, "op", "load balance");
    kn_key_add(&k, "digest", "\x00\xab\xff", 3);
    kn_key_add_text(&k, "", "");
    ck_assert_ok(kn_key_describe(k.bytes.data, k.bytes.len, &out));
    ck_assert_str_eq(out.data, "op=load balance\ndigest=0x00abff\n=\n");
    /* Cut anywhere but between fields it is refused, never read past. */
    int whole = 0;
    for (size_t len = 0; len < k.bytes.len; len++) {
        char *copy = malloc(len ? len : 1); /* exact size: a sanitizer sees a read past it */
        memcpy(copy, k.bytes.data, len);
        kn_buf_clear(&out);
        kn_status st = kn_key_describe(copy, len, &out);
        if (st == KN_OK)
            whole++;
        else
            ck_assert_int_eq(st, KN_E_FORMAT);
        free(copy);
    }
    ck_assert_int_eq(whole, 3); /* after the format, the first and the second field */
    kn_key_free(&k);
    kn_buf_free(&out);
}
END_TEST

START_TEST(too_long_is_sticky) {
    static char big[KN_KEY_MAX];
    kn_key k;
    kn_key_begin(&k);
    kn_key_add(&k, "big", big, sizeof big);
    kn_key_add_text(&k, "op", "x");
    ck_assert_fails(kn_key_status(&k), KN_E_ARG, "65535");
    kn_cache *c = open_cache("off");
    const kn_blob *b;
    ck_assert_fails(kn_cache_find(c, &k, "", 0, &b), KN_E_ARG, "65535");
    ck_assert_fails(kn_cache_publish(c, &k, "", "x", 1, "", 0, &b), KN_E_ARG, "65535");
    kn_cache_close(c);
    kn_key_free(&k);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/key");
    TCase *t = tcase_create("all");
    tcase_add_test(t, canonical_bytes);
    tcase_add_test(t, no_two_lists_collide);
    tcase_add_test(t, every_input_changes_the_name);
    tcase_add_test(t, architectures_differ);
    tcase_add_test(t, surroundings_do_not_matter);
    tcase_add_test(t, description);
    tcase_add_test(t, too_long_is_sticky);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
