/* The cache under failing calls. Named ones: what NFS, full disks and races answer (C-04). And every single allocation
 * and file call in turn: no crash, no leak (under the address sanitizer), nothing wrong ever handed out, and the next
 * call works. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/file.h"
#include "cache/cache_support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEN = 3000 };

/* ---- named calls ------------------------------------------------------------------------------------------------- */

/* Publish with the rules in force: the caller has its own bytes, whatever the disk says. */
static kn_cache_stats publish_forced(const char *dir) {
    kn_cache *c = open_cache(dir);
    publish_number(c, 1, LEN);
    ck_assert(has_number(c, 1, LEN));
    kn_cache_stats s = stats_of(c);
    kn_cache_close(c);
    return s;
}

static bool on_disk(const char *dir) {
    kn_cache *c = open_cache(dir);
    bool there = has_number(c, 1, LEN);
    ck_assert_uint_eq(stats_of(c).rejected, 0);
    kn_cache_close(c);
    return there;
}

/* The race is lost, and the winner's file is not visible (an NFS client may remember "does not exist" for a minute). */
START_TEST(lost_race_and_winner_unseen) {
    const char *dir = in_scratch("c");
    kn_fault_force("linkat", 1, EEXIST);
    kn_cache_stats s = publish_forced(dir);
    ck_assert_uint_eq(s.publish_failed, 0);
    ck_assert_int_eq(count_files(dir, ""), 0);
    ck_assert_int_eq(warnings(), 0);
    kn_fault_force_clear();
    ck_assert(!on_disk(dir));
    publish_forced(dir);
    ck_assert(on_disk(dir));
}
END_TEST

/* File systems without hard links: rename without replacing, or plain rename. */
START_TEST(no_hard_links) {
    const int link_errors[] = {EPERM, EOPNOTSUPP, ENOSYS, EMLINK};
    const char *dir = in_scratch("c");
    kn_fault_force("linkat", 0, link_errors[_i % 4]);
    if (_i >= 4) kn_fault_force("renameat2", 0, _i % 2 ? EINVAL : ENOSYS);
    kn_cache_stats s = publish_forced(dir);
    ck_assert_uint_eq(s.published, 1);
    ck_assert_int_eq(count_files(dir, ""), 1);
    s = publish_forced(dir); /* the name is taken: either answer is right, nothing is left behind */
    ck_assert_uint_eq(s.publish_failed, 0);
    kn_fault_force_clear();
    ck_assert_int_eq(count_files(dir, ""), 1);
    ck_assert(on_disk(dir));
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

/* Calls that may fail in any way while publishing: own bytes, at most one warning, at most a left temporary. */
static const struct {
    const char *call;
    int err;
    bool published;
} publish_faults[] = {
    {"renameat2", ESTALE, true}, /* not called while links work */
    {"unlinkat", EBUSY, true},   {"unlinkat", ENOENT, true}, {"unlinkat", ESTALE, true}, {"mkdirat", EROFS, false},
    {"mkdirat", EDQUOT, false},  {"mkdirat", EEXIST, false}, {"mkdir", EACCES, false},   {"openat", ESTALE, false},
    {"openat", EMFILE, false},   {"openat", EIO, false},     {"openat", EEXIST, false},  {"write", ENOSPC, false},
    {"write", EDQUOT, false},    {"write", EIO, false},      {"close", EIO, false},      {"close", EDQUOT, false},
    {"fstat", EIO, false},       {"fstat", ESTALE, false},   {"linkat", EIO, false},     {"linkat", ESTALE, false},
    {"linkat", ENOENT, false},   {"linkat", EBUSY, false},   {"linkat", ENOSPC, false},  {"readdir", EIO, true},
    {"fdopendir", EIO, true},    {"fstatat", EIO, true},     {"fstatat", ESTALE, true},
};

START_TEST(publishing_survives) {
    const char *dir = in_scratch("c");
    kn_cache *c = open_cache(dir);
    kn_fault_force(publish_faults[_i].call, 0, publish_faults[_i].err);
    if (strcmp(publish_faults[_i].call, "linkat") == 0) { /* and so do all the ways around it */
        kn_fault_force("renameat2", 0, publish_faults[_i].err);
        kn_fault_force("renameat", 0, publish_faults[_i].err);
    }
    for (int i = 1; i < 4; i++) {
        publish_number(c, i, LEN);
        ck_assert(has_number(c, i, LEN));
    }
    kn_cache_stats s = stats_of(c);
    kn_fault_force_clear();
    ck_assert_uint_eq(s.published, publish_faults[_i].published ? 3 : 0);
    ck_assert_uint_eq(s.publish_failed, publish_faults[_i].published ? 0 : 3);
    ck_assert_int_eq(warnings(), publish_faults[_i].published ? 0 : 1);
    if (!publish_faults[_i].published) ck_assert_int_eq(count_files(dir, ""), 0);
    publish_number(c, 4, LEN); /* the disk is well again */
    kn_cache_close(c);
    c = open_cache(dir);
    ck_assert(has_number(c, 4, LEN));
    ck_assert_int_eq(has_number(c, 1, LEN), publish_faults[_i].published);
    ck_assert_uint_eq(stats_of(c).rejected, 0);
    kn_cache_close(c);
}
END_TEST

/* Calls that fail while looking something up: a miss, and the good entry stays where it is. */
static const struct {
    const char *call;
    int err;
    bool hit;
} find_faults[] = {
    {"openat", ESTALE, false}, {"openat", EACCES, false}, {"openat", EMFILE, false},
    {"openat", ENOENT, false}, {"fstat", ESTALE, false},  {"read", EIO, false},
    {"read", ESTALE, false},   {"close", EIO, true},      {"futimens", EROFS, true},
};

START_TEST(finding_survives) {
    const char *dir = in_scratch("c");
    publish_forced(dir);
    kn_cache *c = open_cache(dir);
    kn_fault_force(find_faults[_i].call, 0, find_faults[_i].err);
    bool hit = has_number(c, 1, LEN);
    kn_fault_force_clear();
    ck_assert_int_eq(hit, find_faults[_i].hit);
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.rejected + s.quarantined, 0);
    ck_assert_uint_eq(s.hits_dir + s.misses, 1);
    kn_cache_close(c);
    ck_assert_int_le(warnings(), 1);
    ck_assert(on_disk(dir));
}
END_TEST

/* A bad entry that can neither be moved nor removed is a miss all the same. */
START_TEST(quarantine_survives) {
    const char *dir = in_scratch("c");
    publish_forced(dir);
    spew(only_file(dir, ""), "junk", 4);
    kn_fault_force("renameat", 0, EBUSY);
    if (_i > 0) kn_fault_force("unlinkat", 0, EBUSY);
    kn_cache *c = open_cache(dir);
    for (int i = 0; i < 3; i++) {
        kn_key k = key_of(1);
        const kn_blob *b;
        ck_assert_ok(kn_cache_find(c, &k, assembler_a, 0, &b));
        ck_assert_ptr_null(b);
        kn_key_free(&k);
    }
    ck_assert_uint_eq(stats_of(c).quarantined, _i == 0);
    ck_assert_uint_eq(stats_of(c).rejected, _i == 0 ? 1 : 3);
    ck_assert_int_eq(warnings(), 1);
    publish_number(c, 1, LEN);
    ck_assert(has_number(c, 1, LEN));
    ck_assert_uint_eq(stats_of(c).publish_failed, 0);
    kn_fault_force_clear();
    kn_cache_close(c);
}
END_TEST

/* ---- every call -------------------------------------------------------------------------------------------------- */

/* A session with all that the cache can do. Statuses may be failures; what is handed out must be right. */
static void check_blob(const kn_blob *b, int n) {
    unsigned char want[LEN];
    if (!b) return;
    fill_payload(want, LEN, (unsigned)n);
    ck_assert_uint_eq(b->payload_len, LEN);
    ck_assert_mem_eq(b->payload, want, LEN);
    kn_blob_release(b);
}

static kn_status count_entry(void *user, const char *where, kn_status status, const void *key, size_t key_len,
                             const char *assembler, const kn_blob *blob, int64_t last_used, uint64_t bytes_on_disk) {
    (void)where, (void)key, (void)key_len, (void)assembler, (void)last_used, (void)bytes_on_disk;
    *(int *)user += status == KN_OK && blob->payload_len == LEN;
    return KN_OK;
}

static void use_pack_writer(const unsigned char *p) {
    kn_pack_writer *w;
    if (kn_pack_create(in_scratch("new"), &w) != KN_OK) return;
    kn_key k = {{0}};
    for (int n = 0; n < 3; n++) {
        kn_key_begin(&k);
        kn_key_add(&k, "n", &n, sizeof n);
        if (kn_key_status(&k) == KN_OK)
            kn_pack_add(w, k.bytes.data, k.bytes.len, assembler_a, p, LEN, "m=1\n", 4, NULL);
        kn_key_free(&k);
    }
    kn_pack_finish(w);
}

static void session(void) {
    unsigned char p[LEN];
    uint64_t n, bytes;
    int seen = 0;
    const char *paths[] = {in_scratch("dir"), in_scratch("pack")};
    char list[1200];
    snprintf(list, sizeof list, "%s:%s", in_scratch("pack"), in_scratch("ro"));
    const kn_cache_options o = {.dir = in_scratch("dir"), .read_only = list};
    kn_cache *c;
    if (kn_cache_open(&o, &c) == KN_OK) {
        for (int i = 0; i < 8; i++) { /* pack: 0; read-only: 1; directory: 2; damaged: 3; the others are new */
            kn_key k = {{0}};
            const kn_blob *b = NULL;
            kn_key_begin(&k);
            kn_key_add_text(&k, "op", "test");
            kn_key_add(&k, "number", &i, sizeof i);
            kn_cache_find(c, &k, assembler_a, 0, &b);
            bool found = b != NULL;
            check_blob(b, i);
            fill_payload(p, LEN, (unsigned)i);
            if (!found && kn_cache_publish(c, &k, assembler_a, p, LEN, "m=1\n", 4, &b) == KN_OK) check_blob(b, i);
            kn_key_free(&k);
        }
        kn_cache_trim(c, 30000, &n, &bytes);
        kn_cache_close(c);
    }
    kn_cache_visit(in_scratch("dir"), count_entry, &seen);
    kn_cache_visit(in_scratch("pack"), count_entry, &seen);
    kn_pack_merge(paths, 2, in_scratch("merged"), &n);
    use_pack_writer(p);
    kn_record_line(in_scratch("record"), "{}");
}

/* The state that each session begins with. */
static void prepare(void) {
    const char *path = in_scratch("ro");
    uint64_t n;
    kn_cache *c = open_cache(path);
    publish_number(c, 0, LEN);
    kn_cache_close(c);
    ck_assert_ok(kn_pack_merge(&path, 1, in_scratch("pack"), &n));
    remove_tree(path);
    c = open_cache(path);
    publish_number(c, 1, LEN);
    kn_cache_close(c);
    c = open_cache(in_scratch("dir"));
    publish_number(c, 3, LEN);
    spew(only_file(in_scratch("dir"), ""), "junk", 4);
    publish_number(c, 2, LEN);
    kn_cache_close(c);
}

static int open_descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 200; fd++) n += lseek(fd, 0, SEEK_CUR) != -1 || errno != EBADF;
    return n;
}

/* After a session: a fresh look at everything on disk finds nothing wrong, and a clean session works. */
static void check_aftermath(uint64_t fault) {
    kn_cache *c = open_cache(in_scratch("dir"));
    for (int i = 0; i < 8; i++) {
        kn_key k = key_of(i);
        const kn_blob *b;
        ck_assert_ok(kn_cache_find(c, &k, assembler_a, 0, &b));
        check_blob(b, i);
        kn_key_free(&k);
    }
    /* The damaged entry is all there may be to reject. */
    ck_assert_msg(stats_of(c).rejected <= 1, "fault %d: %d rejected", (int)fault, (int)stats_of(c).rejected);
    kn_cache_close(c);
    int entries = 0;
    if (access(in_scratch("merged"), F_OK) == 0)
        ck_assert_ok(kn_cache_visit(in_scratch("merged"), count_entry, &entries));
    if (access(in_scratch("new"), F_OK) == 0) ck_assert_ok(kn_cache_visit(in_scratch("new"), count_entry, &entries));
}

START_TEST(every_call_fails_once) {
    uint64_t visits = 0;
    int before = open_descriptors();
    /* The shard of this run: every run takes a third, so that they can go side by side. */
    for (uint64_t n = (uint64_t)_i + 1; visits == 0 || n <= visits; n += 3) {
        prepare();
        kn_fault_arm(n);
        session();
        visits = kn_fault_visits();
        kn_fault_arm(0);
        ck_assert_int_eq(open_descriptors(), before);
        check_aftermath(n);
        const char *names[] = {"ro", "dir", "pack", "merged", "new", "record"};
        for (int i = 0; i < 6; i++) remove_tree(in_scratch(names[i]));
        /* A temporary stays only if its own removal failed. */
        ck_assert_int_le(count_files(in_scratch(""), ""), 1);
        remove_tree(in_scratch(""));
        ck_assert_int_eq(mkdir(in_scratch(""), 0700), 0);
    }
    ck_assert_uint_ge(visits, 300);
}
END_TEST

int main(void) {
    /* Packs are synced when they are finished, hundreds of times here: in memory where possible. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    Suite *s = suite_create("cache/faults");
    TCase *t = scratch_case(s, "named");
    tcase_add_test(t, lost_race_and_winner_unseen);
    tcase_add_loop_test(t, no_hard_links, 0, 8);
    tcase_add_loop_test(t, publishing_survives, 0, (int)(sizeof publish_faults / sizeof *publish_faults));
    tcase_add_loop_test(t, finding_survives, 0, (int)(sizeof find_faults / sizeof *find_faults));
    tcase_add_loop_test(t, quarantine_survives, 0, 2);
    t = scratch_case(s, "every");
    tcase_add_loop_test(t, every_call_fails_once, 0, 3);
    return kn_run_suite(s);
}
