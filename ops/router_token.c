/* ops/router_token: what every kernel that forms dz needs: the parameters and arguments of lib/router_token.ptxi. */
#include "kiln/kiln.h"
#include "ops/router_internal.h"

#include <string.h>

/* A thread owns at most 16 experts where 256 threads or a warp can share a token that way, else up to 32. */
int64_t kn_router_lanes(int64_t experts) {
    if (experts <= 128) return 8;
    if (experts <= 256) return 16;
    return experts <= 1024 ? 32 : 256;
}

static const char *type_name(const kn_problem *p, int arg) {
    return kn_router_has(p, arg) ? kn_dtype_name((kn_dtype)p->dtype[arg]) : "none";
}

/* Whether the z-loss is there: both its inputs are. */
static bool has_z_loss(const kn_problem *p) {
    return kn_router_has(p, KN_ROUTER_Z_LOSS) && kn_router_has(p, KN_ROUTER_LOGITS);
}

/* Rows of 4 neighbouring experts can be taken at once. */
static int64_t row_width(const kn_problem *p, int arg) {
    if (!kn_router_has(p, arg) || p->axis[KN_ROUTER_E] % 4 != 0) return 1;
    return (1u << p->align_log2[arg]) >= 4 * kn_dtype_size((kn_dtype)p->dtype[arg]) ? 4 : 1;
}

void kn_router_token_params(const kn_problem *p, kn_params *params) {
    static const char *const scores[] = {"softmax", "sigmoid", "sqrtsoftplus", "softmax_selected"};
    static const char *const normalise[] = {"sum_exact", "none", "sum_eps", "sum_clamp"};
    kn_params_set(params, "E", p->axis[KN_ROUTER_E]);
    kn_params_set(params, "K", p->axis[KN_ROUTER_K]);
    kn_params_set(params, "LANES", kn_router_lanes(p->axis[KN_ROUTER_E]));
    kn_params_set_name(params, "SCORE", scores[p->option[KN_ROUTER_SCORE]]);
    kn_params_set_name(params, "NORMALISE", normalise[p->option[KN_ROUTER_NORMALISE]]);
    kn_params_set(params, "SUM_GIVEN", kn_router_has(p, KN_ROUTER_WEIGHTS_SUM));
    kn_params_set_name(params, "ID_T", p->dtype[KN_ROUTER_SELECTED] == KN_I64 ? "s64" : "s32");
    kn_params_set_name(params, "GRAD_T", type_name(p, KN_ROUTER_GRAD_WEIGHTS));
    kn_params_set_name(params, "MASK_T", type_name(p, KN_ROUTER_GRAD_MASK));
    kn_params_set_name(params, "LOGITS_T", type_name(p, KN_ROUTER_GRAD_LOGITS));
    kn_params_set(params, "LOGITS_AFTER", p->option[KN_ROUTER_AFTER_SOFTMAX]);
    int64_t aux = kn_router_has(p, KN_ROUTER_AUX_ROW) ? 2 : 1;
    kn_params_set(params, "AUX", kn_router_has(p, KN_ROUTER_AUX) ? aux : 0);
    kn_params_set_name(params, "Z_T", has_z_loss(p) ? type_name(p, KN_ROUTER_LOGITS) : "none");
    kn_params_set(params, "TOKEN_MASK", kn_router_has(p, KN_ROUTER_TOKEN_MASK));
    kn_params_set(params, "PROBS_VEC", row_width(p, KN_ROUTER_PROBS));
    kn_params_set(params, "LOGITS_VEC", row_width(p, KN_ROUTER_GRAD_LOGITS));
    kn_params_set(params, "AUX_VEC", row_width(p, KN_ROUTER_AUX));
    kn_params_set(params, "Z_VEC", row_width(p, KN_ROUTER_LOGITS));
}

void kn_router_logits_params(const kn_router *r, kn_params *params) {
    int out = KN_ROUTER_OUT_LOGITS;
    kn_params_set_name(params, "OUT_T", type_name(r->p, out));
    kn_params_set(params, "OUT_VEC", row_width(r->p, out));
    kn_params_set(params, "OUT_ADD", r->logits_out && kn_router_accumulates(r->p, out));
}

/* An absent tensor's address and stride are bound as 0, and not used. */
static void bind_rows(kn_launch_spec *l, int arg) {
    kn_bind_tensor(l, arg, 0);
    kn_bind_stride(l, arg, 0);
}

static float float_of(int64_t bits) {
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, sizeof f);
    return f;
}

void kn_router_bind_token(const kn_problem *p, kn_launch_spec *l) {
    bind_rows(l, KN_ROUTER_PROBS);
    bind_rows(l, KN_ROUTER_SELECTED);
    bind_rows(l, KN_ROUTER_WEIGHTS_SUM);
    bind_rows(l, KN_ROUTER_GRAD_WEIGHTS);
    bind_rows(l, KN_ROUTER_GRAD_MASK);
    kn_bind_stride(l, KN_ROUTER_GRAD_MASK, 1);
    kn_bind_stride(l, KN_ROUTER_GRAD_MASK, 2);
    bind_rows(l, KN_ROUTER_GRAD_LOGITS);
    bind_rows(l, KN_ROUTER_AUX);
    kn_bind_i64(l, p->axis[KN_ROUTER_S]);
    kn_bind_tensor(l, KN_ROUTER_AUX_ROW, 0);
    bind_rows(l, KN_ROUTER_LOGITS);
    kn_bind_tensor(l, KN_ROUTER_Z_LOSS, 0);
    kn_bind_tensor(l, KN_ROUTER_TOKEN_MASK, 0);
    kn_bind_faults(l);
    kn_bind_f32(l, float_of(p->option[KN_ROUTER_SCALING]));
    kn_bind_f32(l, float_of(p->option[KN_ROUTER_EPS]));
}
