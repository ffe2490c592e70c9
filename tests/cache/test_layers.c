/* cache/layers.c: what is published is found again, in memory, on disk, in packs; the order of the layers and `skip`;
 * counters. */
#define _GNU_SOURCE
#include "cache/cache_support.h"
#include "cache/store_dir.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEN = 30000 };

START_TEST(round_trip) {
    const char *dir = in_scratch("c");
    kn_cache *c = open_cache(dir);
    ck_assert(!has_number(c, 1, LEN));
    publish_number(c, 1, LEN);
    ck_assert(has_number(c, 1, LEN));
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.misses, 1);
    ck_assert_uint_eq(s.published, 1);
    ck_assert_uint_eq(s.hits_memory, 1);
    ck_assert_uint_eq(s.hits_dir, 0);
    ck_assert(s.dir_usable);
    ck_assert_str_eq(s.dir, dir);
    kn_cache_close(c);

    c = open_cache(dir);
    ck_assert(has_number(c, 1, LEN));
    ck_assert(has_number(c, 1, LEN));
    ck_assert(!has_number(c, 2, LEN));
    s = stats_of(c);
    ck_assert_uint_eq(s.hits_dir, 1);
    ck_assert_uint_eq(s.hits_memory, 1);
    ck_assert_uint_eq(s.misses, 1);
    ck_assert_uint_eq(s.rejected, 0);
    kn_cache_close(c);
    ck_assert_int_eq(count_files(dir, ""), 1);
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

static const kn_blob *find_text(kn_cache *c, uint32_t skip) {
    kn_key k = key_of(1);
    const kn_blob *b;
    ck_assert_ok(kn_cache_find(c, &k, assembler_a, skip, &b));
    kn_key_free(&k);
    return b;
}

static void check_text(kn_cache *c, uint32_t skip, const char *want) {
    const kn_blob *b = find_text(c, skip);
    if (!want) {
        ck_assert_msg(!b, "skip %u: \"%s\"", skip, b ? (const char *)b->payload : "");
        return;
    }
    ck_assert_msg(b != NULL, "skip %u: a miss", skip);
    ck_assert_str_eq(b->payload, want);
    kn_blob_release(b);
}

static void publish_text(kn_cache *c, const char *assembler, const char *text) {
    kn_key k = key_of(1);
    const kn_blob *b;
    ck_assert_ok(kn_cache_publish(c, &k, assembler, text, strlen(text), "", 0, &b));
    kn_blob_release(b);
    kn_key_free(&k);
}

static void pack_text(const char *path, const char *text) {
    kn_pack_writer *w;
    kn_key k = key_of(1);
    ck_assert_ok(kn_pack_create(path, &w));
    ck_assert_ok(kn_pack_add(w, k.bytes.data, k.bytes.len, "x", text, strlen(text), "", 0, NULL));
    ck_assert_ok(kn_pack_finish(w));
    kn_key_free(&k);
}

/* Two packs, a read-only directory with two assemblers' entries, the cache directory; skip passes over one a time. */
static kn_cache *open_all(void) {
    char list[2048];
    snprintf(list, sizeof list, "%s:%s:%s", in_scratch("p1"), in_scratch("ro"), in_scratch("p2"));
    const kn_cache_options o = {.dir = in_scratch("rw"), .read_only = list};
    kn_cache *c;
    ck_assert_ok(kn_cache_open(&o, &c));
    return c;
}

START_TEST(order_and_skip) {
    pack_text(in_scratch("p1"), "pack 1");
    pack_text(in_scratch("p2"), "pack 2");
    kn_cache *c = open_cache(in_scratch("ro"));
    publish_text(c, assembler_b, "other assembler's");
    kn_cache_close(c);
    c = open_cache(in_scratch("rw"));
    publish_text(c, assembler_a, "directory");
    kn_cache_close(c);

    c = open_all();
    check_text(c, 0, "pack 1");
    check_text(c, 1, "other assembler's");
    check_text(c, 2, "pack 2");
    check_text(c, 3, "directory");
    check_text(c, 4, NULL);
    check_text(c, 1000, NULL);
    kn_cache_close(c);

    /* What did not load is not offered again by the memory layer: the one that took its place is. */
    c = open_all();
    check_text(c, 0, "pack 1");
    check_text(c, 0, "pack 1");
    check_text(c, 3, "directory");
    check_text(c, 0, "directory");
    ck_assert_uint_eq(stats_of(c).hits_memory, 2);
    publish_text(c, assembler_a, "just built");
    check_text(c, 0, "just built");
    kn_cache_close(c);

    /* The right assembler's entry goes before another's in a read-only directory. */
    c = open_cache(in_scratch("ro"));
    publish_text(c, assembler_a, "this assembler's");
    kn_cache_close(c);
    c = open_all();
    check_text(c, 1, "this assembler's");
    check_text(c, 2, "pack 2");
    kn_cache_close(c);

    /* Nothing is left: the memory layer does not bring back what failed, the pack is read again. */
    const kn_cache_options o = {.dir = "off", .read_only = in_scratch("p1")};
    ck_assert_ok(kn_cache_open(&o, &c));
    check_text(c, 0, "pack 1");
    check_text(c, 1, NULL);
    check_text(c, 0, "pack 1");
    ck_assert_uint_eq(stats_of(c).hits_memory, 0);
    ck_assert_uint_eq(stats_of(c).hits_read_only, 2);
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

/* Of several foreign assemblers' entries in a read-only directory the first by name counts, on every machine. */
START_TEST(first_by_name) {
    enum { N = 12 };
    kn_key k = key_of(1);
    char first[33] = "", want[24] = "";
    kn_cache *c = open_cache(in_scratch("ro"));
    for (int i = 0; i < N; i++) {
        char assembler[24], name[33];
        kn_lookup q;
        snprintf(assembler, sizeof assembler, "assembler %d", i);
        publish_text(c, assembler, assembler);
        ck_assert_ok(kn_lookup_init(&q, k.bytes.data, k.bytes.len, assembler));
        kn_digest_hex(q.name_digest, name);
        if (i > 0 && strcmp(name, first) > 0) continue;
        memcpy(first, name, sizeof first);
        memcpy(want, assembler, sizeof want);
    }
    kn_cache_close(c);
    const kn_cache_options o = {.dir = "off", .read_only = in_scratch("ro")};
    ck_assert_ok(kn_cache_open(&o, &c));
    check_text(c, 0, want);
    kn_cache_close(c);
    /* A damaged one is passed over. */
    char file[600];
    snprintf(file, sizeof file, "%s", only_file(in_scratch("ro"), first));
    spew(file, "junk", 4);
    ck_assert_ok(kn_cache_open(&o, &c));
    const kn_blob *b = find_text(c, 0);
    ck_assert_ptr_nonnull(b);
    ck_assert_str_ne(b->payload, want);
    kn_blob_release(b);
    ck_assert_uint_eq(stats_of(c).rejected, 1);
    kn_cache_close(c);
    kn_key_free(&k);
}
END_TEST

/* A directory in the read-only list is not written to: no stamps, no quarantine, no new files. */
START_TEST(read_only_means_it) {
    kn_cache *c = open_cache(in_scratch("ro"));
    publish_text(c, assembler_a, "good");
    kn_cache_close(c);
    char file[512];
    snprintf(file, sizeof file, "%s", only_file(in_scratch("ro"), ""));
    size_t len;
    unsigned char *bytes = slurp(file, &len);
    bytes[len - 1] ^= 1;
    spew(file, bytes, len);
    free(bytes);
    const kn_cache_options o = {.dir = "off", .read_only = in_scratch("ro")};
    ck_assert_ok(kn_cache_open(&o, &c));
    check_text(c, 0, NULL);
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.rejected, 1);
    ck_assert_uint_eq(s.quarantined, 0);
    ck_assert_int_eq(warnings(), 1);
    publish_text(c, assembler_a, "new");
    check_text(c, 0, "new");
    kn_cache_close(c);
    ck_assert_str_eq(only_file(in_scratch("ro"), ""), file);
}
END_TEST

START_TEST(no_read_only_for_overridden_templates) {
    pack_text(in_scratch("p1"), "stale");
    setenv("KILN_CACHE_RO", in_scratch("p1"), 1);
    kn_cache_options o = {.dir = "off"};
    kn_cache *c;
    ck_assert_ok(kn_cache_open(&o, &c));
    check_text(c, 0, "stale");
    kn_cache_close(c);
    o.no_read_only = true;
    ck_assert_ok(kn_cache_open(&o, &c));
    check_text(c, 0, NULL);
    kn_cache_close(c);
}
END_TEST

/* Without any directory the memory layer still works, and holds at most its bound. */
START_TEST(memory_alone) {
    kn_cache *c = open_cache("off");
    enum { BIG = 1 << 20 };
    for (int i = 0; i < 80; i++) publish_number(c, i, BIG);
    ck_assert(has_number(c, 79, BIG));
    ck_assert(has_number(c, 30, BIG));
    ck_assert(!has_number(c, 10, BIG)); /* 64 MiB: the oldest are forgotten */
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.publish_failed, 0);
    ck_assert_uint_eq(s.published, 0);
    ck_assert(!s.dir_usable);
    ck_assert_str_eq(s.dir_reason, "switched off");
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0); /* it was asked for */
}
END_TEST

START_TEST(blobs_outlive_the_cache) {
    kn_cache *c = open_cache(in_scratch("c"));
    publish_text(c, assembler_a, "kept");
    const kn_blob *b = find_text(c, 0);
    kn_blob_retain(b);
    kn_blob_release(b);
    kn_cache_close(c);
    ck_assert_str_eq(b->payload, "kept");
    kn_blob_release(b);
    kn_blob_release(NULL);
    kn_cache_close(NULL);
}
END_TEST

START_TEST(malformed_options) {
    kn_cache *c;
    const kn_cache_options off = {.dir = "off"};
    setenv("KILN_CACHE_MAX", "1e30", 1);
    ck_assert_fails(kn_cache_open(&off, &c), KN_E_ARG, "KILN_CACHE_MAX");
    unsetenv("KILN_CACHE_MAX");
    setenv("KILN_CACHE_SHARED", "yes", 1);
    ck_assert_fails(kn_cache_open(&off, &c), KN_E_ARG, "KILN_CACHE_SHARED");
    unsetenv("KILN_CACHE_SHARED");
    ck_assert_ok(kn_cache_open(NULL, &c)); /* KILN_CACHE_DIR=off in the environment of all tests */
    kn_cache_close(c);
}
END_TEST

/* Many threads, one cache, few keys. */
static void *hammer(void *arg) {
    kn_cache *c = arg;
    for (int i = 0; i < 200; i++) {
        if (!has_number(c, i % 7, 500)) publish_number(c, i % 7, 500);
        if (i % 50 == 0) {
            uint64_t n, bytes;
            ck_assert_ok(kn_cache_trim(c, 0, &n, &bytes));
        }
    }
    return NULL;
}

START_TEST(threads) {
    pthread_t ids[4];
    kn_cache *c = open_cache(in_scratch("c"));
    for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_create(&ids[i], NULL, hammer, c), 0);
    for (int i = 0; i < 4; i++) pthread_join(ids[i], NULL);
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.hits_memory + s.hits_dir + s.misses, 800);
    ck_assert_uint_eq(s.rejected, 0);
    ck_assert_uint_eq(s.publish_failed, 0);
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/layers");
    TCase *t = scratch_case(s, "all");
    tcase_add_test(t, round_trip);
    tcase_add_test(t, order_and_skip);
    tcase_add_test(t, first_by_name);
    tcase_add_test(t, read_only_means_it);
    tcase_add_test(t, no_read_only_for_overridden_templates);
    tcase_add_test(t, memory_alone);
    tcase_add_test(t, blobs_outlive_the_cache);
    tcase_add_test(t, malformed_options);
    tcase_add_test(t, threads);
    return kn_run_suite(s);
}
