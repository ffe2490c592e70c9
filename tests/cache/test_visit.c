/* cache/visit.c: every entry is shown once, in a fixed order, the invalid ones with their reason. */
#define _GNU_SOURCE
#include "cache/cache_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct seen {
    int good, bad;
    uint64_t bytes;
    char order[4096], reason[512];
    int64_t used_from, used_to;
    kn_status answer;
};

static kn_status look(void *user, const char *where, kn_status status, const void *key, size_t key_len,
                      const char *assembler, const kn_blob *blob, int64_t last_used, uint64_t bytes_on_disk) {
    struct seen *s = user;
    strcat(s->order, where);
    strcat(s->order, " ");
    s->bytes += bytes_on_disk;
    if (status != KN_OK) {
        ck_assert_ptr_null(blob);
        s->bad++;
        snprintf(s->reason, sizeof s->reason, "%.500s", kn_error_message());
        return KN_OK;
    }
    kn_buf text;
    kn_buf_init(&text, 1000);
    ck_assert_ok(kn_key_describe(key, key_len, &text));
    ck_assert_ptr_eq(strstr(text.data, "op=test\n"), text.data);
    kn_buf_free(&text);
    ck_assert_str_eq(assembler, assembler_a);
    ck_assert_uint_eq(blob->payload_len, 500);
    if (last_used != 0) ck_assert(last_used >= s->used_from && last_used <= time(NULL));
    s->good++;
    return s->answer;
}

START_TEST(directory_and_pack) {
    struct seen s = {.used_from = time(NULL) - 1}, again = s;
    kn_cache *c = open_cache(in_scratch("c"));
    for (int i = 0; i < 30; i++) publish_number(c, i, 500);
    kn_cache_close(c);
    ck_assert_ok(kn_cache_visit(in_scratch("c"), look, &s));
    ck_assert_int_eq(s.good, 30);
    ck_assert_int_eq(s.bad, 0);
    ck_assert_uint_eq(s.bytes, disk_usage(in_scratch("c")));
    ck_assert_ok(kn_cache_visit(in_scratch("c"), look, &again));
    ck_assert_str_eq(s.order, again.order);

    uint64_t n;
    const char *path = in_scratch("c");
    ck_assert_ok(kn_pack_merge(&path, 1, in_scratch("p"), &n));
    ck_assert_uint_eq(n, 30);
    memset(&s, 0, sizeof s);
    ck_assert_ok(kn_cache_visit(in_scratch("p"), look, &s));
    ck_assert_int_eq(s.good, 30);
    ck_assert_int_eq(strncmp(s.order, "64 ", 3), 0);
    char *end = s.order;
    for (unsigned long last = 0; *end != '\0' && strcmp(end, " ") != 0;) { /* a pack's own order */
        unsigned long offset = strtoul(end, &end, 10);
        ck_assert_uint_gt(offset, last);
        last = offset;
    }
    struct stat st;
    ck_assert_int_eq(stat(in_scratch("p"), &st), 0);
    ck_assert_uint_gt(s.bytes, 30 * 500);
    ck_assert_uint_lt(s.bytes, (uint64_t)st.st_size);
}
END_TEST

START_TEST(invalid_entries) {
    kn_cache *c = open_cache(in_scratch("c"));
    publish_number(c, 1, 500);
    char file[512], other[512];
    snprintf(file, sizeof file, "%s", only_file(in_scratch("c"), ""));
    publish_number(c, 2, 500);
    kn_cache_close(c);
    size_t len;
    unsigned char *bytes = slurp(file, &len);
    spew(file, bytes, len - 1);
    struct seen s = {0};
    ck_assert_ok(kn_cache_visit(in_scratch("c"), look, &s));
    ck_assert_int_eq(s.good, 1);
    ck_assert_int_eq(s.bad, 1);
    ck_assert(strstr(s.reason, "its header says") != NULL);
    /* A good entry under a wrong name. */
    snprintf(other, sizeof other, "%s", file);
    char *last = other + strlen(other) - 1;
    *last = *last == '0' ? '1' : '0';
    spew(other, bytes, len);
    unlink(file);
    memset(&s, 0, sizeof s);
    ck_assert_ok(kn_cache_visit(in_scratch("c"), look, &s));
    ck_assert_int_eq(s.good, 1);
    ck_assert_int_eq(s.bad, 1);
    ck_assert(strstr(s.reason, "own name would be") != NULL);
    ck_assert_int_eq(access(other, F_OK), 0); /* looking changes nothing */
    /* Merging leaves it out. */
    uint64_t n;
    const char *path = in_scratch("c");
    ck_assert_ok(kn_pack_merge(&path, 1, in_scratch("p"), &n));
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(warnings(), 1);
    free(bytes);
}
END_TEST

START_TEST(visitor_may_stop) {
    kn_cache *c = open_cache(in_scratch("c"));
    for (int i = 0; i < 5; i++) publish_number(c, i, 500);
    kn_cache_close(c);
    struct seen s = {.answer = KN_E_UNSUPPORTED};
    ck_assert_int_eq(kn_cache_visit(in_scratch("c"), look, &s), KN_E_UNSUPPORTED);
    ck_assert_int_eq(s.good, 1);
    ck_assert_fails(kn_cache_visit(in_scratch("nothing"), look, &s), KN_E_IO, "nothing");
    ck_assert_int_eq(mkdir(in_scratch("empty"), 0700), 0);
    ck_assert_ok(kn_cache_visit(in_scratch("empty"), look, &s));
    ck_assert_int_eq(s.good, 1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/visit");
    TCase *t = scratch_case(s, "all");
    tcase_add_test(t, directory_and_pack);
    tcase_add_test(t, invalid_entries);
    tcase_add_test(t, visitor_may_stop);
    return kn_run_suite(s);
}
