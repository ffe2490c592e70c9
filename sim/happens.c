/* happens: what the warps know, and the hooks of kn_hb_ops. See happens.h. */
#include "sim/happens.h"

#include "base/alloc.h"
#include "sim/fault.h"
#include "sim/ptx_module.h"
#include "sim/units.h"

#include <stdio.h>

static kn_hb_warp *hb_of(const kn_warp *w) {
    return w->hb;
}

static uint32_t cluster_of(const kn_warp *w) {
    return w->cta->cluster->index;
}

/* ---- what a warp knows ------------------------------------------------------------------------------------------- */

const kn_vc *kn_hb_view(const kn_warp *w, uint32_t lanes) {
    const kn_hb_warp *h = hb_of(w);
    return h->some_mask && (lanes & ~h->some_mask) == 0 ? &h->some : &h->all;
}

static bool whole(const kn_warp *w, uint32_t lanes) {
    return (w->live & ~lanes) == 0;
}

/* The clock that lanes `lanes` alone are about to learn something in. */
static kn_status open_some(kn_warp *w, uint32_t lanes) {
    kn_hb_warp *h = hb_of(w);
    if (!h->some_mask) KN_TRY(kn_vc_copy(&h->some, &h->all));
    h->some_mask |= lanes;
    return KN_OK;
}

static kn_status merge_some(kn_warp *w) {
    kn_hb_warp *h = hb_of(w);
    if (h->some_mask) KN_TRY(kn_vc_join(&h->all, &h->some));
    h->some_mask = 0;
    return KN_OK;
}

/* Run `expr` on the clock V of the lanes, or on both clocks when the lanes are the whole warp. */
#define LEARN(w, lanes, V, expr)                                                                                       \
    do {                                                                                                               \
        kn_hb_warp *h_ = hb_of(w);                                                                                     \
        if (!whole(w, lanes)) {                                                                                        \
            KN_TRY(open_some(w, lanes));                                                                               \
        } else {                                                                                                       \
            kn_vc *V = &h_->all;                                                                                       \
            expr;                                                                                                      \
        }                                                                                                              \
        if (h_->some_mask) {                                                                                           \
            kn_vc *V = &h_->some;                                                                                      \
            expr;                                                                                                      \
        }                                                                                                              \
    } while (0)

static kn_tick tick_of(const kn_warp *w, uint32_t lanes, uint32_t count) {
    return whole(w, lanes) ? (kn_tick){count, 0, 0} : (kn_tick){0, count, lanes};
}

/* The warp's threads begin a new count: what they do from here on is not covered by what was just published. */
static kn_status advance(kn_machine *m, kn_warp *w) {
    kn_hb_warp *h = hb_of(w);
    uint32_t n = ++h->count[KN_A_THREADS];
    if (n >= KN_EPOCH_MAX)
        return kn_fail(KN_E_SIM, "a warp synchronises more than %d times in one launch", KN_EPOCH_MAX);
    if (n >= h->room_lines) {
        uint32_t room = h->room_lines ? 2 * h->room_lines : 64;
        uint32_t *more = kn_realloc(h->line, room * sizeof *more);
        KN_REQUIRE(more != NULL, KN_E_NOMEM, "out of memory for the simulator's vector clocks");
        h->line = more;
        h->room_lines = room;
    }
    h->line[n] = w->g ? m->entry->code[w->g->pc].line : 0;
    return KN_OK;
}

/* What lanes `lanes` have waited for on their own becomes known in v. */
static kn_status tell_own(const kn_warp *w, uint32_t lanes, kn_vc *v) {
    const kn_hb_warp *h = hb_of(w);
    for (uint32_t mask = lanes & h->own_mask; mask; mask &= mask - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(mask);
        for (uint32_t k = 0; k < 2; k++)
            if (h->own[k][lane])
                KN_TRY(kn_vc_raise(v, KN_L_ORDER, cluster_of(w), h->base + KN_A_BULK_READ + k,
                                   (kn_tick){0, h->own[k][lane], 1u << lane}));
    }
    return KN_OK;
}

kn_status kn_hb_release(kn_machine *m, kn_warp *w, uint32_t lanes, kn_vc *obj) {
    kn_hb_warp *h = hb_of(w);
    if (!h) return KN_OK;
    KN_TRY(kn_vc_join(obj, lanes & h->some_mask ? &h->some : &h->all)); /* some knows all that all know */
    KN_TRY(tell_own(w, lanes, obj));
    KN_TRY(kn_vc_raise(obj, KN_L_ORDER, cluster_of(w), h->base, tick_of(w, lanes, h->count[KN_A_THREADS])));
    return advance(m, w);
}

kn_status kn_hb_release_relaxed(kn_warp *w, kn_vc *obj) {
    kn_hb_warp *h = hb_of(w);
    if (!h || !h->has_fenced) return KN_OK;
    return kn_vc_join(obj, &h->fenced);
}

kn_status kn_hb_acquire(kn_warp *w, uint32_t lanes, const kn_vc *obj) {
    if (!w->hb) return KN_OK;
    LEARN(w, lanes, v, KN_TRY(kn_vc_join(v, obj)));
    return KN_OK;
}

/* bar.warp.sync: the lanes know each other's past. */
static kn_status sync_warp(kn_machine *m, kn_warp *w, uint32_t lanes) {
    kn_hb_warp *h = hb_of(w);
    if (!h) return KN_OK;
    if (whole(w, lanes)) KN_TRY(merge_some(w));
    kn_tick t = tick_of(w, lanes, h->count[KN_A_THREADS]);
    LEARN(w, lanes, v, KN_TRY(kn_vc_raise(v, KN_L_ORDER, cluster_of(w), h->base, t)); KN_TRY(tell_own(w, lanes, v)));
    h->own_mask &= ~lanes;
    return advance(m, w);
}

kn_status kn_hb_fence_proxy(kn_machine *m, kn_warp *w, uint32_t lanes, bool shared, bool global) {
    kn_hb_warp *h = hb_of(w);
    if (!h) return KN_OK;
    kn_tick t = tick_of(w, lanes, h->count[KN_A_THREADS]);
    for (kn_layer l = KN_L_PROXY_SHARED; l < KN_LAYERS; l++) {
        if (l == KN_L_PROXY_SHARED ? !shared : !global) continue;
        LEARN(w, lanes, v, kn_vc_fence(v, l); KN_TRY(kn_vc_raise(v, l, cluster_of(w), h->base, t)));
    }
    return advance(m, w);
}

kn_status kn_hb_fence_init(kn_machine *m, kn_warp *w, uint32_t lanes) {
    kn_hb_warp *h = hb_of(w);
    if (!h) return KN_OK;
    kn_tick t = tick_of(w, lanes, h->count[KN_A_THREADS]);
    LEARN(w, lanes, v, KN_TRY(kn_vc_raise(v, KN_L_ORDER, cluster_of(w), h->base + KN_A_INIT, t)));
    KN_TRY(kn_vc_raise(&h->fenced, KN_L_ORDER, cluster_of(w), h->base + KN_A_INIT, t));
    h->has_fenced = true;
    return advance(m, w);
}

kn_status kn_hb_waited(kn_warp *w, uint32_t lanes, kn_agent a, uint32_t count) {
    kn_hb_warp *h = hb_of(w);
    if (!h || count == 0) return KN_OK;
    kn_tick t = tick_of(w, lanes, count);
    LEARN(w, lanes, v, KN_TRY(kn_vc_raise(v, KN_L_ORDER, cluster_of(w), h->base + (uint32_t)a, t)));
    return KN_OK;
}

void kn_hb_waited_alone(kn_warp *w, uint32_t lane, kn_agent a, uint32_t count) {
    kn_hb_warp *h = hb_of(w);
    if (!h || count == 0) return;
    h->own[a - KN_A_BULK_READ][lane] = count;
    h->own_mask |= 1u << lane;
}

kn_status kn_hb_grid_wait(kn_warp *w, uint32_t lanes) {
    if (!w->hb) return KN_OK;
    uint32_t agent = ((const kn_hb_cluster *)w->cta->cluster->hb)->grid_agent;
    LEARN(w, lanes, v, KN_TRY(kn_vc_raise(v, KN_L_ORDER, cluster_of(w), agent, (kn_tick){1, 0, 0})));
    return KN_OK;
}

kn_epoch kn_hb_epoch(const kn_warp *w, kn_agent a, uint32_t lane, uint64_t flags) {
    const kn_hb_warp *h = hb_of(w);
    if (!h) return 0;
    return kn_epoch_make(cluster_of(w), h->base + (uint32_t)a, lane, h->count[a], flags);
}

/* ---- order and reports ----------------------------------------------------------------------------------- */

bool kn_hb_ordered_slow(kn_hb_access *a, kn_epoch prior, uint32_t lanes, kn_layer proxy) {
    if (prior & a->who & KN_EPOCH_STRONG) return true;
    if (kn_epoch_count(prior) == KN_EPOCH_RUNNING) return false;
    bool crosses = !(prior & KN_EPOCH_ASYNC) && (a->who & KN_EPOCH_ASYNC);
    uint32_t cluster = kn_epoch_cluster(prior), agent = kn_epoch_agent(prior), count = kn_epoch_count(prior);
    bool mine =
        cluster == cluster_of(a->self) && agent == hb_of(a->self)->base && (a->lane < 0 || lanes == 1u << a->lane);
    const kn_hb_warp *h = hb_of(a->self);
    uint32_t own = agent - h->base - KN_A_BULK_READ; /* of the warp's bulk groups: 0 or 1 */
    if (cluster == cluster_of(a->self) && own < 2 && a->lane >= 0 && lanes == 1u << a->lane)
        mine |= h->own[own][a->lane] >= count;
    kn_tick t = kn_vc_get(a->vc, KN_L_ORDER, cluster, agent);
    if (!mine && !kn_tick_covers(t, count, lanes)) return false;
    if (crosses) { /* ordered, and fenced on the way */
        kn_tick fenced = kn_vc_get(a->vc, proxy, cluster, agent);
        if (!kn_tick_covers(fenced, count, lanes)) return false;
        if (fenced.all < t.all) t.all = fenced.all;
    }
    if (count <= t.all) {
        a->known[1] = a->known[0];
        a->known[0] = prior & ~KN_EPOCH_LANE_BITS;
    }
    return true;
}

static void put_line(kn_machine *m, uint32_t line, char *out, size_t cap) {
    const kn_sim_launch *l = m->run->launch;
    if (line == 0)
        snprintf(out, cap, "the start");
    else if (l->origin)
        l->origin(l->origin_user, line, out, cap);
    else
        snprintf(out, cap, "PTX line %u", line);
}

/* "warp 3 of CTA 1, lane 5, between PTX line 10 and PTX line 20" */
static void describe(kn_machine *m, kn_epoch e, uint32_t lanes, char *out, size_t cap) {
    static const char *const engine[KN_AGENTS] = {"", "a wgmma of ", "a bulk copy of ", "a bulk store of ",
                                                  "mbarrier.init of "};
    uint32_t agent = kn_epoch_agent(e), n_warps = m->run->n_warps, cluster = kn_epoch_cluster(e);
    const kn_cluster *c = m->cluster;
    const kn_hb_cluster *hc = c->hb;
    if (cluster != c->index) {
        snprintf(out, cap, "another CTA (cluster %u)", cluster);
        return;
    }
    if (agent >= hc->first_mbar) {
        snprintf(out, cap, "an asynchronous copy that completes on the mbarrier at shared address 0x%x",
                 hc->mbar_addr[agent - hc->first_mbar]);
        return;
    }
    uint32_t warp = agent / KN_AGENTS;
    const kn_warp *w = &c->ctas[warp / n_warps].warps[warp % n_warps];
    int n = snprintf(out, cap, "%swarp %u of CTA %u", engine[agent % KN_AGENTS], w->id, w->cta->rank);
    if (agent % KN_AGENTS != KN_A_THREADS) return;
    const kn_hb_warp *h = hb_of(w);
    uint32_t count = kn_epoch_count(e), to = count < h->count[KN_A_THREADS] ? h->line[count + 1] : 0;
    char from_text[160], to_text[160];
    put_line(m, h->line[count], from_text, sizeof from_text);
    put_line(m, to, to_text, sizeof to_text);
    snprintf(out + n, cap - (size_t)n, ", lane %d, somewhere between %s and %s", __builtin_ctz(lanes), from_text,
             to ? to_text : "now");
}

kn_status kn_hb_race(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_hb_access *a, const char *where,
                     uint64_t addr, kn_epoch prior, uint32_t prior_lanes, bool prior_is_write) {
    char who[512];
    describe(m, prior, prior_lanes, who, sizeof who);
    const char *now = a->kind == KN_READ ? "reads" : a->kind == KN_WRITE ? "writes" : "updates";
    bool crosses = !(prior & KN_EPOCH_ASYNC) && (a->who & KN_EPOCH_ASYNC),
         running = kn_epoch_count(prior) == KN_EPOCH_RUNNING;
    kn_hb_access plain = {
        .who = a->who & ~KN_EPOCH_ASYNC, .lanes = a->lanes, .vc = a->vc, .self = a->self, .lane = a->lane};
    if (crosses && !running && kn_hb_ordered_slow(&plain, prior, prior_lanes, KN_L_ORDER))
        return kn_fault(m, w, i, a->lane,
                        "the asynchronous proxy %s %s 0x%llx, %s through ordinary accesses by %s, without a "
                        "fence.proxy.async in between",
                        now, where, (unsigned long long)addr, prior_is_write ? "written" : "read", who);
    if (running)
        return kn_fault(m, w, i, a->lane, "%s %s 0x%llx while it is being %s by %s", now, where,
                        (unsigned long long)addr, prior_is_write ? "written" : "read", who);
    return kn_fault(m, w, i, a->lane, "race: %s %s 0x%llx, %s by %s, without synchronisation in between", now, where,
                    (unsigned long long)addr, prior_is_write ? "written" : "read", who);
}

kn_status kn_hb_mbar_agent(kn_cluster *c, uint32_t addr, uint32_t *agent) {
    kn_hb_cluster *h = c->hb;
    *agent = 0;
    if (!h) return KN_OK;
    uint32_t n = h->n_agents - h->first_mbar;
    if (h->n_agents >= KN_AGENT_MAX) return kn_fail(KN_E_SIM, "a cluster uses more than %u mbarriers", n);
    if (n == h->room_mbars) {
        uint32_t room = n ? 2 * n : 32, *more = kn_realloc(h->mbar_addr, room * sizeof *more);
        KN_REQUIRE(more != NULL, KN_E_NOMEM, "out of memory for the simulator's mbarriers");
        h->mbar_addr = more;
        h->room_mbars = room;
    }
    h->mbar_addr[n] = addr;
    *agent = h->n_agents++;
    return KN_OK;
}

/* ---- the hooks ------------------------------------------------------------------------------------------- */

static void cluster_end(kn_machine *m, kn_cluster *c) {
    (void)m;
    kn_hb_cluster *hc = c->hb;
    if (!hc) return;
    for (uint32_t k = 0; k < c->n_ctas; k++) {
        kn_cta *cta = &c->ctas[k];
        kn_hb_cta *h = cta->hb;
        for (uint32_t n = 0; n < cta->n_warps; n++) {
            kn_hb_warp *hw = cta->warps[n].hb;
            if (!hw) continue;
            kn_vc_free(&hw->all);
            kn_vc_free(&hw->some);
            kn_vc_free(&hw->fenced);
            kn_vc_free(&hw->seen);
            kn_free(hw->line);
            cta->warps[n].hb = NULL;
        }
        if (h) {
            kn_free(h->written);
            kn_free(h->read);
            kn_free(h->split_written);
            kn_free(h->split_read);
            kn_free(h->free_splits);
            kn_free(h->visitor);
            kn_vc_free(&h->exited);
        }
        cta->hb = NULL;
    }
    for (kn_hb_object *o = hc->objects; o; o = o->next) kn_vc_free(&o->vc);
    kn_reads_free(&hc->reads);
    kn_free(hc->mbar_addr);
    kn_hb_places_free(&hc->places);
    c->hb = NULL;
}

static kn_status begin_warp(kn_machine *m, kn_cluster *c, kn_warp *w, uint32_t index) {
    kn_hb_warp *h = kn_arena_alloc(&c->arena, sizeof *h);
    KN_REQUIRE(h != NULL, KN_E_NOMEM, "out of memory for the simulator's vector clocks");
    w->hb = h;
    h->base = index * KN_AGENTS;
    for (int a = 1; a < KN_AGENTS; a++) h->count[a] = 1;
    return advance(m, w);
}

static kn_status cluster_begin(kn_machine *m, kn_cluster *c) {
    uint32_t n_warps = m->run->n_warps;
    kn_hb_cluster *hc = kn_arena_alloc(&c->arena, sizeof *hc);
    KN_REQUIRE(hc != NULL, KN_E_NOMEM, "out of memory for the simulator's ordering checks");
    c->hb = hc;
    hc->grid_agent = c->n_ctas * n_warps * KN_AGENTS;
    hc->first_mbar = hc->n_agents = hc->grid_agent + 1;
    KN_REQUIRE(c->index <= KN_CLUSTER_MAX, KN_E_SIM, "the grid has more than %d clusters", KN_CLUSTER_MAX);
    for (uint32_t k = 0; k < c->n_ctas; k++) {
        kn_cta *cta = &c->ctas[k];
        kn_hb_cta *h = kn_arena_alloc(&c->arena, sizeof *h);
        KN_REQUIRE(h != NULL, KN_E_NOMEM, "out of memory for the simulator's ordering checks");
        cta->hb = h;
        KN_TRY(KN_NEW(&h->written, cta->smem_bytes / 4 + 1, "the simulator's shadow of shared memory"));
        KN_TRY(KN_NEW(&h->read, cta->smem_bytes / 4 + 1, "the simulator's shadow of shared memory"));
        KN_TRY(KN_NEW(&h->visitor, c->n_warps, "the simulator's ordering checks"));
        for (uint32_t n = 0; n < cta->n_warps; n++) KN_TRY(begin_warp(m, c, &cta->warps[n], k * n_warps + n));
    }
    return KN_OK;
}

static kn_status sync_lanes(kn_machine *m, kn_warp *w, const kn_access *a) {
    bool global = a->space == KN_SPACE_GLOBAL;
    kn_hb_places *places = global ? kn_hb_global_places(m->run) : &((kn_hb_cluster *)m->cluster->hb)->places;
    kn_status st = KN_OK;
    if (global) kn_hb_global_lock(m->run, true);
    for (uint32_t mask = a->mask; mask && st == KN_OK; mask &= mask - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(mask);
        st = kn_hb_sync(m, w, a, lane, places, a->addr[lane]);
    }
    if (global) kn_hb_global_lock(m->run, false);
    return st;
}

static kn_status on_access(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_access *a) {
    bool strong = a->kind == KN_ATOMIC || (a->sem && a->sem != KN_TOK_weak);
    kn_epoch base = kn_hb_epoch(w, KN_A_THREADS, 0, strong ? KN_EPOCH_STRONG : 0);
    kn_hb_access h = {.kind = (kn_access_kind)a->kind, .self = w, .in_program = true};
    for (uint32_t mask = a->mask; mask; mask &= mask - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(mask);
        uint64_t addr = a->addr[lane];
        const kn_vc *vc = kn_hb_view(w, 1u << lane);
        if (vc != h.vc) h.known[0] = h.known[1] = 0;
        h.vc = vc;
        h.who = base | (uint64_t)lane << 24;
        h.lane = (int)lane;
        if (a->space == KN_SPACE_GLOBAL) {
            KN_TRY(kn_hb_global(m, w, i, &h, addr, a->bytes));
            continue;
        }
        kn_cta *cta = &m->cluster->ctas[KN_SMEM_RANK(addr)];
        KN_TRY(kn_hb_shared(m, w, i, &h, cta, KN_SMEM_OFFSET(addr), a->bytes));
        if (cta != w->cta) kn_hb_visit(w, 1u << lane, cta);
    }
    return strong ? sync_lanes(m, w, a) : KN_OK;
}

kn_status kn_hb_object_make(kn_cluster *c, kn_hb_object **object) {
    kn_hb_cluster *h = c->hb;
    if (*object || !h) return KN_OK;
    kn_hb_object *o = kn_arena_alloc(&c->arena, sizeof *o);
    KN_REQUIRE(o != NULL, KN_E_NOMEM, "out of memory for the simulator's vector clocks");
    o->next = h->objects;
    h->objects = *object = o;
    return KN_OK;
}

static kn_status on_release(kn_machine *m, kn_warp *w, void **object) {
    KN_TRY(kn_hb_object_make(m->cluster, (kn_hb_object **)object));
    return kn_hb_release(m, w, w->g->mask, &((kn_hb_object *)*object)->vc);
}

static kn_status on_acquire(kn_machine *m, kn_warp *w, void **object) {
    KN_TRY(kn_hb_object_make(m->cluster, (kn_hb_object **)object));
    return kn_hb_acquire(w, w->g->mask, &((kn_hb_object *)*object)->vc);
}

/* A release fence remembers what relaxed writes behind it will publish; an acquire fence learns what relaxed reads
 * before it have seen. */
static kn_status fence_memory(kn_machine *m, kn_warp *w, uint32_t lanes) {
    kn_hb_warp *h = hb_of(w);
    if (h->has_seen) KN_TRY(kn_hb_acquire(w, lanes, &h->seen));
    KN_TRY(kn_vc_copy(&h->fenced, lanes & h->some_mask ? &h->some : &h->all)); /* some knows all that all know */
    KN_TRY(kn_vc_raise(&h->fenced, KN_L_ORDER, cluster_of(w), h->base, tick_of(w, lanes, h->count[KN_A_THREADS])));
    KN_TRY(tell_own(w, lanes, &h->fenced));
    h->has_fenced = true;
    return advance(m, w);
}

static kn_status on_fence(kn_machine *m, kn_warp *w, const kn_insn *i) {
    (void)i;
    return fence_memory(m, w, w->g->mask);
}

void kn_hb_visit(const kn_warp *w, uint32_t lanes, kn_cta *cta) {
    const kn_hb_warp *h = hb_of(w);
    kn_hb_cta *to = cta->hb;
    if (h && cta != w->cta) kn_tick_join(&to->visitor[h->base / KN_AGENTS], tick_of(w, lanes, h->count[KN_A_THREADS]));
}

/* What an exited warp did stays. A CTA that ends takes its shared memory along: what others did there must be over. */
static kn_status on_exit(kn_machine *m, kn_warp *w) {
    kn_cta *cta = w->cta;
    kn_hb_cta *h = cta->hb;
    const kn_hb_warp *hw = hb_of(w);
    KN_TRY(kn_vc_join(&h->exited, &hw->all));
    if (hw->some_mask) KN_TRY(kn_vc_join(&h->exited, &hw->some));
    KN_TRY(kn_bulk_exit(m, w));
    if (cta->live_warps > 1) return KN_OK;
    for (uint32_t k = 0; k < m->cluster->n_warps; k++) {
        kn_tick t = h->visitor[k], known = kn_vc_get(&h->exited, KN_L_ORDER, m->cluster->index, k * KN_AGENTS);
        if (kn_tick_covers(known, t.all, KN_FULL_MASK) && (t.mask == 0 || kn_tick_covers(known, t.some, t.mask)))
            continue;
        const kn_warp *visitor = &m->cluster->warps[k];
        return kn_fault(
            m, w, &m->entry->code[w->g->pc], -1,
            "the CTA exits while warp %u of CTA %u may still access its shared memory or its mbarriers: nothing orders "
            "that access before the exit",
            visitor->id, visitor->cta->rank);
    }
    return KN_OK;
}

static void run_end(kn_run *run, void *state) {
    (void)run;
    kn_hb_global_end(state);
}

const kn_hb_ops kn_happens = {.run_begin = kn_hb_global_begin,
                              .run_end = run_end,
                              .cluster_begin = cluster_begin,
                              .cluster_end = cluster_end,
                              .access = on_access,
                              .release = on_release,
                              .acquire = on_acquire,
                              .fence = on_fence,
                              .warp_sync = sync_warp,
                              .warp_exit = on_exit};
