/* ops/routed_sort: the launches that bring rows to their experts and back: the sort of the pairs (token, slot), the
 * gather of their rows, the combination of what the experts made of them. */
#include "ops/routed_internal.h"

static int64_t row_vec(const kn_routed *r, int arg) {
    return r->hidden % 8 == 0 && r->p->align_log2[arg] >= 4 ? 8 : 1;
}

static bool set_dependent(const kn_routed *r, kn_params *params) {
    bool dependent = r->target->cc >= 90;
    kn_params_set(params, "DEPENDENT", dependent);
    return dependent;
}

/* Steps of routed_sort.ptxt. */
enum { COUNT, OFFSETS, PLACE };

/* The map of the tiles of `rows` rows; none with `wanted` false. */
static void bind_map(const kn_routed *r, kn_launch_spec *l, bool wanted, int64_t at, int64_t tile) {
    int64_t entries = wanted ? kn_gemm_tile_map_entries(r->rows, r->local, tile) : 0;
    if (entries) {
        kn_bind_workspace(l, at);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_i32(l, (int32_t)tile);
    kn_bind_i32(l, (int32_t)entries);
}

static void emit_step(const kn_routed *r, int kernel, int step, int64_t ctas) {
    kn_launch_spec *l = kn_add_launch(r->b, kernel, (uint32_t)ctas, 1, 1);
    l->dependent = r->target->cc >= 90;
    kn_bind_i32(l, step);
    kn_bind_tensor(l, r->sorted ? KN_ROUTED_OFFSETS : KN_ROUTED_IDS, 0);
    if (r->sorted) {
        kn_bind_i64(l, 0);
    } else {
        kn_bind_stride(l, KN_ROUTED_IDS, 0);
    }
    kn_bind_i64(l, r->p->option[KN_ROUTED_EXPERT_LO]);
    kn_bind_i64(l, r->p->option[KN_ROUTED_EXPERTS]);
    kn_bind_workspace(l, r->at.counts);
    kn_bind_workspace(l, r->at.offsets);
    kn_bind_tensor(l, KN_ROUTED_WEIGHTS, 0);
    kn_bind_stride(l, KN_ROUTED_WEIGHTS, 0);
    kn_bind_workspace(l, r->at.pair_row);
    kn_bind_workspace(l, r->at.row_pair);
    kn_bind_workspace(l, r->at.row_weight);
    kn_bind_faults(l);
    kn_bind_i32(l, (int32_t)r->pairs);
    kn_bind_i32(l, (int32_t)r->chunk_pairs);
    kn_bind_i32(l, (int32_t)r->chunks);
    bind_map(r, l, true, r->at.inner_map, r->tile);
    bind_map(r, l, r->want_hidden && r->at.hidden_map != r->at.inner_map, r->at.hidden_map, r->dx_tile);
}

/* The offsets are made with no pairs too: the weight gradients read them. */
void kn_routed_emit_sort(const kn_routed *r) {
    int kernel;
    kn_params *params = kn_add_kernel(r->b, "routed_sort.ptxt", &kernel);
    kn_params_set(params, "LOCAL", r->local);
    kn_params_set(params, "TOP_K", r->top_k);
    kn_params_set_name(params, "IDS_T",
                       r->p->dtype[r->sorted ? KN_ROUTED_OFFSETS : KN_ROUTED_IDS] == KN_I64 ? "s64" : "s32");
    kn_params_set(params, "SORTED", r->sorted);
    kn_params_set(params, "PAD", r->pad);
    set_dependent(r, params);
    emit_step(r, kernel, COUNT, r->chunks);
    emit_step(r, kernel, OFFSETS, 1);
    emit_step(r, kernel, PLACE, r->chunks);
}

void kn_routed_emit_gather(const kn_routed *r) {
    int kernel;
    kn_params *params = kn_add_kernel(r->b, "routed_gather.ptxt", &kernel);
    int64_t vec = row_vec(r, KN_ROUTED_HIDDEN), vec_dy = row_vec(r, KN_ROUTED_GRAD_OUTPUT);
    kn_params_set(params, "H", r->hidden);
    kn_params_set(params, "TOP_K", r->top_k);
    kn_params_set(params, "SOURCES", 2);
    kn_params_set_name(params, "SRC_T", kn_dtype_name(r->in));
    kn_params_set_name(params, "DST_T", kn_dtype_name(r->precision.rows));
    kn_params_set(params, "PARTS", 1 + r->precision.scaled_parts);
    kn_params_set(params, "PAD", r->pad);
    kn_params_set(params, "TAIL", r->fast ? r->tail : 0);
    kn_params_set(params, "ACT_COLS", r->fast_gradients ? 3 * r->inner : 0);
    kn_params_set(params, "SRC_VEC", vec < vec_dy ? vec : vec_dy);
    kn_params_set(params, "DST_VEC", r->hidden % 8 == 0 ? 8 : 1);
    bool dependent = set_dependent(r, params);
    int64_t padders = r->pad > 1 ? r->local : 0;
    kn_launch_spec *l = kn_add_launch(r->b, kernel, r->pairs ? (uint32_t)(r->tokens + padders) : 0, 2, 1);
    l->dependent = dependent;
    kn_bind_tensor(l, KN_ROUTED_HIDDEN, 0);
    kn_bind_stride(l, KN_ROUTED_HIDDEN, 0);
    kn_bind_workspace(l, r->at.x);
    kn_bind_workspace(l, r->at.x + r->scaled_skip);
    kn_bind_workspace(l, r->at.x_scales);
    kn_bind_tensor(l, KN_ROUTED_GRAD_OUTPUT, 0);
    kn_bind_stride(l, KN_ROUTED_GRAD_OUTPUT, 0);
    kn_bind_workspace(l, r->at.dy);
    kn_bind_workspace(l, r->at.dy + r->scaled_skip);
    kn_bind_workspace(l, r->at.dy_scales);
    kn_bind_workspace(l, r->at.pair_row);
    kn_bind_workspace(l, r->at.row_pair);
    kn_bind_workspace(l, r->at.offsets);
    kn_bind_workspace(l, r->at.act);
    kn_bind_i64(l, r->low_skip);
    kn_bind_i32(l, (int32_t)r->rows);
    kn_bind_i32(l, (int32_t)r->tokens);
}

void kn_routed_emit_scale(const kn_routed *r) {
    int kernel;
    kn_params *params = kn_add_kernel(r->b, "routed_scale.ptxt", &kernel);
    kn_params_set(params, "COLS", 2 * r->inner); /* dg and du have one scale: both go into one sum */
    kn_params_set(params, "PARTS", r->precision.promote ? 2 : 1);
    kn_params_set(params, "TAIL", r->tail);
    kn_params_set(params, "VEC", r->inner % 8 == 0 ? 8 : 1);
    bool dependent = set_dependent(r, params);
    kn_launch_spec *l = kn_add_launch(r->b, kernel, (uint32_t)r->rows, 1, 1);
    l->dependent = dependent;
    kn_bind_workspace(l, r->at.act);
    kn_bind_i64(l, 3 * r->inner);
    kn_bind_workspace(l, r->at.act_scaled);
    kn_bind_i64(l, 4 * r->rows * r->inner);
    kn_bind_workspace(l, r->at.act_scales);
    kn_bind_workspace(l, r->at.offsets + 4 * r->local);
}

void kn_routed_emit_combine(const kn_routed *r) {
    int kernel;
    kn_params *params = kn_add_kernel(r->b, "routed_combine.ptxt", &kernel);
    kn_dtype out = r->want_hidden ? (kn_dtype)r->p->dtype[KN_ROUTED_GRAD_HIDDEN] : KN_F32;
    kn_params_set(params, "H", r->hidden);
    kn_params_set(params, "TOP_K", r->top_k);
    kn_params_set(params, "HIDDEN", r->want_hidden);
    kn_params_set_name(params, "DX_T", kn_dtype_name(r->precision.dx));
    kn_params_set(params, "DX_VEC", r->hidden % 8 == 0 ? 8 : 1);
    kn_params_set_name(params, "OUT_T", kn_dtype_name(out));
    kn_params_set(params, "OUT_VEC", r->want_hidden ? row_vec(r, KN_ROUTED_GRAD_HIDDEN) : 1);
    kn_params_set(params, "ACCUMULATE", r->want_hidden && kn_routed_accumulates(r, KN_ROUTED_GRAD_HIDDEN));
    kn_params_set(params, "PARTIALS", r->want_weights ? r->partials : 0);
    kn_params_set(params, "ACCUMULATE_SLOTS", r->want_weights && kn_routed_accumulates(r, KN_ROUTED_GRAD_WEIGHTS));
    bool dependent = set_dependent(r, params);
    kn_launch_spec *l = kn_add_launch(r->b, kernel, (uint32_t)r->tokens, 1, 1);
    l->dependent = dependent;
    if (r->want_hidden) {
        kn_bind_workspace(l, r->at.dx);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_tensor(l, KN_ROUTED_GRAD_HIDDEN, 0);
    kn_bind_stride(l, KN_ROUTED_GRAD_HIDDEN, 0);
    if (r->want_weights) {
        kn_bind_workspace(l, r->at.partials);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_tensor(l, KN_ROUTED_GRAD_WEIGHTS, 0);
    kn_bind_stride(l, KN_ROUTED_GRAD_WEIGHTS, 0);
    kn_bind_workspace(l, r->at.pair_row);
}
