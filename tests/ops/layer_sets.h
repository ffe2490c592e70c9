/* What the sets of expert_mlp_backward and moe_layer_backward draw alike: sizes, wanted outputs, numbers of tokens, and
 * how that is counted. Both operations have five outputs, the last of their arguments; `first` is the first of them. */
#ifndef KN_TESTS_LAYER_SETS_H
#define KN_TESTS_LAYER_SETS_H

#include "support/problem_case.h"
#include "support/problem_sets.h"

enum {
    HUGE_SETS = 4, /* the first ones: sizes at which depths are split and operands rest in shared memory */
    LARGE_SETS = 12,
    SMALL = 2000000,  /* tokens x hidden x inner of a problem, at most; */
    LARGE = 25000000, /* of the first sets */
    LAYER_OUTPUTS = 5
};

static inline uint64_t all_outputs(int first) {
    return (((uint64_t)1 << LAYER_OUTPUTS) - 1) << first;
}

/* Do the kernels of set i have what TMA takes? The first sets' and half of the others'. */
static inline bool is_aligned(int64_t i) {
    return i < LARGE_SETS || i % 2 == 0;
}

/* hidden and inner of one of the first sets. */
static inline void large_sizes(int64_t i, kn_gen_config *c) {
    static const int64_t huge[HUGE_SETS][2] = {{3072, 512}, {512, 2048}, {1536, 1024}, {256, 4096}};
    static const int64_t large[][2] = {{2048, 256}, {512, 1024}, {1024, 512}, {256, 2048}, {1536, 320}, {640, 768}};
    const int64_t *size = i < HUGE_SETS ? huge[i] : large[i % 6];
    c->hidden = size[0];
    c->inner = size[1];
}

/* Those of another. */
static inline void draw_small_sizes(uint64_t *state, int64_t i, kn_gen_config *c) {
    c->hidden = kn_draw_edge(state, 700);
    c->inner = kn_draw_edge(state, 700);
    if (!is_aligned(i)) return;
    c->hidden = (c->hidden + 7) / 8 * 8;
    c->inner = (c->inner + 7) / 8 * 8;
}

static inline void draw_outputs(uint64_t *state, int64_t i, int first, kn_gen_config *c) {
    if (i < HUGE_SETS) { /* as models do */
        c->out_dtype = c->dtype;
        return;
    }
    int64_t kind = kn_draw_below(state, 4);
    if (kind == 0) { /* one alone */
        c->absent |= all_outputs(first) & ~bit(first + (int)kn_draw_below(state, LAYER_OUTPUTS));
    } else if (kind == 1) {
        for (int k = 0; k < LAYER_OUTPUTS; k++) c->absent |= kn_draw_below(state, 4) ? 0 : bit(first + k);
    }
    int64_t added = kn_draw_below(state, 4);
    c->options.common.accumulate = added == 0 ? 31 : added == 1 ? (uint64_t)kn_draw_below(state, 32) : 0;
}

static inline void draw_gap(uint64_t *state, int64_t i, kn_gen_config *c) {
    c->gap = kn_draw_below(state, 3) == 0 ? 1 + (int)kn_draw_below(state, 24) : 0;
    if (is_aligned(i)) c->gap = c->gap / 8 * 8;
}

/* f16 holds neither products of large numbers nor all digits of small ones. */
static inline void draw_scale(uint64_t *state, kn_gen_config *c) {
    if (c->dtype == KN_BF16 && c->out_dtype != KN_F16 && kn_draw_below(state, 3) == 0)
        c->scale = kn_draw_below(state, 2) ? 1e-3 : 1e3;
}

static inline bool exact(int64_t i, int64_t n) {
    return n % (i < HUGE_SETS ? 15 : 60) == 0;
}

/* `work`: multiplications of a token. */
static inline int64_t draw_count(uint64_t *state, int64_t i, int64_t n, int64_t work) {
    int64_t most = (i < LARGE_SETS ? LARGE : SMALL) / work, t;
    do {
        int64_t kind = kn_draw_below(state, 12);
        t = kind == 0   ? kn_draw_below(state, 2)
            : kind == 1 ? 300 + kn_draw_below(state, 1500)
            : kind < 6  ? kn_draw_edge(state, 700)
                        : 1 + kn_draw_below(state, 300);
    } while (t > most && t > 24);
    if (i < HUGE_SETS && exact(i, n)) t = 65 + kn_draw_below(state, 192);
    return t;
}

/* hidden, inner: columns of these rows of the table. */
static inline void count_sizes(const kn_gen_config *c, int64_t *hidden, int64_t *inner) {
    static const int64_t sizes[] = {64, 256, 512};
    hidden[kn_sets_class(c->hidden, sizes, 3)]++;
    inner[kn_sets_class(c->inner, sizes, 3)]++;
}

/* The five, all, one alone; and to how many of them something is added. */
static inline void count_outputs(const kn_gen_config *c, int first, int64_t *wanted_row, int64_t *accumulate_row) {
    uint64_t wanted = all_outputs(first) & ~c->absent, added = c->options.common.accumulate << first & wanted;
    for (int i = 0; i < LAYER_OUTPUTS; i++) wanted_row[i] += (wanted & bit(first + i)) != 0;
    wanted_row[LAYER_OUTPUTS] += wanted == all_outputs(first);
    wanted_row[LAYER_OUTPUTS + 1] += (wanted & (wanted - 1)) == 0;
    accumulate_row[added == 0 ? 0 : added == wanted ? 2 : 1]++;
}

#endif
