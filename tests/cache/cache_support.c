/* Helpers of the cache's tests: see cache_support.h. */
#define _GNU_SOURCE
#include "cache/cache_support.h"

#include "base/log.h"

#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char assembler_a[] = "nvjitlink 13.0 -arch=sm_90a";
const char assembler_b[] = "nvjitlink 13.1 -arch=sm_90a";

static char base[256]; /* of the test case */
static char scratch[300];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void remove_tree(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void begin_case(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(base, sizeof base, "%s/kn-cache-XXXXXX", tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(base));
    ck_assert_int_eq(chmod(base, 0755), 0); /* tests become another user */
}

static void end_case(void) {
    remove_tree(base);
}

static void begin_test(void) {
    snprintf(scratch, sizeof scratch, "%s/XXXXXX", base);
    ck_assert_ptr_nonnull(mkdtemp(scratch));
    watch_log();
}

TCase *scratch_case(Suite *s, const char *name) {
    TCase *t = tcase_create(name);
    tcase_add_unchecked_fixture(t, begin_case, end_case);
    tcase_add_checked_fixture(t, begin_test, NULL);
    suite_add_tcase(s, t);
    return t;
}

const char *in_scratch(const char *name) {
    static char paths[8][512];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, 512, "%s/%s", scratch, name);
    return p;
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

static int warning_count;
static char warning_text[2048];

static void keep_line(void *user, int level, const char *line) {
    (void)user;
    if (level != KN_LOG_WARN) return;
    __atomic_fetch_add(&warning_count, 1, __ATOMIC_RELAXED);
    snprintf(warning_text, sizeof warning_text, "%s", line);
}

void watch_log(void) {
    warning_count = 0;
    warning_text[0] = '\0';
    kn_log_set_level(KN_LOG_WARN);
    kn_log_set_callback(keep_line, NULL);
}

int warnings(void) {
    return warning_count;
}

const char *last_warning(void) {
    return warning_text;
}

/* ---- numbered kernels -------------------------------------------------------------------------------------------- */

kn_key key_of(int number) {
    kn_key k;
    kn_key_begin(&k);
    kn_key_add_text(&k, "op", "test");
    kn_key_add(&k, "number", &number, sizeof number);
    ck_assert_ok(kn_key_status(&k));
    return k;
}

void fill_payload(unsigned char *p, size_t len, unsigned seed) {
    unsigned x = seed * 2654435761u + 12345u;
    for (size_t i = 0; i < len; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (unsigned char)(x >> 24);
    }
}

kn_cache *open_cache(const char *dir) {
    const kn_cache_options o = {.dir = dir, .no_read_only = true};
    kn_cache *c = NULL;
    ck_assert_ok(kn_cache_open(&o, &c));
    return c;
}

void publish_number(kn_cache *c, int n, size_t len) {
    kn_key k = key_of(n);
    unsigned char *p = malloc(len);
    char meta[32];
    snprintf(meta, sizeof meta, "n=%d\n", n);
    fill_payload(p, len, (unsigned)n);
    const kn_blob *b = NULL;
    ck_assert_ok(kn_cache_publish(c, &k, assembler_a, p, len, meta, strlen(meta), &b));
    ck_assert_uint_eq(b->payload_len, len);
    ck_assert_mem_eq(b->payload, p, len);
    ck_assert_str_eq(b->meta, meta);
    kn_blob_release(b);
    free(p);
    kn_key_free(&k);
}

bool has_number(kn_cache *c, int n, size_t len) {
    kn_key k = key_of(n);
    const kn_blob *b = NULL;
    ck_assert_ok(kn_cache_find(c, &k, assembler_a, 0, &b));
    kn_key_free(&k);
    if (!b) return false;
    unsigned char *p = malloc(len);
    char meta[32];
    snprintf(meta, sizeof meta, "n=%d\n", n);
    fill_payload(p, len, (unsigned)n);
    ck_assert_uint_eq(b->payload_len, len);
    ck_assert_mem_eq(b->payload, p, len);
    ck_assert_str_eq(b->meta, meta);
    kn_blob_release(b);
    free(p);
    return true;
}

kn_cache_stats stats_of(kn_cache *c) {
    kn_cache_stats s;
    kn_cache_get_stats(c, &s);
    return s;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static struct {
    const char *part;
    bool suffix;
    int count;
    size_t bytes;
    char last[512];
} search;

static int match_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    if (type == FTW_D) return 0;
    const char *name = path + ftw->base;
    size_t len = strlen(name), part = strlen(search.part);
    bool hit =
        search.suffix ? len >= part && strcmp(name + len - part, search.part) == 0 : strstr(name, search.part) != NULL;
    if (!hit) return 0;
    search.count++;
    search.bytes += (size_t)st->st_blocks * 512;
    snprintf(search.last, sizeof search.last, "%s", path);
    return 0;
}

static void look_for(const char *dir, const char *part, bool suffix) {
    memset(&search, 0, sizeof search);
    search.part = part;
    search.suffix = suffix;
    nftw(dir, match_one, 16, FTW_PHYS);
}

const char *only_file(const char *dir, const char *suffix) {
    static char path[512];
    look_for(dir, suffix, true);
    ck_assert_int_eq(search.count, 1);
    memcpy(path, search.last, sizeof path);
    return path;
}

int count_files(const char *dir, const char *part) {
    look_for(dir, part, false);
    return search.count;
}

size_t disk_usage(const char *dir) {
    look_for(dir, "", false);
    return search.bytes;
}

unsigned char *slurp(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s cannot be opened", path);
    struct stat st;
    ck_assert_int_eq(fstat(fileno(f), &st), 0);
    unsigned char *data = malloc((size_t)st.st_size + 1);
    *len = fread(data, 1, (size_t)st.st_size, f);
    fclose(f);
    return data;
}

void spew(const char *path, const void *data, size_t len) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
    close(fd);
}

bool run_long(void) {
    const char *v = getenv("KN_LONG");
    return v && strcmp(v, "1") == 0;
}

bool is_root(void) {
    return geteuid() == 0;
}

bool become_nobody(void) {
    return is_root() && setgroups(0, NULL) == 0 && setgid(12345) == 0 && setuid(12345) == 0;
}
