/* ops/op_gemm: checks and planners of gemm and grouped_gemm. They add nothing to the engine: they show it. */
#include "ops/op_gemm.h"

#include "kiln/kiln.h"
#include "ops/gemm.h"

#include <stdio.h>

enum { A, B, D };                                  /* gemm's tensors */
enum { GROUPED_A, GROUPED_B, OFFSETS, GROUPED_D }; /* grouped_gemm's */
enum { OPTION_MATH, OPTION_RAGGED };

/* How fp32 operands enter the tensor core: in bf16 parts with promoted sums, or one rounding to bf16. */
static void set_math(kn_gemm *g, kn_dtype dtype, int64_t math) {
    if (dtype != KN_F32) math = KILN_MATH_FAST;
    g->a_split = g->b_split = math == KILN_MATH_ACCURATE ? 3 : math == KILN_MATH_BALANCED ? 2 : 1;
    g->promote = math != KILN_MATH_FAST ? KN_GEMM_PROMOTE : 0;
}

/* An operand that is a tensor argument whose last two axes are its matrix. `depth_axis` is the axis of K. */
static kn_gemm_operand operand(const kn_problem *p, int arg, int first_axis, int depth_axis, int group_axis) {
    int contiguous = p->layout[arg] == KN_LAYOUT_COLS ? first_axis : first_axis + 1;
    int other = 2 * first_axis + 1 - contiguous;
    return (kn_gemm_operand){.place = kn_place_arg(arg),
                             .dtype = (kn_dtype)p->dtype[arg],
                             .depth_contiguous = contiguous == depth_axis,
                             .stride_dim = other,
                             .group_dim = group_axis,
                             .align_log2 = p->align_log2[arg]};
}

kn_status kn_gemm_describe(const kn_call *call, kn_problem *p) {
    const kiln_gemm_options *o = call->options;
    p->axis[KN_GEMM_M] = call->letter['M' - 'A'];
    p->axis[KN_GEMM_N] = call->letter['N' - 'A'];
    p->axis[KN_GEMM_K] = call->letter['K' - 'A'];
    KN_REQUIRE(call->tensor[D].dtype != KN_DTYPE_NONE, KN_E_ARG, "d is NULL; wanted a tensor: it is the only output");
    p->option[OPTION_MATH] = o->math;
    return KN_OK;
}

kn_status kn_gemm_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target, kn_program *out) {
    int64_t m = p->axis[KN_GEMM_M], n = p->axis[KN_GEMM_N], k = p->axis[KN_GEMM_K];
    kn_program_builder builder = {.program = out};
    kn_gemm g = {.symbol = "gemm",
                 .m = m,
                 .n = n,
                 .n_segments = 1,
                 .segment = {{operand(p, A, 0, 1, -1), operand(p, B, 0, 0, -1), k}},
                 .d = operand(p, D, 0, 1, -1),
                 .accumulate = p->accumulate & 1,
                 .epilogue = "store"};
    set_math(&g, (kn_dtype)p->dtype[A], p->option[OPTION_MATH]);
    if (k == 0 && g.accumulate) return KN_OK; /* D += 0: not a bit changes */
    kn_gemm_emit(&builder, &g, p, facts, target);
    double size = kn_dtype_size((kn_dtype)p->dtype[A]);
    out->floor_flops = 2.0 * (double)m * (double)n * (double)k;
    out->floor_bytes = size * ((double)m * (double)k + (double)k * (double)n) +
                       kn_dtype_size((kn_dtype)p->dtype[D]) * (double)m * (double)n;
    return builder.status;
}

static kn_status check_matrix(const kn_tensor *t, const char *name, int ndim, const int64_t *want) {
    KN_REQUIRE(t->ndim == ndim, KN_E_SHAPE, "%s has %d axes; wanted %d", name, t->ndim, ndim);
    for (int i = 0; i < ndim; i++) {
        KN_REQUIRE(t->shape[i] == want[i], KN_E_SHAPE, "%s: axis %d is %lld; wanted %lld", name, i,
                   (long long)t->shape[i], (long long)want[i]);
    }
    return KN_OK;
}

kn_status kn_grouped_gemm_describe(const kn_call *call, kn_problem *p) {
    const kiln_grouped_gemm_options *o = call->options;
    const kn_tensor *b = &call->tensor[GROUPED_B], *d = &call->tensor[GROUPED_D];
    int64_t m = call->letter['M' - 'A'], k = call->letter['K' - 'A'], g = call->letter['G' - 'A'];
    bool rows = o->ragged == KILN_RAGGED_M;
    KN_REQUIRE(g >= 1 && g <= 8192, KN_E_SHAPE, "offsets has %lld elements; wanted 2 to 8193", (long long)g + 1);
    KN_REQUIRE(d->dtype != KN_DTYPE_NONE, KN_E_ARG, "d is NULL; wanted a tensor: it is the only output");
    KN_REQUIRE(b->ndim >= 1, KN_E_SHAPE, "b has no axes; wanted %d", rows ? 3 : 2);
    int64_t n = b->shape[b->ndim - 1];
    int64_t want_b[3] = {g, k, n}, want_d[3] = {g, m, n};
    KN_TRY(check_matrix(b, "b", rows ? 3 : 2, rows ? want_b : want_b + 1));
    KN_TRY(check_matrix(d, "d", rows ? 2 : 3, rows ? want_d + 1 : want_d));
    p->axis[KN_GEMM_M] = m;
    p->axis[KN_GEMM_N] = n;
    p->axis[KN_GEMM_K] = k;
    p->axis[KN_GEMM_G] = g;
    p->option[OPTION_MATH] = o->math;
    p->option[OPTION_RAGGED] = o->ragged;
    return KN_OK;
}

kn_status kn_grouped_gemm_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                               kn_program *out) {
    int64_t m = p->axis[KN_GEMM_M], n = p->axis[KN_GEMM_N], k = p->axis[KN_GEMM_K], groups = p->axis[KN_GEMM_G];
    bool rows = p->option[OPTION_RAGGED] == KILN_RAGGED_M;
    kn_program_builder builder = {.program = out};
    kn_gemm g = {.symbol = "grouped_gemm",
                 .m = m,
                 .n = n,
                 .m_is_tokens = rows,
                 .k_is_tokens = !rows,
                 .n_segments = 1,
                 .segment = {{operand(p, GROUPED_A, 0, 1, -1),
                              rows ? operand(p, GROUPED_B, 1, 1, 0) : operand(p, GROUPED_B, 0, 0, -1), k}},
                 .group = rows ? KN_GROUP_M : KN_GROUP_K,
                 .n_groups = groups,
                 .offsets = kn_place_arg(OFFSETS),
                 .offsets_dtype = (kn_dtype)p->dtype[OFFSETS],
                 .d = rows ? operand(p, GROUPED_D, 0, 1, -1) : operand(p, GROUPED_D, 1, 2, 0),
                 .accumulate = p->accumulate & 1,
                 .epilogue = "store"};
    set_math(&g, (kn_dtype)p->dtype[GROUPED_A], p->option[OPTION_MATH]);
    if (rows && m > 0 && n > 0) {
        int64_t entries = kn_gemm_tile_map_entries(m, groups, kn_gemm_tile_m(&g, p, target));
        g.tile_map = kn_place_workspace(kn_add_workspace(&builder, (uint64_t)entries * 8));
        kn_gemm_emit_tile_map(&builder, &g, p, target);
    }
    kn_gemm_emit(&builder, &g, p, facts, target);
    double size = kn_dtype_size((kn_dtype)p->dtype[GROUPED_A]), dn = (double)n, dk = (double)k, dm = (double)m;
    out->floor_flops = 2.0 * dm * dn * dk;
    out->floor_bytes = size * (dm * dk + dk * dn * (rows ? (double)groups : 1.0)) +
                       kn_dtype_size((kn_dtype)p->dtype[GROUPED_D]) * dm * dn * (rows ? 1.0 : (double)groups);
    return builder.status;
}
