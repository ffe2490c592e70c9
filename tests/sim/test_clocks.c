/* sim/clocks.c and sim/hb_cells.c: what joins know, lane by lane, and which readers a byte remembers. */
#include "sim/clocks.h"
#include "sim/hb_cells.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

START_TEST(epochs_keep_their_parts) {
    kn_epoch e = kn_epoch_make(KN_CLUSTER_MAX, KN_AGENT_MAX, 31, KN_EPOCH_MAX, KN_EPOCH_ASYNC);
    ck_assert_uint_eq(kn_epoch_cluster(e), KN_CLUSTER_MAX);
    ck_assert_uint_eq(kn_epoch_agent(e), KN_AGENT_MAX);
    ck_assert_uint_eq(kn_epoch_lane(e), 31);
    ck_assert_uint_eq(kn_epoch_count(e), KN_EPOCH_MAX);
    ck_assert(e & KN_EPOCH_ASYNC && !(e & KN_EPOCH_STRONG));
}
END_TEST

static uint32_t lane_count(kn_tick t, int lane) {
    return t.some > t.all && t.mask >> lane & 1 ? t.some : t.all;
}

/* A join never forgets, and where two counts and two masks are enough it is exact. */
START_TEST(ticks_join) {
    kn_tick a = {3, 0, 0};
    kn_tick_join(&a, (kn_tick){0, 7, 0x5});
    ck_assert(lane_count(a, 0) == 7 && lane_count(a, 1) == 3 && lane_count(a, 2) == 7);
    ck_assert(kn_tick_covers(a, 7, 0x4) && !kn_tick_covers(a, 7, 0x6) && kn_tick_covers(a, 3, ~0u));
    kn_tick_join(&a, (kn_tick){7, 0, 0});
    ck_assert(a.all == 7 && a.some == 0 && a.mask == 0);
    kn_tick_join(&a, (kn_tick){0, 9, ~0u});
    ck_assert(a.all == 9 && a.mask == 0);
    srand(1);
    int wrong = 0;
    for (int n = 0; n < 20000; n++) {
        kn_tick x = {(uint32_t)(rand() % 4), 0, 0}, y = {(uint32_t)(rand() % 4), 0, 0};
        if (rand() % 2) x.some = x.all + 1 + (uint32_t)(rand() % 4), x.mask = (uint32_t)rand() | 1;
        if (rand() % 2) y.some = y.all + 1 + (uint32_t)(rand() % 4), y.mask = (uint32_t)rand() | 2;
        kn_tick j = x;
        kn_tick_join(&j, y);
        bool exact = !x.mask || !y.mask || x.some == y.some;
        for (int l = 0; l < 32; l++) {
            uint32_t want = lane_count(x, l) > lane_count(y, l) ? lane_count(x, l) : lane_count(y, l),
                     got = lane_count(j, l);
            wrong += exact ? got != want : got < want;
        }
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(clocks_join_and_fence) {
    kn_vc a = {0}, b = {0}, c = {0};
    ck_assert_ok(kn_vc_raise(&a, KN_L_ORDER, 0, 5, (kn_tick){4, 0, 0}));
    ck_assert_ok(kn_vc_raise(&b, KN_L_ORDER, 0, 40, (kn_tick){2, 0, 0}));
    ck_assert_ok(kn_vc_raise(&b, KN_L_ORDER, 7, 1, (kn_tick){9, 0, 0}));
    ck_assert_ok(kn_vc_join(&a, &b));
    ck_assert(kn_vc_get(&a, KN_L_ORDER, 0, 5).all == 4 && kn_vc_get(&a, KN_L_ORDER, 0, 40).all == 2);
    ck_assert(kn_vc_get(&a, KN_L_ORDER, 7, 1).all == 9 && kn_vc_get(&a, KN_L_ORDER, 8, 1).all == 0);
    ck_assert(kn_vc_get(&a, KN_L_PROXY_SHARED, 0, 5).all == 0);
    kn_vc_fence(&a, KN_L_PROXY_SHARED);
    ck_assert(kn_vc_get(&a, KN_L_PROXY_SHARED, 0, 5).all == 4 && kn_vc_get(&a, KN_L_PROXY_GLOBAL, 0, 5).all == 0);
    ck_assert_ok(kn_vc_raise(&c, KN_L_ORDER, 3, 3, (kn_tick){1, 0, 0}));
    ck_assert_ok(kn_vc_copy(&c, &a));
    ck_assert(kn_vc_get(&c, KN_L_ORDER, 3, 3).all == 0 && kn_vc_get(&c, KN_L_ORDER, 7, 1).all == 9);
    kn_vc_free(&a);
    kn_vc_free(&b);
    kn_vc_free(&c);
}
END_TEST

static kn_epoch by(uint32_t agent, uint32_t lane, uint32_t count) {
    return kn_epoch_make(0, agent, lane, count, 0);
}

START_TEST(readers_are_kept_until_known) {
    kn_reads *r = calloc(1, sizeof *r);
    kn_vc v = {0};
    kn_reader one;
    const kn_reader *list;
    uint64_t a, b, c;
    ck_assert_ok(kn_reads_add(r, 0, by(1, 3, 5), 0, &v, &a));
    ck_assert_uint_eq(a, by(1, 3, 5));
    ck_assert_ok(kn_reads_add(r, a, by(2, 0, 1), 0, &v, &b));
    ck_assert_uint_eq(kn_reads_list(r, b, &one, &list), 2);
    ck_assert_ok(kn_reads_add(r, a, by(2, 0, 1), 0, &v, &c));
    ck_assert_uint_eq(b, c);
    /* the same thread again, later: its own old read goes */
    ck_assert_ok(kn_reads_add(r, b, by(2, 0, 4), 0, &v, &c));
    ck_assert_uint_eq(kn_reads_list(r, c, &one, &list), 2);
    ck_assert(list[1].who == (by(2, 0, 4) & ~(31ull << 24)) && list[1].lanes == 1);
    /* another lane of it does not make the first one's go */
    ck_assert_ok(kn_reads_add(r, c, by(2, 7, 4), 0, &v, &c));
    ck_assert_uint_eq(kn_reads_list(r, c, &one, &list), 2);
    ck_assert_uint_eq(list[1].lanes, 0x81);
    /* a reader that knows of agent 1's read */
    ck_assert_ok(kn_vc_raise(&v, KN_L_ORDER, 0, 1, (kn_tick){5, 0, 0}));
    ck_assert_ok(kn_reads_add(r, b, by(3, 0, 1), 0, &v, &c));
    ck_assert_uint_eq(kn_reads_list(r, c, &one, &list), 2);
    ck_assert(kn_epoch_agent(list[0].who) == 2 && kn_epoch_agent(list[1].who) == 3);
    /* an asynchronous reader asks less of a later write, so it may not take a generic one's place */
    ck_assert_ok(kn_reads_add(r, a, by(3, 0, 1) | KN_EPOCH_ASYNC, 0, &v, &c));
    ck_assert_uint_eq(kn_reads_list(r, c, &one, &list), 2);
    ck_assert_ok(kn_reads_remove(r, c, by(3, 0, 1) | KN_EPOCH_ASYNC, &c));
    ck_assert_uint_eq(c, a);
    kn_vc_free(&v);
    kn_reads_free(r);
    free(r);
}
END_TEST

START_TEST(compaction_keeps_what_is_named) {
    kn_reads *r = calloc(1, sizeof *r);
    static const kn_vc none;
    uint64_t cells[64] = {0}, before[64];
    for (uint32_t k = 0; k < 64; k++)
        for (uint32_t n = 0; n < k % 5; n++)
            ck_assert_ok(kn_reads_add(r, cells[k], by(10 * n + k, n, k + 1), 0, &none, &cells[k]));
    memcpy(before, cells, sizeof cells);
    kn_reader want[64][5];
    uint32_t n_want[64];
    for (uint32_t k = 0; k < 64; k++) {
        kn_reader one;
        const kn_reader *list;
        n_want[k] = kn_reads_list(r, before[k], &one, &list);
        memcpy(want[k], list, n_want[k] * sizeof *list);
    }
    for (uint32_t k = 0; k < 20; k++) n_want[k] = 0, cells[k] = 0; /* these bytes are written */
    uint32_t sets = r->n_sets, n_cells = 64;
    uint64_t *arrays[1] = {cells};
    ck_assert_ok(kn_reads_compact(r, arrays, &n_cells, 1));
    ck_assert_uint_lt(r->n_sets, sets);
    for (uint32_t k = 0; k < 64; k++) {
        kn_reader one;
        const kn_reader *list;
        ck_assert_uint_eq(kn_reads_list(r, cells[k], &one, &list), n_want[k]);
        ck_assert(memcmp(list, want[k], n_want[k] * sizeof *list) == 0);
    }
    kn_reads_free(r);
    free(r);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/clocks");
    TCase *t = tcase_create("clocks");
    tcase_add_test(t, epochs_keep_their_parts);
    tcase_add_test(t, ticks_join);
    tcase_add_test(t, clocks_join_and_fence);
    tcase_add_test(t, readers_are_kept_until_known);
    tcase_add_test(t, compaction_keeps_what_is_named);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
