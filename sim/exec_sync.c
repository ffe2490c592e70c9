/* Barriers of a CTA, fences, and what ends or delays a thread.
 *
 * A barrier counts threads by whole warps. Without a count it waits for all warps of the CTA that have not exited. */
#include "sim/machine.h"
#include "sim/schedule.h"

/* One value for the whole warp, as the barrier number and the count must be. */
static kn_status uniform(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t active,
                         const char *what, uint32_t *out) {
    uint32_t room[KN_LANES];
    const uint32_t *v;
    KN_TRY(kn_src32(m, w, i, o, active, room, &v));
    int first = __builtin_ctz(active);
    for (int l = first + 1; l < KN_LANES; l++)
        if ((active >> l & 1) && v[l] != v[first])
            return kn_fault(m, w, i, l, "%s differs between lanes: %u and %u", what, v[first], v[l]);
    *out = v[first];
    return KN_OK;
}

static uint32_t all_threads(const kn_cta *c) {
    return c->live_warps * KN_LANES;
}

/* Has everybody come? Then a new phase begins. */
static void try_complete(kn_cta *c, kn_barrier *b) {
    uint32_t expected = b->expected == KN_BARRIER_ALL ? all_threads(c) : b->expected;
    if (b->arrived == 0 || b->arrived < expected) return;
    b->phase++;
    b->arrived = b->expected = 0;
    b->last_and = b->red_and;
    b->last_or = b->red_or;
    b->last_pop = b->red_pop;
    kn_wake(c->cluster);
}

void kn_barriers_recheck(kn_cta *c) {
    if (c->live_warps == 0) return;
    for (int k = 0; k < KN_BARRIERS; k++)
        if (c->bar[k].arrived && c->bar[k].expected == KN_BARRIER_ALL) try_complete(c, &c->bar[k]);
}

/* The barrier that the operands name, and the number of threads it is for. */
static kn_status find_barrier(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *number,
                              const kn_operand *count, uint32_t active, kn_barrier **out, uint32_t *expected) {
    uint32_t n;
    KN_TRY(uniform(m, w, i, number, active, "the barrier number", &n));
    if (n >= KN_BARRIERS) return kn_fault(m, w, i, -1, "barrier %u does not exist (0..%d)", n, KN_BARRIERS - 1);
    *out = &w->cta->bar[n];
    *expected = KN_BARRIER_ALL;
    if (!count) return KN_OK;
    KN_TRY(uniform(m, w, i, count, active, "the thread count", expected));
    if (*expected == 0 || *expected % KN_LANES)
        return kn_fault(m, w, i, -1, "the thread count %u of barrier %u is no positive multiple of %d", *expected, n,
                        KN_LANES);
    if (*expected > w->cta->n_warps * KN_LANES)
        return kn_fault(m, w, i, -1, "barrier %u waits for %u threads, the CTA has %u", n, *expected,
                        w->cta->n_warps * KN_LANES);
    return KN_OK;
}

static kn_status arrive(kn_machine *m, kn_warp *w, const kn_insn *i, kn_barrier *b, uint32_t expected,
                        uint32_t active) {
    uint32_t number = (uint32_t)(b - w->cta->bar), threads = (uint32_t)__builtin_popcount(active);
    if (active == w->live) threads = KN_LANES; /* lanes without a thread or exited ones count with their warp */
    if (b->arrived == 0) {
        b->expected = expected;
        b->red_and = 1;
        b->red_or = b->red_pop = 0;
    } else if (b->expected != expected) {
        uint32_t all = w->cta->n_warps * KN_LANES;
        return kn_fault(m, w, i, -1, "barrier %u is used with %u threads while others wait at it with %u", number,
                        expected == KN_BARRIER_ALL ? all : expected, b->expected == KN_BARRIER_ALL ? all : b->expected);
    }
    if (m->hb) KN_TRY(m->hb->release(m, w, &b->hb[b->phase & 1]));
    b->arrived += threads;
    if (expected != KN_BARRIER_ALL && b->arrived > expected)
        return kn_fault(m, w, i, -1, "%u threads have come to barrier %u, which waits for %u", b->arrived, number,
                        expected);
    return KN_OK;
}

/* Arrive at the first call, wait for the phase to end in later ones. */
static kn_status arrive_and_wait(kn_machine *m, kn_warp *w, const kn_insn *i, kn_barrier *b, uint32_t expected,
                                 uint32_t active) {
    kn_group *g = w->g;
    if (g->stage == 0) {
        KN_TRY(arrive(m, w, i, b, expected, active));
        g->stage = 1;
        g->ticket = b->phase;
        try_complete(w->cta, b);
    }
    if (b->phase == g->ticket) {
        g->wait = "waits at barrier";
        g->wait_arg = (uint64_t)(b - w->cta->bar);
        return KN_NOT_READY;
    }
    return m->hb ? m->hb->acquire(m, w, &b->hb[g->ticket & 1]) : KN_OK;
}

/* bar.sync a{, b} */
kn_status kn_x_bar_sync(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    kn_barrier *b;
    uint32_t expected;
    KN_TRY(find_barrier(m, w, i, &i->op[0], i->n_op > 1 ? &i->op[1] : NULL, active, &b, &expected));
    return arrive_and_wait(m, w, i, b, expected, active);
}

/* bar.arrive a, b */
kn_status kn_x_bar_arrive(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    kn_barrier *b;
    uint32_t expected;
    KN_TRY(find_barrier(m, w, i, &i->op[0], &i->op[1], active, &b, &expected));
    KN_TRY(arrive(m, w, i, b, expected, active));
    try_complete(w->cta, b);
    return KN_OK;
}

/* bar.red.op d, a{, b}, c */
kn_status kn_x_bar_red(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    kn_barrier *b;
    uint32_t expected, p, out[KN_LANES];
    KN_TRY(find_barrier(m, w, i, &i->op[1], i->n_op > 3 ? &i->op[2] : NULL, active, &b, &expected));
    KN_TRY(kn_src_pred(m, w, i, &i->op[i->n_op - 1], active, &p));
    if (w->g->stage == 0) {
        KN_TRY(arrive(m, w, i, b, expected, active));
        b->red_and &= p == active;
        b->red_or |= p != 0;
        b->red_pop += (uint32_t)__builtin_popcount(p);
        w->g->stage = 1;
        w->g->ticket = b->phase;
        try_complete(w->cta, b);
    }
    KN_TRY(arrive_and_wait(m, w, i, b, expected, active));
    if (i->m[KN_M_OP] == KN_TOK_and) return kn_put_pred(m, w, i, &i->op[0], active, b->last_and ? active : 0);
    if (i->m[KN_M_OP] == KN_TOK_or) return kn_put_pred(m, w, i, &i->op[0], active, b->last_or ? active : 0);
    for (int l = 0; l < KN_LANES; l++) out[l] = b->last_pop;
    return kn_put32(m, w, i, &i->op[0], active, out);
}

/* bar.* is barrier.*.aligned. */
kn_status kn_p_aligned(kn_insn *i) {
    i->m[KN_M_ALIGNED] = KN_TOK_aligned;
    return KN_OK;
}

/* ---- fences and the rest
 * ---------------------------------------------------------------------------------------------- */

kn_status kn_x_fence(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)active;
    return m->hb ? m->hb->fence(m, w, i) : KN_OK;
}

kn_status kn_x_nanosleep(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t room[KN_LANES];
    const uint32_t *v;
    KN_TRY(kn_src32(m, w, i, &i->op[0], active, room, &v));
    return KN_YIELD;
}

kn_status kn_x_trap(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    return kn_fault(m, w, i, __builtin_ctz(active), "the kernel stops itself with trap");
}
