/* Many processes on one cache directory: cold starts on one key (C-01), writers whose results differ (C-02), writers
 * killed at any moment (C-03), and a second process that must find all that a first one left (C-09).
 * KN_LONG=1 runs the full number of rounds. */
#define _GNU_SOURCE
#include "cache/cache_support.h"

#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t children[64];
static int child_count;

/* Run fn(i) in a process of its own; failed checks and crashes show in join_all. */
static void spawn(void (*fn)(int), int i) {
    pid_t id = fork();
    ck_assert_int_ge(id, 0);
    if (id == 0) {
        fn(i);
        _exit(0);
    }
    children[child_count++] = id;
}

static void join_all(void) {
    int bad = 0;
    for (int i = 0; i < child_count; i++) {
        int status;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        bad += status != 0;
    }
    child_count = 0;
    ck_assert_msg(bad == 0, "%d processes failed", bad);
}

/* ---- C-01 -------------------------------------------------------------------------------------------------------- */

enum { WORKERS = 32, BIG = 1 << 20 };
static pthread_barrier_t *barrier;

static void cold_start(int i) {
    (void)i;
    kn_cache *c = open_cache(in_scratch("c"));
    pthread_barrier_wait(barrier);
    if (!has_number(c, 1, BIG)) {
        usleep(50000); /* the assembler at work */
        publish_number(c, 1, BIG);
    }
    ck_assert(has_number(c, 1, BIG));
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.publish_failed + s.rejected, 0);
    kn_cache_close(c);
    c = open_cache(in_scratch("c"));
    ck_assert(has_number(c, 1, BIG)); /* from the disk, whoever won */
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0);
}

START_TEST(cold_start_on_one_key) {
    barrier = mmap(NULL, sizeof *barrier, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(barrier, MAP_FAILED);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &shared, WORKERS);
    for (int round = 0; round < (run_long() ? 50 : 4); round++) {
        for (int i = 0; i < WORKERS; i++) spawn(cold_start, i);
        join_all();
        ck_assert_int_eq(count_files(in_scratch("c"), ""), 1); /* one entry, no temporary */
        remove_tree(in_scratch("c"));
    }
}
END_TEST

/* ---- C-02 -------------------------------------------------------------------------------------------------------- */

enum { KEYS = 8 };

static unsigned random_of(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Writer 0 builds kernels of 'A's that need 1000 bytes, writer 1 kernels of 'B's that need 2000. */
static void differing_writer(int i) {
    unsigned state = (unsigned)i + 77;
    char payload[3000];
    memset(payload, 'A' + i, sizeof payload);
    const char *meta = i == 0 ? "smem=1000\n" : "smem=2000\n";
    kn_cache *c = open_cache(in_scratch("c"));
    for (int n = 0; n < (run_long() ? 5000 : 400); n++) {
        kn_key k = key_of((int)(random_of(&state) % KEYS));
        const kn_blob *b;
        ck_assert_ok(kn_cache_publish(c, &k, assembler_a, payload, sizeof payload, meta, strlen(meta), &b));
        ck_assert_mem_eq(b->payload, payload, sizeof payload); /* its own, never the other's */
        kn_blob_release(b);
        kn_key_free(&k);
        if (random_of(&state) % 4 == 0) usleep(random_of(&state) % 300);
        if (n % 8 == 0) {
            uint64_t entries, bytes;
            ck_assert_ok(kn_cache_trim(c, 0, &entries, &bytes));
        }
    }
    ck_assert_uint_eq(stats_of(c).publish_failed, 0);
    kn_cache_close(c);
}

static atomic_int *stop_reading;

static void pair_reader(int i) {
    int seen[2] = {0, 0};
    (void)i;
    while (!atomic_load(stop_reading)) {
        kn_cache *c = open_cache(in_scratch("c"));
        for (int n = 0; n < KEYS; n++) {
            kn_key k = key_of(n);
            const kn_blob *b;
            char smem[8];
            ck_assert_ok(kn_cache_find(c, &k, assembler_a, 0, &b));
            kn_key_free(&k);
            if (!b) continue;
            ck_assert_uint_eq(b->payload_len, 3000);
            const char *p = b->payload;
            for (size_t at = 1; at < 3000; at++) ck_assert_int_eq(p[at], p[0]);
            ck_assert(kn_blob_meta(b, "smem", smem, sizeof smem));
            ck_assert_str_eq(smem, p[0] == 'A' ? "1000" : "2000");
            seen[p[0] - 'A']++;
            kn_blob_release(b);
        }
        ck_assert_uint_eq(stats_of(c).rejected, 0);
        kn_cache_close(c);
    }
    ck_assert_int_gt(seen[0], 0);
    ck_assert_int_gt(seen[1], 0);
}

START_TEST(results_that_differ_never_mix) {
    stop_reading = mmap(NULL, sizeof *stop_reading, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(stop_reading, MAP_FAILED);
    spawn(pair_reader, 0);
    pid_t reader = children[0];
    child_count = 0;
    spawn(differing_writer, 0);
    spawn(differing_writer, 1);
    join_all();
    atomic_store(stop_reading, 1);
    children[child_count++] = reader;
    join_all();
}
END_TEST

/* ---- kill -9 ----------------------------------------------------------------------------------------------------- */

static void busy_writer(int seed) {
    kn_cache *c = open_cache(in_scratch("c"));
    for (int i = 0;; i++) {
        publish_number(c, seed * 1000 + i % 50, 300000);
        if (i % 50 == 49) {
            uint64_t n, bytes;
            kn_cache_trim(c, 0, &n, &bytes);
        }
    }
}

START_TEST(writers_killed_at_any_moment) {
    unsigned state = 5;
    int rounds = run_long() ? 300 : 30;
    /* More of them, and later, on slow machines, until somebody was hit while writing. */
    for (int round = 0; round < rounds || (round < 1000 && count_files(in_scratch("c"), ".t-") == 0); round++) {
        spawn(busy_writer, round);
        usleep(2000 + random_of(&state) % (20000 * (1 + (unsigned)(round / rounds))));
        kill(children[0], SIGKILL);
        int status;
        ck_assert_int_eq(waitpid(children[0], &status, 0), children[0]);
        ck_assert(WIFSIGNALED(status));
        child_count = 0;
        kn_cache *c = open_cache(in_scratch("c"));
        for (int i = 0; i < 50; i++) has_number(c, round * 1000 + i, 300000); /* checks what it finds */
        ck_assert_uint_eq(stats_of(c).rejected, 0);
        kn_cache_close(c);
    }
    /* What the dead left behind goes when it is old. */
    ck_assert_int_gt(count_files(in_scratch("c"), ".t-"), 0);
    char command[600];
    snprintf(command, sizeof command, "find %s -name '.t-*' -exec touch -d '-2 hours' {} +", in_scratch("c"));
    ck_assert_int_eq(system(command), 0);
    kn_cache *c = open_cache(in_scratch("c"));
    uint64_t n, bytes;
    ck_assert_ok(kn_cache_trim(c, 1 << 30, &n, &bytes));
    kn_cache_close(c);
    ck_assert_int_eq(count_files(in_scratch("c"), ".t-"), 0);
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

/* ---- C-09 -------------------------------------------------------------------------------------------------------- */

enum { SHAPES = 200 };

/* A fresh process image, other locale, other order: argv "find <scratch>". Exit 0 if every kernel was a hit. */
static int find_all(const char *dir) {
    setlocale(LC_ALL, "");
    const kn_cache_options o = {.dir = dir, .no_read_only = true};
    kn_cache *c;
    if (kn_cache_open(&o, &c) != KN_OK) return 1;
    for (int i = SHAPES - 1; i >= 0; i--) {
        kn_key k;
        const kn_blob *b = NULL;
        kn_key_begin(&k);
        kn_key_add_text(&k, "op", "test");
        kn_key_add(&k, "number", &i, sizeof i);
        if (kn_cache_find(c, &k, assembler_a, 0, &b) != KN_OK || !b) return 2;
        kn_blob_release(b);
        kn_key_free(&k);
    }
    kn_cache_stats s;
    kn_cache_get_stats(c, &s);
    kn_cache_close(c);
    return s.hits_dir == SHAPES && s.misses == 0 && s.rejected == 0 ? 0 : 3;
}

START_TEST(second_process_hits) {
    kn_cache *c = open_cache(in_scratch("c"));
    for (int i = 0; i < SHAPES; i++) publish_number(c, i, 500);
    kn_cache_close(c);
    const char *const locales[] = {"C", "de_DE.UTF-8", "tr_TR.UTF-8", "C.UTF-8"};
    for (int i = 0; i < 4; i++) {
        pid_t id = fork();
        if (id == 0) {
            setenv("LC_ALL", locales[i], 1);
            setenv("HOSTNAME", locales[i], 1);
            if (chdir("/") != 0) _exit(9);
            execl("/proc/self/exe", "test", "find", in_scratch("c"), (char *)NULL);
            _exit(9);
        }
        int status;
        waitpid(id, &status, 0);
        ck_assert_msg(status == 0, "locale %s: status %d", locales[i], status);
    }
}
END_TEST

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "find") == 0) return find_all(argv[2]);
    Suite *s = suite_create("cache/torture");
    TCase *t = scratch_case(s, "all");
    tcase_add_test(t, cold_start_on_one_key);
    tcase_add_test(t, results_that_differ_never_mix);
    tcase_add_test(t, writers_killed_at_any_moment);
    tcase_add_test(t, second_process_hits);
    return kn_run_suite(s);
}
