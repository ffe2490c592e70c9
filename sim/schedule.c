/* Which warp runs, which of its lanes, and when asynchronous operations complete.
 *
 * Lanes of a warp that stand at different instructions form groups. The group with the lowest pc goes first, so that
 * lanes that were split by a branch meet again behind it; groups that meet become one. An `.aligned` instruction waits
 * until all live lanes of the warp have come; if they cannot come it is a fault. A group that keeps jumping back lets
 * the others run in between, so that lanes may wait for other lanes of their own warp. */
#include "sim/schedule.h"
#include "base/alloc.h"
#include "sim/fault.h"
#include "sim/ptx_module.h"

enum { SPINS = 512 };

kn_habits kn_habits_of(uint64_t seed) {
    /* Few distinct habits, so that a handful of seeds meets them all: turns of 1..4, 16, 100 or 1000 instructions;
     * completions at the last moment, now and then, or at once. Seed 0 is the fast one. */
    static const uint32_t quanta[4] = {1000, 100, 16, 4}, eagerness[3] = {64, 256, 0};
    return (kn_habits){quanta[seed % 4], eagerness[seed / 4 % 3]};
}

/* ---- groups of a warp ------------------------------------------------------------------------------------------ */

static void drop_group(kn_warp *w, kn_group *g) {
    kn_group *last = &w->group[--w->n_groups];
    if (w->g == last) w->g = g;
    if (g != last) *g = *last;
}

static bool group_ready(const kn_warp *w, const kn_group *g) {
    switch (g->state) {
    case KN_G_RUN: return true;
    case KN_G_BLOCKED: return g->seen != w->cta->cluster->epoch;
    default: return g->mask == w->live;
    }
}

static bool warp_ready(const kn_warp *w) {
    for (uint32_t k = 0; k < w->n_groups; k++)
        if (group_ready(w, &w->group[k])) return true;
    return false;
}

/* The group to run: lowest pc among those that can run and have not been spinning. */
static bool pick_group(kn_warp *w) {
    kn_group *best = NULL;
    for (uint32_t k = 0; k < w->n_groups; k++) {
        kn_group *g = &w->group[k];
        if (!group_ready(w, g)) continue;
        bool spins = g->spins >= SPINS;
        if (!best || (best->spins >= SPINS) > spins || ((best->spins >= SPINS) == spins && g->pc < best->pc)) best = g;
    }
    if (!best) return false;
    if (best->spins >= SPINS) /* all of them: a new round */
        for (uint32_t k = 0; k < w->n_groups; k++) w->group[k].spins = 0;
    best->state = KN_G_RUN;
    w->g = best;
    return true;
}

/* Groups that have met at one instruction, none of them halfway through it, become one. */
static void merge_groups(kn_warp *w) {
    if (w->g->stage != 0) return;
    for (uint32_t k = 0; k < w->n_groups;) {
        kn_group *o = &w->group[k];
        if (o == w->g || o->pc != w->g->pc || o->stage != 0) {
            k++;
            continue;
        }
        w->g->mask |= o->mask;
        w->g->state = KN_G_RUN;
        drop_group(w, o);
    }
}

/* Lanes `mask` of the running group leave; used by exit and by what ends threads. */
static void retire(kn_machine *m, kn_warp *w, uint32_t mask) {
    kn_cta *c = w->cta;
    w->g->mask &= ~mask;
    w->live &= ~mask;
    c->live_threads -= (uint32_t)__builtin_popcount(mask);
    if (w->g->mask == 0) {
        drop_group(w, w->g);
        w->g = &w->group[0];
    } else {
        w->g->pc++;
    }
    if (w->live == 0) {
        if (--c->live_warps == 0) c->cluster->live_ctas--;
        kn_barriers_recheck(c);
    }
    kn_wake(m->cluster);
}

kn_status kn_x_bra(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)m;
    kn_group *g = w->g;
    uint32_t target = i->op[0].slot;
    bool back = target <= g->pc;
    if (active != g->mask) {
        kn_group *rest = &w->group[w->n_groups++];
        *rest = (kn_group){.pc = g->pc + 1, .mask = g->mask & ~active};
        g->mask = active;
    }
    g->pc = target;
    if (back && w->n_groups > 1) g->spins++;
    return KN_OK;
}

kn_status kn_x_exit(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)i;
    if (w->live == active && m->hb) KN_TRY(m->hb->warp_exit(m, w));
    retire(m, w, active);
    return KN_OK;
}

/* ---- one warp's turn -------------------------------------------------------------------------------------------- */

/* No group of the warp can run. If all of them are at aligned instructions they will never meet. */
static kn_status check_divergence(kn_machine *m, kn_warp *w) {
    uint32_t aligned = 0;
    for (uint32_t k = 0; k < w->n_groups; k++) aligned += w->group[k].state == KN_G_ALIGN;
    if (aligned == 0 || aligned != w->n_groups) return KN_OK;
    const kn_group *g = &w->group[0];
    return kn_fault(m, w, &m->entry->code[g->pc], __builtin_ctz(g->mask),
                    "an aligned instruction is executed by lanes %08x alone, but %08x of the warp are alive", g->mask,
                    w->live);
}

/* Lanes that the guard lets through. */
static inline kn_status guard_lanes(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t *active) {
    uint32_t missing = *active & ~w->pred_def[i->guard_slot];
    if (__builtin_expect(missing != 0, 0))
        return kn_fault(m, w, i, __builtin_ctz(missing), "the guard is a predicate that was never written");
    uint32_t p = w->pred[i->guard_slot];
    *active &= i->guard == 1 ? p : ~p;
    return KN_OK;
}

/* Before an aligned instruction: *wait if other lanes of the warp are on their way. */
static kn_status check_aligned(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active, bool *wait) {
    kn_group *g = w->g;
    *wait = false;
    if (active == 0 || g->mask == active) {
        if (g->mask == w->live || active == 0) return KN_OK;
        g->state = KN_G_ALIGN;
        *wait = true;
        return KN_OK;
    }
    return kn_fault(m, w, i, __builtin_ctz(active),
                    "an aligned instruction is guarded so that lanes %08x execute it and lanes %08x do not", active,
                    g->mask & ~active);
}

static kn_status step(kn_machine *m, kn_warp *w, bool *yield) {
    kn_group *g = w->g;
    const kn_insn *i = &m->entry->code[g->pc];
    uint32_t active = g->mask;
    if (i->guard) KN_TRY(guard_lanes(m, w, i, &active));
    if (i->m[KN_M_ALIGNED]) {
        bool wait;
        KN_TRY(check_aligned(m, w, i, active, &wait));
        if (wait) return KN_OK;
    }
    kn_status st = KN_OK;
    if (active != 0 || (i->flags & KN_I_BRANCH)) {
        if (active == 0)
            g->pc++; /* a branch that nobody takes */
        else
            st = i->exec(m, w, i, active);
        if (i->flags & KN_I_BRANCH) return st;
    }
    if (st == KN_NOT_READY) {
        g->state = KN_G_BLOCKED;
        g->seen = m->cluster->epoch;
        return KN_OK;
    }
    if (st == KN_YIELD) {
        *yield = true;
        g->spins += 64;
        st = KN_OK;
    }
    g->pc++;
    g->stage = 0;
    g->wait = NULL;
    return st;
}

static kn_status run_warp(kn_machine *m, kn_warp *w, uint32_t quantum, uint64_t *executed) {
    uint32_t n = 0;
    bool yield = false;
    kn_status st = KN_OK;
    while (n < quantum && !yield && w->n_groups > 0) {
        if (w->n_groups > 1 || w->g->state != KN_G_RUN) {
            if (!pick_group(w)) {
                st = check_divergence(m, w);
                break;
            }
            merge_groups(w);
        }
        n++;
        m->clock++;
        st = step(m, w, &yield);
        if (st != KN_OK) break;
        if (w->n_groups > 1) merge_groups(w);
    }
    w->n_executed += n;
    *executed += n;
    return st;
}

/* ---- asynchronous operations ------------------------------------------------------------------------------------- */

kn_status kn_async_begin(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_async_step *step_fn, size_t bytes,
                         kn_async **out) {
    kn_cluster *c = m->cluster;
    if (c->n_pending == c->room_pending) {
        uint32_t room = c->room_pending ? c->room_pending * 2 : 32;
        kn_async **grown = kn_realloc(c->pending, room * sizeof(kn_async *));
        if (!grown) return kn_fail(KN_E_NOMEM, "out of memory for %u pending operations", room);
        c->pending = grown;
        c->room_pending = room;
    }
    size_t head = (sizeof(kn_async) + 15) / 16 * 16;
    kn_async *a = kn_calloc(1, head + bytes);
    if (!a) return kn_fail(KN_E_NOMEM, "out of memory for a pending operation");
    *a = (kn_async){step_fn, w->cta, w, i, lane, c->next_order++, (uint8_t *)a + head};
    c->pending[c->n_pending++] = a;
    *out = a;
    return KN_OK;
}

/* One pending operation, by seeded choice, takes a step; *moved: something happened. */
static kn_status complete_one(kn_machine *m, bool *moved) {
    kn_cluster *c = m->cluster;
    uint64_t epoch = c->epoch;
    *moved = false;
    if (c->n_pending == 0) return KN_OK;
    uint32_t start = kn_choose(m, c->n_pending);
    for (uint32_t k = 0; k < c->n_pending; k++) {
        uint32_t at = (start + k) % c->n_pending;
        kn_async *a = c->pending[at];
        kn_status st = a->step(m, a);
        if (st == KN_OK) {
            /* The step may have queued others: find it again. */
            while (c->pending[at] != a) at = (at + 1) % c->n_pending;
            c->pending[at] = c->pending[--c->n_pending];
            kn_free(a);
            kn_wake(c);
        } else if (st != KN_NOT_READY) {
            return st;
        }
        if (c->epoch != epoch) {
            *moved = true;
            return KN_OK;
        }
    }
    return KN_OK;
}

/* ---- a cluster's slice ------------------------------------------------------------------------------------------- */

static kn_warp *pick_warp(kn_machine *m) {
    kn_cluster *c = m->cluster;
    uint32_t start = kn_choose(m, c->n_warps);
    for (uint32_t k = 0; k < c->n_warps; k++) {
        kn_warp *w = &c->warps[start + k < c->n_warps ? start + k : start + k - c->n_warps];
        if (w->n_groups > 0 && warp_ready(w)) return w;
    }
    return NULL;
}

/* All warps have left: what they started must still end. */
static kn_status drain(kn_machine *m) {
    bool moved = true;
    while (m->cluster->n_pending > 0 && moved) KN_TRY(complete_one(m, &moved));
    if (m->cluster->n_pending == 0) return KN_OK;
    const kn_async *a = m->cluster->pending[0];
    return kn_fault(m, a->warp, a->insn, a->lane, "the kernel ends while this operation can never complete");
}

static kn_status spend(kn_machine *m, uint64_t executed) {
    uint64_t budget = m->run->launch->budget;
    uint64_t used = __atomic_add_fetch(&m->run->budget_used, executed, __ATOMIC_RELAXED);
    m->stats.warp_instructions += executed;
    if (budget == 0 || used <= budget) return KN_OK;
    const kn_warp *w = m->cluster->warps;
    while (w->n_groups == 0 && w + 1 < m->cluster->warps + m->cluster->n_warps) w++;
    const kn_group *g = w->n_groups ? w->g : NULL;
    return kn_fault(m, w, &m->entry->code[g ? g->pc : 0], -1,
                    "the launch has used up its budget of %llu warp instructions (an endless loop?)",
                    (unsigned long long)budget);
}

kn_status kn_cluster_run(kn_machine *m, uint64_t slice, bool *done) {
    kn_habits habits = kn_habits_of(m->run->launch->seed);
    uint64_t executed = 0;
    *done = false;
    while (executed < slice) {
        bool moved = false;
        kn_warp *w = pick_warp(m);
        if (w) {
            KN_TRY(run_warp(m, w, 1 + kn_choose(m, habits.quantum), &executed));
            if (m->cluster->n_pending && kn_choose(m, 256) < habits.eager) KN_TRY(complete_one(m, &moved));
            continue;
        }
        if (m->cluster->live_ctas == 0) {
            *done = true;
            KN_TRY(drain(m));
            break;
        }
        KN_TRY(complete_one(m, &moved));
        if (!moved) return kn_deadlock(m);
    }
    return spend(m, executed);
}
