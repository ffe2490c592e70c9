/* cache/store_pack.c, cache/pack_writer.c: packs hold what was put in, survive truncation and damage as the format
 * says, and mean the same wherever they lie (C-13). */
#define _GNU_SOURCE
#include "cache/bytes.h"
#include "cache/cache_support.h"
#include "cache/store_pack.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEN = 700 };

static bool add_number(kn_pack_writer *w, int n) {
    kn_key k = key_of(n);
    unsigned char p[LEN];
    char meta[32];
    bool added;
    fill_payload(p, LEN, (unsigned)n);
    snprintf(meta, sizeof meta, "n=%d\n", n);
    ck_assert_ok(kn_pack_add(w, k.bytes.data, k.bytes.len, assembler_a, p, LEN, meta, strlen(meta), &added));
    kn_key_free(&k);
    return added;
}

/* A pack of kernels [first, end). */
static const char *make_pack(const char *name, int first, int end) {
    const char *path = in_scratch(name);
    kn_pack_writer *w;
    ck_assert_ok(kn_pack_create(path, &w));
    for (int i = first; i < end; i++) ck_assert(add_number(w, i));
    ck_assert_ok(kn_pack_finish(w));
    return path;
}

static kn_cache *open_on(const char *read_only) {
    const kn_cache_options o = {.dir = "off", .read_only = read_only};
    kn_cache *c;
    ck_assert_ok(kn_cache_open(&o, &c));
    return c;
}

START_TEST(round_trip) {
    const char *path = make_pack("p", 0, 300);
    kn_cache *c = open_on(path);
    for (int i = 0; i < 300; i++) ck_assert(has_number(c, i, LEN));
    ck_assert(!has_number(c, 300, LEN));
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.hits_read_only, 300);
    ck_assert_uint_eq(s.misses, 1);
    ck_assert(!s.dir_usable);
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0);
    ck_assert_int_eq(count_files(in_scratch(""), ""), 1);
}
END_TEST

/* By key alone: a machine without an assembler, or with another one, runs from the pack. */
START_TEST(assembler_does_not_matter) {
    kn_cache *c = open_on(make_pack("p", 0, 1));
    kn_key k = key_of(0);
    const kn_blob *b;
    ck_assert_ok(kn_cache_find(c, &k, "", 0, &b));
    ck_assert_ptr_nonnull(b);
    kn_blob_release(b);
    ck_assert_ok(kn_cache_find(c, &k, assembler_b, 0, &b));
    ck_assert_ptr_nonnull(b);
    kn_blob_release(b);
    kn_cache_close(c);
    kn_key_free(&k);
}
END_TEST

START_TEST(writer_is_atomic_and_skips_equal_keys) {
    const char *path = in_scratch("p");
    kn_pack_writer *w;
    ck_assert_ok(kn_pack_create(path, &w));
    ck_assert(add_number(w, 1));
    ck_assert(!add_number(w, 1));
    ck_assert(add_number(w, 2));
    ck_assert_int_eq(access(path, F_OK), -1);
    ck_assert_int_eq(count_files(in_scratch(""), ".t-"), 1);
    kn_pack_abandon(w);
    ck_assert_int_eq(count_files(in_scratch(""), ""), 0);
    kn_pack_abandon(NULL);

    spew(path, "what stood there", 16);
    ck_assert_ok(kn_pack_create(path, &w));
    ck_assert(add_number(w, 1));
    size_t len;
    unsigned char *old = slurp(path, &len);
    ck_assert_mem_eq(old, "what stood there", 16);
    free(old);
    ck_assert_ok(kn_pack_finish(w));
    ck_assert_int_eq(count_files(in_scratch(""), ""), 1);
    kn_cache *c = open_on(path);
    ck_assert(has_number(c, 1, LEN));
    kn_cache_close(c);
    ck_assert_fails(kn_pack_create(in_scratch("no/such/dir"), &w), KN_E_IO, "no/such");
}
END_TEST

START_TEST(bytes_depend_on_contents_alone) {
    size_t la, lb;
    unsigned char *a = slurp(make_pack("a", 0, 5), &la);
    usleep(2000);
    unsigned char *b = slurp(make_pack("b", 0, 5), &lb);
    ck_assert_uint_eq(la, lb);
    ck_assert_mem_eq(a, b, la);
    free(a);
    free(b);
}
END_TEST

START_TEST(empty_pack) {
    kn_cache *c = open_on(make_pack("p", 0, 0));
    ck_assert(!has_number(c, 0, LEN));
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

/* Open bytes as a pack. */
static kn_status open_bytes(const unsigned char *bytes, size_t len, kn_pack *p) {
    int fd = memfd_create("pack", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    return kn_pack_open_fd(fd, p);
}

/* How many of kernels [0, n) the bytes still give; each one that comes out must be right. */
static int count_good(const unsigned char *bytes, size_t len, int n) {
    kn_pack p;
    kn_status st = open_bytes(bytes, len, &p);
    if (st != KN_OK) {
        ck_assert_int_eq(st, KN_E_FORMAT);
        return -1;
    }
    int good = 0;
    for (int i = 0; i < n; i++) {
        kn_key k = key_of(i);
        kn_lookup q;
        kn_store_events events = {0};
        const kn_blob *b;
        unsigned char want[LEN];
        fill_payload(want, LEN, (unsigned)i);
        ck_assert_ok(kn_lookup_init(&q, k.bytes.data, k.bytes.len, ""));
        ck_assert_ok(kn_pack_find(&p, &q, &b, &events));
        if (b) {
            ck_assert_uint_eq(b->payload_len, LEN);
            ck_assert_mem_eq(b->payload, want, LEN);
            good++;
        }
        kn_blob_release(b);
        kn_key_free(&k);
    }
    kn_pack_close(&p);
    return good;
}

/* The truncation rule: all records that are whole. */
START_TEST(truncated_anywhere) {
    size_t len;
    unsigned char *bytes = slurp(make_pack("p", 0, 4), &len);
    uint64_t index = kn_get_u64(bytes + len - 64 + 16);
    /* Ends of the four records, from their headers. */
    size_t ends[4], at = 64;
    for (int i = 0; i < 4; i++) {
        size_t n;
        ck_assert_ok(kn_entry_length(bytes + at, &n));
        ends[i] = at + n;
        at = (at + n + 7) / 8 * 8;
    }
    ck_assert_uint_eq(at, index);
    for (size_t n = 0; n < len; n++) {
        int want = 0;
        while (want < 4 && ends[want] <= n) want++;
        int got = count_good(bytes, n, 4);
        ck_assert_msg(got == (n < 64 ? -1 : want), "%zu of %zu bytes: %d kernels, not %d", n, len, got, want);
    }
    ck_assert_int_eq(count_good(bytes, len, 4), 4);
    free(bytes);
}
END_TEST

/* A flipped bit costs at most what it hits: one kernel, or (in the header) the pack. */
START_TEST(flipped_bits) {
    enum { N = 4 };
    size_t len;
    unsigned char *bytes = slurp(make_pack("p", 0, N), &len);
    uint64_t index = kn_get_u64(bytes + len - 64 + 16);
    for (size_t i = 0; i < len; i++) {
        unsigned char keep = bytes[i];
        bytes[i] ^= (unsigned char)(1 << i % 8);
        int got = count_good(bytes, len, N);
        if (i < 64)
            ck_assert_msg(got == -1, "header byte %zu: %d", i, got);
        else if (i < index)
            ck_assert_msg(got == N - 1 || got == N, "record byte %zu: %d", i, got); /* N: padding */
        else
            ck_assert_msg(got == N, "index byte %zu: %d", i, got); /* by the truncation rule */
        bytes[i] = keep;
    }
    free(bytes);
}
END_TEST

START_TEST(trailing_junk_and_foreign_files) {
    size_t len;
    unsigned char *bytes = slurp(make_pack("p", 0, 3), &len);
    bytes = realloc(bytes, len + 100);
    memset(bytes + len, 0, 100);
    ck_assert_int_eq(count_good(bytes, len + 100, 3), 3); /* no footer at the end: scanned */
    free(bytes);
    spew(in_scratch("text"), "hello", 5);
    char list[2048];
    snprintf(list, sizeof list, "%s::%s:%s", in_scratch("text"), in_scratch("missing"), in_scratch("p"));
    watch_log();
    kn_cache *c = open_on(list);
    ck_assert_int_eq(warnings(), 2); /* one each */
    ck_assert(has_number(c, 2, LEN));
    kn_cache_close(c);
    ck_assert_int_eq(symlink(in_scratch("p"), in_scratch("link")), 0);
    watch_log();
    c = open_on(in_scratch("link"));
    ck_assert_int_eq(warnings(), 1);
    ck_assert(strstr(last_warning(), "symbolic link") != NULL);
    kn_cache_close(c);
}
END_TEST

START_TEST(truncated_pack_is_told) {
    size_t len;
    unsigned char *bytes = slurp(make_pack("p", 0, 3), &len);
    spew(in_scratch("p"), bytes, len - 1);
    free(bytes);
    kn_cache *c = open_on(in_scratch("p"));
    ck_assert_int_eq(warnings(), 1);
    ck_assert(strstr(last_warning(), "first 3 kernels") != NULL);
    ck_assert(has_number(c, 2, LEN));
    kn_cache_close(c);
}
END_TEST

static void reseal_footer(unsigned char *bytes, size_t len, size_t index, size_t index_len) {
    unsigned char *sealed = malloc(48 + index_len);
    memcpy(sealed, bytes + len - 64, 48);
    memcpy(sealed + 48, bytes + index, index_len);
    kn_digest sum = kn_hash(sealed, 48 + index_len);
    kn_put_u64(bytes + len - 64 + 48, sum.lo);
    kn_put_u64(bytes + len - 64 + 56, sum.hi);
    free(sealed);
}

/* An index whose checksum is right but whose rows point anywhere: what a hostile pack may hold. */
START_TEST(hostile_index) {
    size_t len;
    unsigned char *good = slurp(make_pack("p", 0, 2), &len);
    size_t index = (size_t)kn_get_u64(good + len - 64 + 16);
    const struct {
        size_t at;
        uint64_t value;
    } lies[] = {
        {index + 16, 0},
        {index + 16, 65},
        {index + 16, UINT64_MAX - 7},
        {index + 16, index},
        {index + 24, 0},
        {index + 24, UINT64_MAX},
        {index + 24, len},
        {index + 0, UINT64_MAX},
        {len - 64 + 24, 1},
        {len - 64 + 24, 1u << 30},
        {len - 64 + 24, UINT64_MAX},
        {len - 64 + 24, 1ull << 59},
        {len - 64 + 16, 1000},
        {len - 64 + 16, 0},
        {len - 64 + 16, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        unsigned char *bytes = malloc(len);
        memcpy(bytes, good, len);
        kn_put_u64(bytes + lies[i].at, lies[i].value);
        reseal_footer(bytes, len, index, 64);
        int got = count_good(bytes, len, 2);
        ck_assert_msg(got == 2, "lie %zu: %d", i, got); /* the records themselves are whole */
        free(bytes);
    }
    free(good);
}
END_TEST

/* Rows that lead to each other's records: the stored key decides, so nothing wrong is handed out. */
START_TEST(index_leads_elsewhere) {
    size_t len;
    unsigned char *bytes = slurp(make_pack("p", 0, 2), &len), place[16];
    size_t index = (size_t)kn_get_u64(bytes + len - 64 + 16);
    memcpy(place, bytes + index + 16, 16);
    memcpy(bytes + index + 16, bytes + index + 48, 16);
    memcpy(bytes + index + 48, place, 16);
    reseal_footer(bytes, len, index, 64);
    ck_assert_int_eq(count_good(bytes, len, 2), 0);
    spew(in_scratch("p"), bytes, len);
    kn_cache *c = open_on(in_scratch("p"));
    ck_assert(!has_number(c, 0, LEN));
    ck_assert_uint_eq(stats_of(c).rejected, 1);
    kn_cache_close(c);
    free(bytes);
}
END_TEST

START_TEST(merge_takes_the_first) {
    make_pack("a", 0, 3);
    make_pack("b", 2, 6);
    kn_cache *c = open_cache(in_scratch("dir"));
    for (int i = 5; i < 9; i++) publish_number(c, i, LEN);
    kn_key k = key_of(0);
    const kn_blob *b;
    ck_assert_ok(kn_cache_publish(c, &k, assembler_b, "other", 5, "", 0, &b));
    kn_blob_release(b);
    kn_cache_close(c);
    const char *paths[] = {in_scratch("a"), in_scratch("b"), in_scratch("dir")};
    uint64_t n;
    ck_assert_ok(kn_pack_merge(paths, 3, in_scratch("all"), &n));
    ck_assert_uint_eq(n, 9);
    c = open_on(in_scratch("all"));
    for (int i = 0; i < 9; i++) ck_assert(has_number(c, i, LEN)); /* kernel 0 is the first pack's */
    kn_cache_close(c);
    paths[1] = in_scratch("missing");
    ck_assert_fails(kn_pack_merge(paths, 3, in_scratch("none"), &n), KN_E_IO, "missing");
    ck_assert_int_eq(access(in_scratch("none"), F_OK), -1);
    ck_assert_int_eq(count_files(in_scratch(""), ".t-"), 0);
    kn_key_free(&k);
}
END_TEST

/* C-13: built in one place; used elsewhere, from a read-only directory of root's, by another user, without a write. */
static void use_relocated(const char *place, bool shared) {
    const kn_cache_options o = {.dir = "off", .read_only = place, .shared = shared};
    kn_cache *c;
    ck_assert_ok(kn_cache_open(&o, &c));
    for (int i = 0; i < 20; i++) ck_assert(has_number(c, i, LEN));
    ck_assert_uint_eq(stats_of(c).hits_read_only, 20);
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0);
}

START_TEST(relocated) {
    make_pack("built", 0, 20);
    kn_cache *c = open_cache(in_scratch("dir"));
    for (int i = 0; i < 20; i++) publish_number(c, i, LEN);
    kn_cache_close(c);
    ck_assert_int_eq(mkdir(in_scratch("image"), 0755), 0);
    ck_assert_int_eq(rename(in_scratch("built"), in_scratch("image/p.pack")), 0);
    ck_assert_int_eq(rename(in_scratch("dir"), in_scratch("image/dir")), 0);
    char command[1200];
    snprintf(command, sizeof command, "chmod -R a+rX,a-w %s && chmod a+rx %s && touch -d '2001-01-01' %s",
             in_scratch("image"), in_scratch(""), in_scratch("image/p.pack"));
    ck_assert_int_eq(system(command), 0);
    bool other = become_nobody(); /* root's places, another user; else our own, read-only */
    setenv("HOME", "/nonexistent", 1);
    ck_assert_int_eq(chdir("/"), 0);
    use_relocated(in_scratch("image/p.pack"), other);
    use_relocated(in_scratch("image/dir"), other);
    if (other) { /* root's places have to be asked for */
        c = open_on(in_scratch("image/p.pack"));
        ck_assert(!has_number(c, 1, LEN));
        ck_assert_int_eq(warnings(), 1);
        ck_assert(strstr(last_warning(), "KILN_CACHE_SHARED") != NULL);
        kn_cache_close(c);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/store_pack");
    TCase *t = scratch_case(s, "all");
    tcase_add_test(t, round_trip);
    tcase_add_test(t, assembler_does_not_matter);
    tcase_add_test(t, writer_is_atomic_and_skips_equal_keys);
    tcase_add_test(t, bytes_depend_on_contents_alone);
    tcase_add_test(t, empty_pack);
    tcase_add_test(t, truncated_anywhere);
    tcase_add_test(t, flipped_bits);
    tcase_add_test(t, trailing_junk_and_foreign_files);
    tcase_add_test(t, truncated_pack_is_told);
    tcase_add_test(t, hostile_index);
    tcase_add_test(t, index_leads_elsewhere);
    tcase_add_test(t, merge_takes_the_first);
    tcase_add_test(t, relocated);
    return kn_run_suite(s);
}
