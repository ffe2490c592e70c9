/* cache/hash.c: XXH3-128 as published, in one piece or streamed; hexadecimal form. */
#include "cache/cache_support.h"

#include <string.h>

static void check_hex(const void *data, size_t len, const char *want) {
    char hex[33];
    kn_digest_hex(kn_hash(data, len), hex);
    ck_assert_str_eq(hex, want);
}

/* From the published implementation (xxhsum -H2). */
START_TEST(known_values) {
    check_hex("", 0, "99aa06d3014798d86001c324468d497f");
    check_hex("a", 1, "a96faf705af16834e6c632b61e964e1f");
    check_hex("abc", 3, "06b05ab6733a618578af5f94892f3950");
}
END_TEST

START_TEST(streaming_equals_one_piece) {
    unsigned char data[3000];
    fill_payload(data, sizeof data, 1);
    for (size_t len = 0; len <= sizeof data; len += len < 300 ? 1 : 173) {
        kn_digest whole = kn_hash(data, len);
        for (size_t step = 1; step <= len + 1; step = step * 3 + 1) {
            kn_hasher *h = NULL;
            ck_assert_ok(kn_hasher_new(&h));
            for (size_t at = 0; at < len; at += step) kn_hasher_add(h, data + at, len - at < step ? len - at : step);
            kn_digest streamed = kn_hasher_end(h);
            ck_assert_msg(streamed.hi == whole.hi && streamed.lo == whole.lo, "length %zu, step %zu", len, step);
        }
    }
}
END_TEST

START_TEST(hex_digits) {
    char hex[33];
    kn_digest_hex((kn_digest){.hi = 0x0123456789abcdefu, .lo = 1}, hex);
    ck_assert_str_eq(hex, "0123456789abcdef0000000000000001");
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/hash");
    TCase *t = tcase_create("all");
    tcase_add_test(t, known_values);
    tcase_add_test(t, streaming_equals_one_piece);
    tcase_add_test(t, hex_digits);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
