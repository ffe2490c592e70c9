/* mutate: see the header. A mutant is a fresh parse of the same text with one instruction patched. */
#include "sim/mutate.h"

#include "base/alloc.h"
#include "sim/ptx_module.h"

#include <stdatomic.h>
#include <stdio.h>

/* ---- what may be done to an instruction ------------------------------------------------------------------ */

static atomic_bool reached; /* the instruction that was deleted last has been executed */

static kn_status do_nothing(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)m;
    (void)w;
    (void)i;
    (void)active;
    atomic_store(&reached, true);
    return KN_OK;
}

/* A wait that a poll stands for: it says at once that the phase is complete. */
static kn_status say_done(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    atomic_store(&reached, true);
    return kn_put_pred(m, w, i, &i->op[0], active, active);
}

static bool is(const kn_insn *i, const char *part) {
    return strstr(i->text, part) != NULL;
}

static bool delete_it(kn_arena *arena, kn_insn *i) {
    (void)arena;
    i->exec = is(i, "mbarrier.test_wait") || is(i, "mbarrier.try_wait") ? say_done : do_nothing;
    i->m[KN_M_ALIGNED] = 0;
    return true;
}

static bool make_relaxed(kn_arena *arena, kn_insn *i) {
    (void)arena;
    if (!is(i, "mbarrier.arrive") && !is(i, "mbarrier.test_wait") && !is(i, "mbarrier.try_wait") &&
        !is(i, "barrier.cluster.arrive"))
        return false;
    if (i->m[KN_M_SEM] == KN_TOK_relaxed) return false;
    i->m[KN_M_SEM] = KN_TOK_relaxed;
    return true;
}

/* wait_group N -> N + 1 */
static bool wait_for_fewer(kn_arena *arena, kn_insn *i) {
    if (!is(i, "wait_group") || i->n_op != 1) return false;
    kn_operand *o = kn_arena_alloc(arena, sizeof *o);
    if (!o) return false;
    *o = i->op[0];
    o->imm++;
    i->op = o;
    return true;
}

/* arrive.expect_tx announces 16 bytes less, or 16 more: by a literal alone */
static bool announce(kn_arena *arena, kn_insn *i, int32_t change) {
    if (!is(i, "expect_tx") || i->op[i->n_op - 1].kind != KN_O_IMM) return false;
    kn_operand *o = kn_arena_alloc(arena, i->n_op * sizeof *o);
    uint32_t *lanes = kn_arena_alloc(arena, KN_LANES * sizeof *lanes);
    if (!o || !lanes) return false;
    memcpy(o, i->op, i->n_op * sizeof *o);
    kn_operand *bytes = &o[i->n_op - 1];
    bytes->imm += change;
    for (int l = 0; l < KN_LANES; l++) lanes[l] = (uint32_t)bytes->imm;
    bytes->lanes = lanes;
    i->op = o;
    return true;
}

static bool announce_less(kn_arena *arena, kn_insn *i) {
    return announce(arena, i, -16);
}

static bool announce_more(kn_arena *arena, kn_insn *i) {
    return announce(arena, i, 16);
}

static const struct {
    const char *name;
    bool (*apply)(kn_arena *arena, kn_insn *i); /* false: does not apply to this instruction */
} changes[] = {{"deleted", delete_it},
               {"made relaxed", make_relaxed},
               {"waits for one group fewer", wait_for_fewer},
               {"announces 16 bytes less", announce_less},
               {"announces 16 bytes more", announce_more}};
enum { CHANGES = sizeof changes / sizeof changes[0] };

/* ---- the count ------------------------------------------------------------------------------------------- */

static kn_status try_mutant(const char *ptx, size_t len, uint32_t at, uint32_t change, uint32_t seeds,
                            kn_mutate_run *run, void *user, kn_mutant *out, bool *applies) {
    kn_sim_module *m = NULL;
    KN_TRY(kn_sim_parse(ptx, len, NULL, NULL, &m));
    kn_status st = KN_OK;
    kn_insn *i = &m->entry[0].code[at];
    out->line = i->line;
    out->change = changes[change].name;
    *applies = changes[change].apply(&m->arena, i);
    for (uint64_t seed = 0; *applies && seed < seeds && !out->caught; seed++) {
        kn_status one = run(user, m, seed);
        if (one == KN_OK) continue;
        if (one == KN_E_NOMEM || one == KN_E_INTERNAL) {
            st = one;
            break;
        }
        out->caught = true;
        out->seed = seed;
        snprintf(out->sentence, sizeof out->sentence, "%s", kn_error_message());
    }
    kn_sim_free(m);
    return st;
}

static kn_status check_original(const kn_sim_module *m, uint32_t seeds, kn_mutate_run *run, void *user) {
    for (uint64_t seed = 0; seed < seeds; seed++) {
        kn_status st = run(user, m, seed);
        if (st != KN_OK)
            return kn_error_prefix(st, "the kernel as it is fails under seed %llu: ", (unsigned long long)seed);
    }
    return KN_OK;
}

kn_status kn_sim_mutate(const char *ptx, size_t len, uint32_t seeds, kn_mutate_run *run, void *user,
                        kn_mutate_report *out) {
    kn_mutate_report r = {0};
    kn_status st = kn_sim_parse(ptx, len, NULL, NULL, &r.original);
    if (st != KN_OK) return st;
    const kn_entry *e = &r.original->entry[0];
    KN_TRY_OUT(st, check_original(r.original, seeds, run, user));
    KN_TRY_OUT(st, KN_NEW(&r.mutant, (size_t)e->n_code * CHANGES + 1, "mutants"));
    for (uint32_t at = 0; at < e->n_code; at++) {
        if (!(e->code[at].flags & KN_I_ORDER)) continue;
        r.sites++;
        atomic_store(&reached, false);
        for (uint32_t change = 0; change < CHANGES; change++) {
            kn_mutant *mutant = &r.mutant[r.mutants];
            bool applies = false;
            *mutant = (kn_mutant){.text = e->code[at].text};
            KN_TRY_OUT(st, try_mutant(ptx, len, at, change, seeds, run, user, mutant, &applies));
            if (change == 0 && !atomic_load(&reached)) { /* deleted first: the others would not be reached either */
                r.unreached++;
                break;
            }
            r.mutants += applies;
            r.caught += applies && mutant->caught;
        }
    }
    if (r.sites == 0)
        st = kn_fail(KN_E_ARG, "kernel %s has no ordering instruction to mutate", e->name);
    else if (r.mutants == 0)
        st = kn_fail(KN_E_ARG, "the runs of kernel %s execute none of its %u ordering instructions", e->name, r.sites);
out:
    if (st == KN_OK)
        *out = r;
    else
        kn_sim_mutate_free(&r);
    return st;
}

void kn_sim_mutate_free(kn_mutate_report *r) {
    kn_free(r->mutant);
    if (r->original) kn_sim_free(r->original);
    *r = (kn_mutate_report){0};
}
