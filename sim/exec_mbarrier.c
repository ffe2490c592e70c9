/* exec_mbarrier: the mbarrier instructions, and what asynchronous work does to mbarriers. */
#include "sim/exec_copy.h"
#include "sim/units.h"

/* ---- places ---------------------------------------------------------------------------------------------- */

kn_status kn_cta_units_of(kn_cta *cta, kn_cta_units **out) {
    if (!cta->units) cta->units = kn_arena_alloc(&cta->cluster->arena, sizeof(kn_cta_units));
    KN_REQUIRE(cta->units != NULL, KN_E_NOMEM, "out of memory for the units of a CTA");
    *out = cta->units;
    return KN_OK;
}

kn_status kn_warp_units_of(kn_warp *w, kn_warp_units **out) {
    if (!w->units) w->units = kn_arena_alloc(&w->cta->cluster->arena, sizeof(kn_warp_units));
    KN_REQUIRE(w->units != NULL, KN_E_NOMEM, "out of memory for the units of a warp");
    *out = w->units;
    return KN_OK;
}

kn_status kn_units_shared(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint8_t space,
                          uint32_t active, uint64_t out[32]) {
    KN_TRY(kn_src_addr(m, w, i, o, active, out));
    if (space != KN_SPACE_GENERIC || o->slot == KN_NO_SLOT) return KN_OK;
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(mask);
        uint64_t addr;
        if (kn_resolve(out[lane], &addr) != KN_SPACE_SHARED_CLUSTER)
            return kn_fault(m, w, i, (int)lane, "the generic address 0x%llx does not lie in shared memory",
                            (unsigned long long)out[lane]);
        out[lane] = addr;
    }
    return KN_OK;
}

/* The mbarrier at `offset` of a CTA; NULL when there was never one. */
static kn_bar_slot *find_slot(kn_cta *cta, uint32_t offset) {
    kn_cta_units *u = cta->units;
    kn_bar_slot *s = u ? u->bars : NULL;
    while (s && s->offset != offset) s = s->next;
    return s;
}

/* Is the init ordered before this lane's use: directly, or through a fence.mbarrier_init? */
static bool init_known(const kn_warp *w, const kn_bar_slot *s, uint32_t lane) {
    const kn_hb_warp *h = w->hb;
    if (!h) return true;
    uint32_t cluster = w->cta->cluster->index, agent = kn_epoch_agent(s->init), count = kn_epoch_count(s->init);
    uint32_t bit = 1u << s->init_lane;
    if (agent == h->base && lane == s->init_lane) return true;
    const kn_vc *v = kn_hb_view(w, 1u << lane);
    return kn_tick_covers(kn_vc_get(v, KN_L_ORDER, cluster, agent), count, bit) ||
           kn_tick_covers(kn_vc_get(v, KN_L_ORDER, cluster, agent + KN_A_INIT), count, bit);
}

kn_status kn_bar_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t addr, bool async,
                    kn_bar_slot **out) {
    kn_cta *cta = NULL;
    uint32_t offset = 0;
    KN_TRY(kn_shared_at(m, w, i, lane, addr, 8, 8, &cta, &offset));
    kn_bar_slot *s = find_slot(cta, offset);
    if (!s || s->b.expected == 0)
        return kn_fault(m, w, i, lane, "there is no live mbarrier at shared address 0x%llx", (unsigned long long)addr);
    if (!init_known(w, s, (uint32_t)lane))
        return kn_fault(m, w, i, lane, "the mbarrier at 0x%llx is used without order behind its mbarrier.init",
                        (unsigned long long)addr);
    if (async && w->hb && !s->fenced)
        return kn_fault(m, w, i, lane,
                        "the asynchronous proxy uses the mbarrier at 0x%llx, but neither a fence.mbarrier_init nor a "
                        "fence.proxy.async has followed its mbarrier.init",
                        (unsigned long long)addr);
    *out = s;
    return KN_OK;
}

/* fence.mbarrier_init or fence.proxy.async by w: inits that it knows of are now fit for the asynchronous proxy. */
static void fence_inits(kn_warp *w, uint32_t lanes) {
    kn_cluster *c = w->cta->cluster;
    for (uint32_t k = 0; k < c->n_ctas; k++) {
        kn_cta_units *u = c->ctas[k].units;
        for (kn_bar_slot *s = u ? u->bars : NULL; s; s = s->next) {
            if (s->fenced) continue;
            for (uint32_t mask = lanes; mask && !s->fenced; mask &= mask - 1)
                s->fenced = init_known(w, s, (uint32_t)__builtin_ctz(mask));
        }
    }
}

kn_epoch kn_bar_running(const kn_bar_slot *s, uint64_t flags) {
    return kn_epoch_make(s->cta->cluster->index, s->agent, 0, KN_EPOCH_RUNNING, flags);
}

kn_epoch kn_bar_done(const kn_bar_slot *s, uint64_t flags) {
    return kn_epoch_make(s->cta->cluster->index, s->agent, 0, s->turn, flags);
}

/* ---- phases ---------------------------------------------------------------------------------------------- */

/* The phase is complete: waiters learn what its arrivals released, and the work that completed on it. */
static kn_status phase_done(kn_bar_slot *s) {
    kn_cluster *c = s->cta->cluster;
    if (s->arrived) {
        KN_TRY(kn_vc_raise(&s->arrived->vc, KN_L_ORDER, c->index, s->agent, (kn_tick){s->turn, 0, 0}));
        KN_TRY(kn_vc_copy(&s->complete->vc, &s->arrived->vc));
    }
    s->turn++;
    kn_wake(c);
    return KN_OK;
}

static kn_status broken(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, const kn_bar_slot *s, const char *why) {
    return kn_fault(m, w, i, lane,
                    "mbarrier at shared address 0x%x of CTA %u (phase %u, %u of %u arrivals pending, %d bytes "
                    "pending): %s",
                    s->offset, s->cta->rank, s->b.phase, s->b.pending, s->b.expected, s->b.tx, why);
}

kn_status kn_bar_complete_tx(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_bar_slot *s, uint32_t bytes) {
    bool done = false;
    const char *why = kn_mbar_complete_tx(&s->b, bytes, &done);
    if (why) return broken(m, w, i, lane, s, why);
    return done ? phase_done(s) : KN_OK;
}

/* An arrival whose release the caller has done already (on s->arrived). */
static kn_status arrive_released(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_bar_slot *s,
                                 uint32_t count) {
    bool done = false;
    const char *why = kn_mbar_arrive(&s->b, count, &done);
    if (why) return broken(m, w, i, lane, s, why);
    return done ? phase_done(s) : KN_OK;
}

/* ---- instructions ---------------------------------------------------------------------------------------- */

static kn_status init_one(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t lane, uint64_t addr, uint32_t count) {
    kn_cta *cta = NULL;
    uint32_t offset = 0;
    kn_cta_units *u = NULL;
    KN_TRY(kn_shared_at(m, w, i, (int)lane, addr, 8, 8, &cta, &offset));
    if (cta != w->cta) return kn_fault(m, w, i, (int)lane, "an mbarrier is initialised by another CTA than its own");
    KN_TRY(kn_cta_units_of(cta, &u));
    kn_bar_slot *s = find_slot(cta, offset);
    for (kn_bar_slot *o = u->bars; o; o = o->next)
        if (o != s && o->b.expected && offset < o->offset + 8 && o->offset < offset + 8)
            return kn_fault(m, w, i, (int)lane, "the mbarrier overlaps the one at shared address 0x%x", o->offset);
    for (uint32_t k = 0; k < 8; k++)
        if (cta->shadow[offset + k] & KN_SH_INFLIGHT)
            return kn_fault(m, w, i, (int)lane, "mbarrier.init of bytes that an asynchronous operation is writing");
    if (!s) {
        s = kn_arena_alloc(&cta->cluster->arena, sizeof *s);
        KN_REQUIRE(s != NULL, KN_E_NOMEM, "out of memory for an mbarrier");
        *s = (kn_bar_slot){.offset = offset, .cta = cta, .turn = 1, .next = u->bars};
        KN_TRY(kn_hb_mbar_agent(cta->cluster, (uint32_t)addr, &s->agent));
        KN_TRY(kn_hb_object_make(cta->cluster, &s->arrived));
        KN_TRY(kn_hb_object_make(cta->cluster, &s->complete));
        u->bars = s;
    }
    const char *why = kn_mbar_init(&s->b, count);
    if (why) return broken(m, w, i, (int)lane, s, why);
    kn_hb_access a = {.who = kn_hb_epoch(w, KN_A_THREADS, lane, 0),
                      .vc = w->hb ? kn_hb_view(w, 1u << lane) : NULL,
                      .kind = KN_WRITE,
                      .lane = (int)lane,
                      .self = w,
                      .in_program = true};
    KN_TRY(kn_hb_shared(m, w, i, &a, cta, offset, 8));
    memset(cta->shadow + offset, KN_SH_OBJECT, 8);
    s->init = a.who;
    s->init_lane = lane;
    s->fenced = false;
    return KN_OK;
}

kn_status kn_x_mbar_init(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[32];
    uint32_t room[32];
    const uint32_t *count;
    KN_TRY(kn_units_shared(m, w, i, &i->op[0], i->space[0], active, addr));
    KN_TRY(kn_src32(m, w, i, &i->op[1], active, room, &count));
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(mask);
        KN_TRY(init_one(m, w, i, lane, addr[lane], count[lane]));
    }
    return KN_OK;
}

kn_status kn_x_mbar_inval(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[32];
    KN_TRY(kn_units_shared(m, w, i, &i->op[0], i->space[0], active, addr));
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        kn_bar_slot *s = NULL;
        KN_TRY(kn_bar_at(m, w, i, lane, addr[lane], false, &s));
        const char *why = kn_mbar_inval(&s->b);
        if (why) return broken(m, w, i, lane, s, why);
        memset(s->cta->shadow + s->offset, 0, 8);
        kn_hb_shared_clear(s->cta, s->offset, 8);
    }
    return KN_OK;
}

/* arrive and its kin. What the instruction does besides, in aux. */
enum { ARRIVE, ARRIVE_EXPECT, ARRIVE_NO_COMPLETE, ARRIVE_DROP, ARRIVE_DROP_EXPECT, ARRIVE_DROP_NO_COMPLETE };

static const char *arrive(kn_bar_slot *s, uint64_t how, uint32_t count, uint32_t tx, bool *done) {
    const char *why = NULL;
    if (how == ARRIVE_EXPECT || how == ARRIVE_DROP_EXPECT) why = kn_mbar_expect_tx(&s->b, tx);
    if (why) return why;
    if (how == ARRIVE_NO_COMPLETE) return kn_mbar_arrive_no_complete(&s->b, count);
    if (how == ARRIVE_DROP_NO_COMPLETE && count >= s->b.pending) return "an arrive.noComplete would complete the phase";
    return how >= ARRIVE_DROP ? kn_mbar_arrive_drop(&s->b, count, done) : kn_mbar_arrive(&s->b, count, done);
}

/* Lanes that arrive at the same mbarrier release together. */
static kn_status arrive_lanes(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t lanes, uint64_t addr,
                              const uint32_t *arg, uint64_t state[32]) {
    kn_bar_slot *s = NULL;
    bool expects = i->aux == ARRIVE_EXPECT || i->aux == ARRIVE_DROP_EXPECT;
    for (uint32_t mask = lanes; mask; mask &= mask - 1)
        KN_TRY(kn_bar_at(m, w, i, __builtin_ctz(mask), addr, false, &s));
    kn_hb_visit(w, lanes, s->cta);
    if (s->arrived && i->m[KN_M_SEM] == KN_TOK_relaxed)
        KN_TRY(kn_hb_release_relaxed(w, &s->arrived->vc));
    else if (s->arrived)
        KN_TRY(kn_hb_release(m, w, lanes, &s->arrived->vc));
    for (uint32_t mask = lanes; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        bool done = false;
        state[lane] = kn_mbar_state(&s->b);
        const char *why = arrive(s, i->aux, expects || !arg ? 1 : arg[lane], expects ? arg[lane] : 0, &done);
        if (why) return broken(m, w, i, lane, s, why);
        if (done) KN_TRY(phase_done(s));
    }
    return KN_OK;
}

kn_status kn_x_mbar_arrive(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[32], state[32] = {0};
    uint32_t room[32];
    const uint32_t *arg = NULL;
    KN_TRY(kn_units_shared(m, w, i, &i->op[1], i->space[0], active, addr));
    if (i->n_op > 2) KN_TRY(kn_src32(m, w, i, &i->op[2], active, room, &arg));
    for (uint32_t mask = active; mask;) {
        uint64_t at = addr[__builtin_ctz(mask)];
        uint32_t same = 0;
        for (uint32_t k = mask; k; k &= k - 1)
            if (addr[__builtin_ctz(k)] == at) same |= k & -k;
        KN_TRY(arrive_lanes(m, w, i, same, at, arg, state));
        mask &= ~same;
    }
    if (i->op[0].kind != KN_O_SINK) {
        for (uint32_t mask = active; mask; mask &= mask - 1)
            if (KN_SMEM_RANK(addr[__builtin_ctz(mask)]) != w->cta->rank)
                return kn_fault(m, w, i, __builtin_ctz(mask), "an arrival at another CTA's mbarrier returns no state");
    }
    return kn_put64(m, w, i, &i->op[0], active, state);
}

static kn_status prep_arrive(kn_insn *i, uint64_t how) {
    i->aux = how;
    if ((how == ARRIVE_NO_COMPLETE || how == ARRIVE_DROP_NO_COMPLETE || how == ARRIVE_EXPECT ||
         how == ARRIVE_DROP_EXPECT) &&
        i->n_op < 3)
        return kn_insn_error(i, "a third operand is missing");
    if (i->space[0] == KN_SPACE_SHARED_CLUSTER && i->op[0].kind != KN_O_SINK)
        return kn_insn_error(i, ".shared::cluster returns no state: write _ instead");
    return KN_OK;
}

kn_status kn_p_mbar_arrive(kn_insn *i) {
    bool drop = strstr(i->text, "arrive_drop") != NULL;
    if (strstr(i->text, "expect_tx")) return prep_arrive(i, drop ? ARRIVE_DROP_EXPECT : ARRIVE_EXPECT);
    if (strstr(i->text, "noComplete")) return prep_arrive(i, drop ? ARRIVE_DROP_NO_COMPLETE : ARRIVE_NO_COMPLETE);
    return prep_arrive(i, drop ? ARRIVE_DROP : ARRIVE);
}

/* expect_tx and complete_tx on their own. */
kn_status kn_x_mbar_tx(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[32];
    uint32_t room[32];
    const uint32_t *bytes;
    KN_TRY(kn_units_shared(m, w, i, &i->op[0], i->space[0], active, addr));
    KN_TRY(kn_src32(m, w, i, &i->op[1], active, room, &bytes));
    bool completes = strncmp(i->text, "mbarrier.complete_tx", 20) == 0;
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        kn_bar_slot *s = NULL;
        KN_TRY(kn_bar_at(m, w, i, lane, addr[lane], false, &s));
        kn_hb_visit(w, 1u << lane, s->cta);
        if (completes) {
            KN_TRY(kn_bar_complete_tx(m, w, i, lane, s, bytes[lane]));
            continue;
        }
        const char *why = kn_mbar_expect_tx(&s->b, bytes[lane]);
        if (why) return broken(m, w, i, lane, s, why);
    }
    return KN_OK;
}

/* test_wait and try_wait. A try_wait sleeps until the phase completes, and sometimes gives up before, as it may. */
static kn_status test_lane(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t addr, uint64_t arg,
                           bool *done, kn_bar_slot **out) {
    kn_bar_slot *s = NULL;
    KN_TRY(kn_bar_at(m, w, i, lane, addr, false, &s));
    const char *why =
        i->aux & 1 ? kn_mbar_test_parity(&s->b, (uint32_t)arg, done) : kn_mbar_test_state(&s->b, arg, done);
    if (why) return broken(m, w, i, lane, s, why);
    *out = s;
    return KN_OK;
}

kn_status kn_x_mbar_wait(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[32], room64[32];
    uint32_t room[32], passed = 0;
    const uint32_t *parity = NULL;
    const uint64_t *state = NULL;
    kn_bar_slot *slot[32] = {0};
    KN_TRY(kn_units_shared(m, w, i, &i->op[1], i->space[0], active, addr));
    if (i->aux & 1)
        KN_TRY(kn_src32(m, w, i, &i->op[2], active, room, &parity));
    else
        KN_TRY(kn_src64(m, w, i, &i->op[2], active, room64, &state));
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        bool done = false;
        KN_TRY(test_lane(m, w, i, lane, addr[lane], parity ? parity[lane] : state[lane], &done, &slot[lane]));
        if (done) passed |= 1u << lane;
    }
    bool gives_up = false;
    if (passed == 0 && i->aux & 2) {
        w->g->wait = "the phase of the mbarrier at shared address";
        w->g->wait_arg = addr[__builtin_ctz(active)];
        if (w->g->stage == 0) gives_up = kn_choose(m, 16) == 0;
        w->g->stage = 1;
        if (!gives_up) return KN_NOT_READY;
    }
    for (uint32_t mask = passed; mask && i->m[KN_M_SEM] != KN_TOK_relaxed;) {
        kn_bar_slot *s = slot[__builtin_ctz(mask)];
        uint32_t same = 0;
        for (uint32_t k = mask; k; k &= k - 1)
            if (slot[__builtin_ctz(k)] == s) same |= k & -k;
        if (s->complete) KN_TRY(kn_hb_acquire(w, same, &s->complete->vc));
        mask &= ~same;
    }
    KN_TRY(kn_put_pred(m, w, i, &i->op[0], active, passed));
    return passed ? KN_OK : KN_YIELD;
}

kn_status kn_p_mbar_wait(kn_insn *i) {
    i->aux = (strstr(i->text, ".parity") ? 1u : 0u) | (strstr(i->text, "try_wait") ? 2u : 0u);
    return KN_OK;
}

kn_status kn_x_mbar_pending(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t room[32];
    const uint64_t *state;
    uint32_t count[32];
    KN_TRY(kn_src64(m, w, i, &i->op[1], active, room, &state));
    for (int lane = 0; lane < 32; lane++) count[lane] = active >> lane & 1 ? kn_mbar_state_pending(state[lane]) : 0;
    return kn_put32(m, w, i, &i->op[0], active, count);
}

/* ---- cp.async.mbarrier.arrive: an arrival when the thread's cp.async so far have landed ------------------ */

typedef struct copy_arrival {
    kn_bar_slot *slot;
    uint64_t mark;
} copy_arrival;

static kn_status arrive_behind_copies(kn_machine *m, kn_async *a) {
    copy_arrival *c = a->data;
    if (!kn_copy_done(a->warp, a->lane, c->mark)) return KN_NOT_READY;
    KN_TRY(kn_copy_publish(m, a->warp, a->lane, c->mark));
    if (c->slot->arrived) KN_TRY(kn_hb_release(m, a->warp, 1u << a->lane, &c->slot->arrived->vc));
    return arrive_released(m, a->warp, a->insn, a->lane, c->slot, 1);
}

kn_status kn_x_copy_arrive(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[32];
    bool counts_itself = strstr(i->text, ".noinc") == NULL;
    KN_TRY(kn_units_shared(m, w, i, &i->op[0], i->space[0], active, addr));
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        kn_bar_slot *s = NULL;
        kn_async *a = NULL;
        KN_TRY(kn_bar_at(m, w, i, lane, addr[lane], false, &s));
        const char *why = counts_itself ? kn_mbar_add_pending(&s->b) : NULL;
        if (why) return broken(m, w, i, lane, s, why);
        KN_TRY(kn_async_begin(m, w, i, lane, arrive_behind_copies, sizeof(copy_arrival), &a));
        *(copy_arrival *)a->data = (copy_arrival){s, kn_copy_mark(w)};
    }
    return KN_OK;
}

/* ---- fences of the asynchronous proxy -------------------------------------------------------------------- */

kn_status kn_x_fence_proxy(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    bool all = i->space[0] == KN_SPACE_GENERIC;
    fence_inits(w, active);
    return kn_hb_fence_proxy(m, w, active, all || i->space[0] != KN_SPACE_GLOBAL,
                             all || i->space[0] == KN_SPACE_GLOBAL);
}

kn_status kn_x_fence_init(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)i;
    fence_inits(w, active);
    return kn_hb_fence_init(m, w, active);
}

/* Nothing here depends on aliases of addresses. */
kn_status kn_x_fence_alias(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)m;
    (void)w;
    (void)i;
    (void)active;
    return KN_OK;
}
