/* Random problems of router_backward over every option and size, from a state of the caller's. */
#ifndef KN_TESTS_ROUTER_DRAW_H
#define KN_TESTS_ROUTER_DRAW_H

#include "support/problem_sets.h"
#include "test_router_support.h"

/* Which optional inputs there are: some, such that the operation accepts them. */
static inline uint64_t draw_absent(uint64_t *state, int32_t score) {
    uint64_t absent = 0;
    for (int i = 0; i < N_ARGS; i++) {
        if (bit(i) & OPTIONAL && kn_draw_below(state, 2)) absent |= bit(i);
        if (bit(i) & OUTPUTS && kn_draw_below(state, i == OUT_BIAS ? 2 : 6) == 0) absent |= bit(i);
    }
    if (score == KILN_SCORE_SOFTMAX_SELECTED || absent & bit(AUX)) absent |= bit(AUX) | bit(AUX_ROW);
    if (absent & bit(ROUTER_LOGITS)) absent |= bit(Z_LOSS);
    return absent;
}

/* Features and options; the number of tokens is the caller's choice. */
static inline kn_gen_config draw_features(uint64_t *state, int64_t hidden, int64_t experts) {
    kn_gen_config c = config_of(0, hidden, experts, 0);
    c.top_k = kn_draw_below(state, 4) ? 1 + kn_draw_below(state, experts < 8 ? experts : 8)
                                      : 1 + kn_draw_below(state, experts < 256 ? experts : 256);
    c.seed = (uint64_t)kn_draw_below(state, 1 << 30);
    c.dtype = kn_draw_dtype(state);
    c.side_dtype = kn_draw_dtype(state);
    c.out_dtype = kn_draw_dtype(state);
    c.id_dtype = kn_draw_below(state, 2) ? KN_I32 : KN_I64;
    c.gap = kn_draw_below(state, 3) == 0 ? (int)kn_draw_below(state, 12) : 0;
    c.skip_percent = kn_draw_below(state, 3) == 0 ? 30 : 0;
    kiln_router_backward_options *o = &c.options.router;
    o->score = (int32_t)kn_draw_below(state, 4);
    o->normalise = (int32_t)kn_draw_below(state, 4);
    o->logits_gradient = (int32_t)kn_draw_below(state, 2);
    o->round_dlogits = (int32_t)kn_draw_below(state, 2);
    /* A sum of no scores at all is 0, and 0 / 0 no number: such tokens are tested on their own. */
    o->eps = o->normalise == KILN_NORMALISE_SUM_CLAMP && kn_draw_below(state, 2) ? 0.3
                                                                                 : (kn_draw_below(state, 2) ? 0.01 : 0);
    o->scaling = kn_draw_below(state, 2) ? 0 : 2.5;
    o->common.accumulate = kn_draw_below(state, 2) ? 0 : (uint64_t)kn_draw_below(state, 16);
    c.absent = draw_absent(state, o->score);
    if (!(c.absent & bit(AUX_ROW))) c.aux_rows = 1 + kn_draw_below(state, 5);
    if (kn_draw_below(state, 2)) c.swapped = bit(GRAD_MASK);
    return c;
}

#endif
