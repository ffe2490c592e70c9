/* ops/ref_routed_experts: float64 reference of routed_experts_backward, one expert after another. */
#include "ops/ref_routed_experts.h"
#include "ops/ref_common.h"

#include <math.h>

enum {
    GRAD_OUTPUT,
    HIDDEN,
    TOPK_INDICES,
    EXPERT_OFFSETS,
    TOPK_WEIGHTS,
    GATE_WEIGHTS,
    UP_WEIGHTS,
    DOWN_WEIGHTS,
    SAVED_GATE,
    SAVED_UP,
    GRAD_TOPK_WEIGHTS = SAVED_UP + 2
};
enum { OUT_HIDDEN, OUT_TOPK_WEIGHTS, OUT_GATE, OUT_UP, OUT_DOWN };

typedef struct experts {
    const kn_call *call;
    const kn_tensor *t;
    const kiln_routed_experts_backward_options *options;
    double *const *exact, *const *magnitude;
    double *slot_norms; /* [T, K], or NULL */
    kn_ref_act act;
    int64_t tokens, k, local, hidden, inner; /* T, K, experts here, H, I */
    kn_ref grad_hidden;                      /* [T, H] */
    kn_ref grad_topk;                        /* [T, K] */
} experts;

/* The rows of one expert. */
typedef struct group {
    int64_t n;
    int64_t *slot;               /* [n]: t * K + k */
    double *w;                   /* [n]: routing weight */
    kn_ref x, dy;                /* [n, H]; x times w where the weight is on the input */
    kn_ref gate_w, up_w, down_w; /* [I, H], [I, H], [H, I] */
    kn_ref h;                    /* [n, I] */
    kn_ref a;                    /* [n, I]: dy * down */
    kn_ref du, dg;               /* [n, I] */
    kn_ref wh;                   /* [n, I]: w h, or h where the weight is on the input */
} group;

static bool weight_on_input(const experts *p) {
    return p->options->weight_on == KILN_WEIGHT_ON_INPUT;
}

/* The local expert of slot (t, k), or -1: not here, "no expert", or not an id at all. */
static int64_t slot_expert(const experts *p, int64_t t, int64_t k) {
    const kn_tensor *ids = &p->t[TOPK_INDICES], *offsets = &p->t[EXPERT_OFFSETS];
    if (kn_ref_present(ids)) {
        int64_t id = kn_ref_id(ids, kn_ref_at(ids, t, k));
        return id >= p->options->expert_lo && id - p->options->expert_lo < p->local ? id - p->options->expert_lo : -1;
    }
    for (int64_t e = 0; e < p->local; e++) {
        int64_t from = kn_ref_id(offsets, kn_ref_at(offsets, e, 0)),
                to = kn_ref_id(offsets, kn_ref_at(offsets, e + 1, 0));
        if (t >= from && t < to) return e;
    }
    return -1;
}

/* ---- one expert -------------------------------------------------------------------------------------------------- */

static kn_status find_rows(const experts *p, kn_arena *arena, int64_t expert, group *g) {
    size_t most = (size_t)(p->tokens * p->k);
    g->slot = kn_arena_alloc(arena, most * sizeof *g->slot);
    g->w = kn_arena_alloc(arena, most * sizeof *g->w);
    KN_REQUIRE(g->slot && g->w, KN_E_NOMEM, "out of memory for an expert's rows");
    for (int64_t t = 0; t < p->tokens; t++) {
        for (int64_t k = 0; k < p->k; k++) {
            if (slot_expert(p, t, k) != expert) continue;
            g->slot[g->n] = t * p->k + k;
            g->w[g->n++] = kn_ref_load(&p->t[TOPK_WEIGHTS], kn_ref_at(&p->t[TOPK_WEIGHTS], t, k));
        }
    }
    return KN_OK;
}

static kn_status gather(const experts *p, kn_arena *arena, const kn_tensor *from, const group *g, bool weighted,
                        kn_ref *out) {
    KN_TRY(kn_ref_zero(arena, g->n, p->hidden, out));
    for (int64_t i = 0; i < g->n; i++) {
        for (int64_t j = 0; j < p->hidden; j++) {
            double v = kn_ref_load(from, kn_ref_at(from, g->slot[i] / p->k, j));
            if (weighted) v *= g->w[i];
            out->x[i * p->hidden + j] = v;
            out->m[i * p->hidden + j] = fabs(v);
        }
    }
    return KN_OK;
}

/* Rows of a saved [T, K, I] (or [M, I]) tensor, or x * w^T where it is absent, or is not read: the gradient of a weight
 * on the input wants g and u without it. */
static kn_status gate_or_up(const experts *p, kn_arena *arena, const kn_tensor *saved, const kn_ref *w, const group *g,
                            kn_ref *out) {
    KN_TRY(kn_ref_zero(arena, g->n, p->inner, out));
    bool bare = weight_on_input(p) && kn_ref_present(&p->t[GRAD_TOPK_WEIGHTS]);
    if (bare || !kn_ref_present(saved)) return kn_ref_product(&g->x, false, w, true, out);
    for (int64_t i = 0; i < g->n; i++) {
        int64_t t = g->slot[i] / p->k, k = g->slot[i] % p->k;
        int64_t row = t * saved->stride[0] + (saved->ndim > 2 ? k * saved->stride[1] : 0);
        for (int64_t j = 0; j < p->inner; j++) {
            double v = kn_ref_load(saved, row + j * saved->stride[saved->ndim - 1]);
            out->x[i * p->inner + j] = v;
            out->m[i * p->inner + j] = fabs(v);
        }
    }
    return KN_OK;
}

/* Steps 1 to 3 up to the weight gradients: h, a, dh, du, dg. */
static kn_status expert_rows(const experts *p, kn_arena *arena, int64_t expert, group *g) {
    kn_ref gate, up;
    bool on_input = weight_on_input(p);
    KN_TRY(gather(p, arena, &p->t[HIDDEN], g, on_input, &g->x));
    KN_TRY(gather(p, arena, &p->t[GRAD_OUTPUT], g, false, &g->dy));
    KN_TRY(kn_ref_read(arena, &p->t[GATE_WEIGHTS], expert, &g->gate_w));
    KN_TRY(kn_ref_read(arena, &p->t[UP_WEIGHTS], expert, &g->up_w));
    KN_TRY(kn_ref_read(arena, &p->t[DOWN_WEIGHTS], expert, &g->down_w));
    KN_TRY(gate_or_up(p, arena, &p->t[SAVED_GATE], &g->gate_w, g, &gate));
    KN_TRY(gate_or_up(p, arena, &p->t[SAVED_UP], &g->up_w, g, &up));
    kn_ref *made[] = {&g->h, &g->a, &g->du, &g->dg, &g->wh};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) KN_TRY(kn_ref_zero(arena, g->n, p->inner, made[i]));
    KN_TRY(kn_ref_product(&g->dy, false, &g->down_w, false, &g->a));
    for (int64_t at = 0; at < g->n * p->inner; at++) {
        double w = on_input ? 1 : g->w[at / p->inner];
        kn_ref_act_parts s =
            kn_ref_act_eval(&p->act, (kn_ref_num){gate.x[at], gate.m[at]}, (kn_ref_num){up.x[at], up.m[at]});
        kn_ref_num dh = {w * g->a.x[at], fabs(w) * g->a.m[at]};
        g->h.x[at] = s.silu.x * s.up.x;
        g->h.m[at] = s.silu.m * s.up.m;
        g->wh.x[at] = w * g->h.x[at];
        g->wh.m[at] = fabs(w) * g->h.m[at];
        g->du.x[at] = s.u_clamped ? 0 : dh.x * s.silu.x;
        g->du.m[at] = s.u_clamped ? 0 : dh.m * s.silu.m;
        g->dg.x[at] = s.g_clamped ? 0 : dh.x * s.up.x * s.dsilu.x;
        g->dg.m[at] = s.g_clamped ? 0 : dh.m * s.up.m * s.dsilu.m;
    }
    return KN_OK;
}

/* grad_topk_weights of slot i: <a, h>, or <dx', x> where the weight is on the input. */
static void slot_gradient(experts *p, const group *g, int64_t i, const kn_ref *left, const double *right) {
    double aa = 0, hh = 0;
    int64_t slot = g->slot[i];
    for (int64_t j = 0; j < left->cols; j++) {
        double l = left->x[i * left->cols + j], r = right[j];
        p->grad_topk.x[slot] += l * r;
        p->grad_topk.m[slot] += left->m[i * left->cols + j] * (left == &g->a ? g->h.m[i * left->cols + j] : fabs(r));
        aa += l * l;
        hh += r * r;
    }
    if (p->slot_norms) p->slot_norms[slot] = sqrt(aa) * sqrt(hh);
}

/* grad_hidden += dx, times w where the weight is on the input; and the gradients of the routing weights. */
static kn_status rows_out(experts *p, kn_arena *arena, const group *g) {
    kn_ref dx;
    bool on_input = weight_on_input(p);
    bool topk = p->slot_norms || kn_ref_wanted(p->exact, p->magnitude, OUT_TOPK_WEIGHTS);
    for (int64_t i = 0; topk && !on_input && i < g->n; i++) {
        slot_gradient(p, g, i, &g->a, g->h.x + i * p->inner);
    }
    if (!kn_ref_wanted(p->exact, p->magnitude, OUT_HIDDEN) && !(topk && on_input)) return KN_OK;
    KN_TRY(kn_ref_zero(arena, g->n, p->hidden, &dx));
    KN_TRY(kn_ref_product(&g->dg, false, &g->gate_w, false, &dx));
    KN_TRY(kn_ref_product(&g->du, false, &g->up_w, false, &dx));
    if (topk && on_input) {
        kn_ref plain; /* x without its weight */
        KN_TRY(gather(p, arena, &p->t[HIDDEN], g, false, &plain));
        for (int64_t i = 0; i < g->n; i++) slot_gradient(p, g, i, &dx, plain.x + i * p->hidden);
    }
    for (int64_t at = 0; at < g->n * p->hidden; at++) {
        int64_t i = at / p->hidden, to = g->slot[i] / p->k * p->hidden + at % p->hidden;
        double w = on_input ? g->w[i] : 1;
        p->grad_hidden.x[to] += w * dx.x[at];
        p->grad_hidden.m[to] += fabs(w) * dx.m[at];
    }
    return KN_OK;
}

static kn_status weight_gradient(const experts *p, kn_arena *arena, int output, int64_t expert, const kn_ref *left,
                                 const kn_ref *right) {
    if (!kn_ref_wanted(p->exact, p->magnitude, output)) return KN_OK;
    kn_ref w;
    KN_TRY(kn_ref_zero(arena, left->cols, right->cols, &w));
    KN_TRY(kn_ref_product(left, true, right, false, &w));
    return kn_ref_output(p->call, output, expert * w.rows * w.cols, &w, p->exact, p->magnitude);
}

static kn_status one_expert(experts *p, int64_t expert) {
    kn_arena arena = {0};
    group g = {0};
    kn_status st = KN_OK;
    KN_TRY_OUT(st, find_rows(p, &arena, expert, &g));
    if (g.n == 0 && p->slot_norms) goto out;
    KN_TRY_OUT(st, expert_rows(p, &arena, expert, &g));
    KN_TRY_OUT(st, rows_out(p, &arena, &g));
    KN_TRY_OUT(st, weight_gradient(p, &arena, OUT_GATE, expert, &g.dg, &g.x));
    KN_TRY_OUT(st, weight_gradient(p, &arena, OUT_UP, expert, &g.du, &g.x));
    st = weight_gradient(p, &arena, OUT_DOWN, expert, &g.dy, &g.wh);
out:
    kn_arena_free(&arena);
    return st;
}

/* ---- all experts ------------------------------------------------------------------------------------------------- */

static kn_status all_experts(experts *p, kn_arena *arena) {
    const kn_tensor *gate = &p->t[GATE_WEIGHTS];
    p->tokens = p->t[HIDDEN].shape[0];
    p->hidden = p->t[HIDDEN].shape[1];
    p->k = kn_ref_present(&p->t[TOPK_INDICES]) ? p->t[TOPK_INDICES].shape[1] : 1;
    p->local = gate->shape[0];
    p->inner = gate->shape[1];
    KN_TRY(kn_ref_act_init(&p->options->activation, &p->act));
    KN_TRY(kn_ref_zero(arena, p->tokens, p->hidden, &p->grad_hidden));
    KN_TRY(kn_ref_zero(arena, p->tokens, p->k, &p->grad_topk));
    for (int64_t e = 0; e < p->local; e++) KN_TRY(one_expert(p, e));
    return KN_OK;
}

kn_status kn_routed_experts_reference(const kn_call *call, double *const *exact, double *const *magnitude) {
    kn_arena arena = {0};
    kn_status st = KN_OK;
    experts p = {.call = call, .t = call->tensor, .options = call->options, .exact = exact, .magnitude = magnitude};
    KN_TRY_OUT(st, all_experts(&p, &arena));
    KN_TRY_OUT(st, kn_ref_output(call, OUT_HIDDEN, 0, &p.grad_hidden, exact, magnitude));
    st = kn_ref_output(call, OUT_TOPK_WEIGHTS, 0, &p.grad_topk, exact, magnitude);
out:
    kn_arena_free(&arena);
    return st;
}

kn_status kn_routed_experts_slot_norms(const kn_call *call, double *norms) {
    kn_arena arena = {0};
    experts p = {.call = call, .t = call->tensor, .options = call->options, .slot_norms = norms};
    int64_t slots = call->tensor[TOPK_WEIGHTS].shape[0] *
                    (kn_ref_present(&call->tensor[TOPK_INDICES]) ? call->tensor[TOPK_INDICES].shape[1] : 1);
    for (int64_t i = 0; i < slots; i++) norms[i] = 0;
    kn_status st = all_experts(&p, &arena);
    kn_arena_free(&arena);
    return st;
}
