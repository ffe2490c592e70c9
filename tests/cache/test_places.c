/* cache/place.c and the trust rules of cache/store_dir.c: every unusable place means uncached, one warning and nothing
 * left behind (C-05); nothing is read from, or written through, what others control (C-11). Tests about other users
 * need root, as in CI; for anyone else root is the other user. */
#define _GNU_SOURCE
#include "cache/cache_support.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEN = 5000 };

static kn_cache *open_default(void) {
    kn_cache *c;
    const kn_cache_options o = {.no_read_only = true};
    unsetenv("KILN_CACHE_DIR");
    ck_assert_ok(kn_cache_open(&o, &c));
    return c;
}

/* The cache works without its directory, and says why, once. */
static void check_uncached(kn_cache *c, const char *reason) {
    for (int i = 0; i < 3; i++) {
        ck_assert(!has_number(c, i, LEN));
        publish_number(c, i, LEN);
        ck_assert(has_number(c, i, LEN));
    }
    kn_cache_stats s = stats_of(c);
    ck_assert(!s.dir_usable);
    ck_assert_msg(strstr(s.dir_reason, reason) != NULL, "the reason is \"%s\", wanted \"%s\" in it", s.dir_reason,
                  reason);
    ck_assert_uint_eq(s.published, 0);
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 1);
    ck_assert(strstr(last_warning(), reason) != NULL);
}

START_TEST(default_places) {
    setenv("HOME", in_scratch("home"), 1);
    setenv("XDG_CACHE_HOME", in_scratch("xdg"), 1);
    kn_cache *c = open_default();
    ck_assert_str_eq(stats_of(c).dir, in_scratch("xdg/kiln"));
    publish_number(c, 1, LEN);
    kn_cache_close(c);
    only_file(in_scratch("xdg/kiln"), "");
    setenv("XDG_CACHE_HOME", "relative", 1); /* to be ignored */
    c = open_default();
    ck_assert_str_eq(stats_of(c).dir, in_scratch("home/.cache/kiln"));
    publish_number(c, 1, LEN);
    kn_cache_close(c);
    only_file(in_scratch("home"), "");
    setenv("KILN_CACHE_DIR", in_scratch("own"), 1);
    const kn_cache_options o = {.no_read_only = true};
    ck_assert_ok(kn_cache_open(&o, &c));
    ck_assert_str_eq(stats_of(c).dir, in_scratch("own"));
    kn_cache_close(c);
    ck_assert_int_eq(access(in_scratch("own"), F_OK), -1); /* opening alone creates nothing */
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

START_TEST(no_home) {
    unsetenv("XDG_CACHE_HOME");
    if (_i == 0) unsetenv("HOME");
    if (_i == 1) setenv("HOME", "", 1);
    if (_i == 2) setenv("HOME", "not/absolute", 1);
    check_uncached(open_default(), "HOME");
}
END_TEST

START_TEST(root_directory_as_home) {
    become_nobody(); /* a container's random user, who has no passwd entry; for non-root: ourselves */
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/", 1);
    check_uncached(open_default(), "/.cache/kiln cannot be created");
    ck_assert_int_eq(access("/.cache/kiln", F_OK), -1);
}
END_TEST

START_TEST(unwritable_directory) {
    const char *dir = in_scratch("c");
    ck_assert_int_eq(mkdir(dir, 0755), 0);
    if (is_root()) ck_assert_int_eq(chown(dir, 12345, 12345), 0);
    ck_assert_int_eq(chmod(in_scratch(""), 0755), 0);
    ck_assert_int_eq(chmod(dir, 0555), 0);
    become_nobody();
    check_uncached(open_cache(dir), "Permission denied");
    ck_assert_int_eq(count_files(dir, ""), 0);
    check_uncached((watch_log(), open_cache(in_scratch("c/below/it"))), "Permission denied");
}
END_TEST

/* Filled, then made read-only: what is there is used, what is new is not kept. */
START_TEST(read_only_but_filled) {
    const char *dir = in_scratch("c");
    char command[600];
    ck_assert_int_eq(chmod(in_scratch(""), 0777), 0);
    become_nobody();
    kn_cache *c = open_cache(dir);
    publish_number(c, 1, LEN);
    kn_cache_close(c);
    snprintf(command, sizeof command, "chmod -R a-w %s", dir);
    ck_assert_int_eq(system(command), 0);
    c = open_cache(dir);
    ck_assert(has_number(c, 1, LEN));
    publish_number(c, 2, LEN);
    publish_number(c, 3, LEN);
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.publish_failed, 2);
    ck_assert(s.dir_usable);
    ck_assert(strstr(s.dir_reason, "Permission denied") != NULL);
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 1);
    ck_assert_int_eq(count_files(dir, ""), 1);
}
END_TEST

START_TEST(path_is_a_file) {
    spew(in_scratch("file"), "x", 1);
    check_uncached(open_cache(in_scratch("file")), "not a directory");
    check_uncached((watch_log(), open_cache(in_scratch("file/below"))), "ot a directory");
    size_t len;
    unsigned char *text = slurp(in_scratch("file"), &len);
    ck_assert_uint_eq(len, 1);
    free(text);
}
END_TEST

START_TEST(endless_path) {
    char path[6000];
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    check_uncached(open_cache(path), "");
}
END_TEST

/* ---- no room ----------------------------------------------------------------------------------------------------- */

static void check_no_room(const char *dir) {
    kn_cache *c = open_cache(dir);
    for (int i = 0; i < 5; i++) {
        publish_number(c, i, 200 * 1024);
        ck_assert(has_number(c, i, 200 * 1024));
    }
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.publish_failed, 5);
    ck_assert_uint_eq(s.published, 0);
    ck_assert_int_eq(warnings(), 1);
    ck_assert_int_eq(count_files(dir, ""), 0); /* no residue */
    publish_number(c, 100, 8 * 1024);          /* what fits is kept */
    ck_assert_uint_eq(stats_of(c).published, 1);
    kn_cache_close(c);
    c = open_cache(dir);
    ck_assert(has_number(c, 100, 8 * 1024));
    ck_assert_uint_eq(stats_of(c).rejected, 0);
    kn_cache_close(c);
}

/* SIGXFSZ would kill a process that tried. */
START_TEST(file_size_limit) {
    const struct rlimit limit = {64 * 1024, 64 * 1024};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_no_room(in_scratch("c"));
    ck_assert(strstr(last_warning(), "File too large") != NULL);
    kn_pack_writer *w;
    static unsigned char big[200 * 1024];
    fill_payload(big, sizeof big, 1);
    ck_assert_ok(kn_pack_create(in_scratch("p"), &w));
    ck_assert_fails(kn_pack_add(w, "key", 3, "", big, sizeof big, "", 0, NULL), KN_E_IO, "File too large");
    ck_assert_fails(kn_pack_finish(w), KN_E_IO, "failed before");
    ck_assert_int_eq(count_files(in_scratch(""), "p"), 0);
}
END_TEST

/* A full disk: a file system of 64 KiB, where mounting is allowed. */
START_TEST(full_disk) {
    const char *dir = in_scratch("small");
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    /* In a mount namespace of our own: the file system goes with the process. */
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", dir, "tmpfs", 0, "size=64k,mode=0700") != 0) {
        fprintf(stderr, "full_disk: no right to mount; file_size_limit stands for it\n");
        return;
    }
    check_no_room(dir);
    ck_assert(strstr(last_warning(), "No space left") != NULL);
}
END_TEST

/* ---- other users' hands ------------------------------------------------------------------------------------------ */

/* A directory that belongs to somebody else. */
static const char *foreign_dir(void) {
    if (!is_root()) return "/usr";
    const char *dir = in_scratch("foreign");
    ck_assert_int_eq(mkdir(dir, 0755), 0);
    ck_assert_int_eq(chown(dir, 2, 2), 0);
    return dir;
}

START_TEST(foreign_owner) {
    const char *dir = foreign_dir();
    check_uncached(open_cache(dir), "owns it");
    ck_assert_int_eq(access(in_scratch("foreign/v1"), F_OK), -1);
}
END_TEST

START_TEST(writable_by_others) {
    const char *dir = in_scratch("c");
    const unsigned modes[] = {0777, 0770, 0702, 01777};
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    ck_assert_int_eq(chmod(dir, modes[_i]), 0);
    check_uncached(open_cache(dir), "lets others write");
    ck_assert_int_eq(count_files(dir, ""), 0);
}
END_TEST

START_TEST(directory_is_a_link) {
    ck_assert_int_eq(mkdir(in_scratch("target"), 0700), 0);
    ck_assert_int_eq(symlink(in_scratch("target"), in_scratch("link")), 0);
    char with_slash[600];
    snprintf(with_slash, sizeof with_slash, "%s/", in_scratch("link"));
    check_uncached(open_cache(_i == 0 ? in_scratch("link") : with_slash), "symbolic link");
    ck_assert_int_eq(count_files(in_scratch("target"), ""), 0);
}
END_TEST

/* Links below the directory: v1, and a subdirectory. */
START_TEST(inner_links) {
    const char *dir = in_scratch("c");
    kn_cache *c = open_cache(dir);
    publish_number(c, 1, LEN);
    kn_cache_close(c);
    char sub[512], away[600];
    snprintf(sub, sizeof sub, "%s", only_file(dir, ""));
    *strrchr(sub, '/') = '\0';
    if (_i == 1) snprintf(sub, sizeof sub, "%s/v1", dir);
    snprintf(away, sizeof away, "%s", in_scratch("away"));
    ck_assert_int_eq(rename(sub, away), 0);
    ck_assert_int_eq(symlink(away, sub), 0);
    c = open_cache(dir);
    ck_assert(!has_number(c, 1, LEN)); /* it would be there, through the link */
    publish_number(c, 1, LEN);
    ck_assert_uint_eq(stats_of(c).published, 0);
    kn_cache_close(c);
    ck_assert_int_eq(count_files(away, ""), 1);
}
END_TEST

/* An entry with a foreign owner, or open to others, in a directory of ours: not used, replaced. */
START_TEST(foreign_entry) {
    const char *dir = in_scratch("c");
    kn_cache *c = open_cache(dir);
    publish_number(c, 1, LEN);
    kn_cache_close(c);
    const char *file = only_file(dir, "");
    if (_i == 0 && is_root()) ck_assert_int_eq(chown(file, 2, 2), 0);
    if (_i == 0 && !is_root()) return; /* cannot be brought about */
    if (_i == 1) ck_assert_int_eq(chmod(file, 0602), 0);
    if (_i == 2) ck_assert_int_eq(chmod(file, 0660), 0);
    c = open_cache(dir);
    ck_assert(!has_number(c, 1, LEN));
    ck_assert_uint_eq(stats_of(c).rejected, 1);
    publish_number(c, 1, LEN);
    kn_cache_close(c);
    c = open_cache(dir);
    ck_assert(has_number(c, 1, LEN));
    ck_assert_uint_eq(stats_of(c).hits_dir, 1);
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 1);
}
END_TEST

/* A planted pack. */
START_TEST(foreign_pack) {
    if (!is_root()) return; /* cannot be brought about */
    kn_pack_writer *w;
    kn_key k = key_of(1);
    ck_assert_ok(kn_pack_create(in_scratch("p"), &w));
    ck_assert_ok(kn_pack_add(w, k.bytes.data, k.bytes.len, "x", "evil", 4, "", 0, NULL));
    ck_assert_ok(kn_pack_finish(w));
    kn_key_free(&k);
    if (_i == 0) ck_assert_int_eq(chown(in_scratch("p"), 2, 2), 0);
    if (_i == 1) ck_assert_int_eq(chmod(in_scratch("p"), 0666), 0);
    const kn_cache_options o = {.dir = "off", .read_only = in_scratch("p"), .shared = true};
    kn_cache *c;
    ck_assert_ok(kn_cache_open(&o, &c));
    ck_assert(!has_number(c, 1, 4));
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 1);
}
END_TEST

/* Root's directory, readable by all: used by another user only if asked for, and then without a write. */
START_TEST(shared_directory) {
    if (!is_root()) return; /* cannot be brought about */
    const char *dir = in_scratch("c");
    char command[600];
    kn_cache *c = open_cache(dir);
    publish_number(c, 1, LEN);
    kn_cache_close(c);
    snprintf(command, sizeof command, "chmod -R a+rX,a-w %s && chmod a+rx %s", dir, in_scratch(""));
    ck_assert_int_eq(system(command), 0);
    ck_assert(become_nobody());
    kn_cache_options o = {.dir = dir, .no_read_only = true, .shared = true};
    ck_assert_ok(kn_cache_open(&o, &c));
    ck_assert(has_number(c, 1, LEN));
    ck_assert(stats_of(c).dir_usable);
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0);
    o.shared = false;
    setenv("KILN_CACHE_SHARED", "1", 1);
    ck_assert_ok(kn_cache_open(&o, &c));
    ck_assert(has_number(c, 1, LEN));
    kn_cache_close(c);
    unsetenv("KILN_CACHE_SHARED");
    check_uncached(open_cache(dir), "KILN_CACHE_SHARED");
}
END_TEST

/* Effective user other than the real one, as in a setuid program. */
START_TEST(raised_privileges) {
    if (!is_root()) return; /* cannot be brought about */
    ck_assert_int_eq(setresuid(12345, 0, 0), 0);
    setenv("KILN_CACHE_RO", in_scratch("p"), 1);
    kn_cache *c;
    const kn_cache_options o = {.dir = in_scratch("c")};
    ck_assert_ok(kn_cache_open(&o, &c));
    ck_assert_int_eq(warnings(), 1); /* of the read-only list */
    watch_log();
    check_uncached(c, "raised privileges");
    ck_assert_int_eq(access(in_scratch("c"), F_OK), -1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/places");
    TCase *t = scratch_case(s, "unusable");
    tcase_add_test(t, default_places);
    tcase_add_loop_test(t, no_home, 0, 3);
    tcase_add_test(t, root_directory_as_home);
    tcase_add_test(t, unwritable_directory);
    tcase_add_test(t, read_only_but_filled);
    tcase_add_test(t, path_is_a_file);
    tcase_add_test(t, endless_path);
    tcase_add_test(t, file_size_limit);
    tcase_add_test(t, full_disk);
    t = scratch_case(s, "untrusted");
    tcase_add_test(t, foreign_owner);
    tcase_add_loop_test(t, writable_by_others, 0, 4);
    tcase_add_loop_test(t, directory_is_a_link, 0, 2);
    tcase_add_loop_test(t, inner_links, 0, 2);
    tcase_add_loop_test(t, foreign_entry, 0, 3);
    tcase_add_loop_test(t, foreign_pack, 0, 2);
    tcase_add_test(t, shared_directory);
    tcase_add_test(t, raised_privileges);
    return kn_run_suite(s);
}
