/* ops/gemm: what every product has in common whatever path it takes: tile maps, bindings, the epilogue's parameters. */
#include "ops/gemm.h"

#include "ops/gemm_choice.h"

#include <stdio.h>
#include <string.h>

int64_t kn_gemm_tile_m(const kn_gemm *g, const kn_problem *p, const kn_target *target) {
    (void)target;
    return kn_gemm_portable_tile(g, p->generic).bm;
}

int64_t kn_gemm_tile_map_entries(int64_t rows, int64_t n_groups, int64_t tile_m) {
    if (rows == 0) return 0;
    /* Every group but the last may leave a tile unfinished; no group without rows has a tile. */
    int64_t groups = n_groups < rows ? n_groups : rows;
    return kn_ceil_div(rows - groups, tile_m) + groups;
}

void kn_gemm_bind_place(kn_launch_spec *l, const kn_place *place) {
    if (place->in_workspace) {
        kn_bind_workspace(l, place->offset_bytes);
    } else {
        kn_bind_tensor(l, place->arg, place->offset_bytes);
    }
}

void kn_gemm_bind_ld(kn_launch_spec *l, const kn_gemm_operand *o) {
    if (o->stride_dim >= 0) {
        kn_bind_stride(l, o->place.arg, o->stride_dim);
    } else {
        kn_bind_i64(l, o->stride_elems);
    }
}

void kn_gemm_bind_strides(kn_launch_spec *l, const kn_gemm_operand *o) {
    kn_gemm_bind_ld(l, o);
    if (o->group_dim >= 0) {
        kn_bind_stride(l, o->place.arg, o->group_dim);
    } else {
        kn_bind_i64(l, o->group_elems);
    }
}

static bool is_store(const kn_gemm *g) {
    return strcmp(g->epilogue, "store") == 0;
}

/* Whether the epilogue's rows can be taken 16 bytes at a time. */
bool kn_gemm_epilogue_is_wide(const kn_gemm *g) {
    return g->n % 8 == 0 && (is_store(g) ? g->d.align_log2 : g->epi_align_log2) >= 4;
}

void kn_gemm_epilogue_params(const kn_gemm *g, kn_params *params) {
    kn_params_set_name(params, "EPI", g->epilogue);
    kn_params_set(params, is_store(g) ? "D_VEC" : "ACT_VEC", kn_gemm_epilogue_is_wide(g) ? 8 : 1);
    if (is_store(g)) {
        kn_params_set_name(params, "D_T", kn_dtype_name(g->d.dtype));
        kn_params_set(params, "ACCUMULATE", g->accumulate);
    }
    for (uint32_t i = 0; i < g->n_epi_params; i++) {
        const kn_param *q = &g->epi_param[i];
        if (q->is_name) {
            kn_params_set_name(params, q->name, q->text);
        } else {
            kn_params_set(params, q->name, q->value);
        }
    }
}

void kn_gemm_bind_epilogue(kn_launch_spec *l, const kn_gemm *g) {
    if (is_store(g)) {
        kn_gemm_bind_place(l, &g->d.place);
        kn_gemm_bind_strides(l, &g->d);
    }
    for (uint32_t i = 0; i < g->n_epi_bind; i++) {
        if (l->n_bind < KN_MAX_BINDINGS) l->bind[l->n_bind] = g->epi_bind[i];
        l->n_bind++;
    }
}

void kn_gemm_emit_tile_map(kn_program_builder *b, const kn_gemm *g, const kn_problem *p, const kn_target *target) {
    int64_t tile_m = kn_gemm_tile_m(g, p, target);
    int64_t entries = kn_gemm_tile_map_entries(g->m, g->n_groups, tile_m);
    if (entries == 0) return;
    int kernel;
    kn_params *params = kn_add_kernel(b, "tile_map.ptxt", &kernel);
    kn_params_set(params, "GROUPS", g->n_groups);
    kn_params_set(params, "BM", tile_m);
    kn_params_set(params, "ENTRIES", g->m_is_tokens && p->generic ? -1 : entries);
    kn_params_set_name(params, "OFFSETS_T", g->offsets_dtype == KN_I64 ? "s64" : "s32");
    kn_launch_spec *l = kn_add_launch(b, kernel, 1, 1, 1);
    kn_gemm_bind_place(l, &g->offsets);
    kn_gemm_bind_place(l, &g->tile_map);
    kn_bind_i32(l, (int32_t)entries);
}

/* One product on the only path that makes it. */
static void emit_portable(kn_program_builder *b, const kn_gemm *g, const kn_problem *p, const char *reason) {
    kn_gemm_tile t = kn_gemm_portable_tile(g, p->generic);
    char tile[KN_GEMM_NAME_CAP];
    snprintf(tile, sizeof tile, "mma-%dx%d", (int)t.bm, (int)t.bn);
    kn_gemm_explain_only(b, &g, 1, "mma", tile, reason);
    kn_gemm_portable_emit(b, g, p);
}

void kn_gemm_emit_group(kn_program_builder *b, const kn_gemm *const *g, int n, const kn_problem *p,
                        const kn_device_facts *facts, const kn_target *target) {
    if (b->status != KN_OK || n == 0) return;
    const char *refusal = kn_gemm_sm90_refusal(g, n, p, target);
    if (!refusal) {
        kn_gemm_sm90_emit(b, g, n, p, facts);
        return;
    }
    for (int i = 0; i < n; i++) {
        const kn_gemm *one[1] = {g[i]};
        if (g[i]->m == 0 || g[i]->n == 0) continue;
        if (n > 1) refusal = kn_gemm_sm90_refusal(one, 1, p, target);
        if (refusal)
            emit_portable(b, g[i], p, refusal);
        else
            kn_gemm_sm90_emit(b, one, 1, p, facts);
    }
}

int64_t kn_gemm_counters(const kn_gemm *g, const kn_problem *p, const kn_target *target) {
    return kn_gemm_sm90_refusal(&g, 1, p, target) ? 0 : kn_gemm_counter_words(g);
}

bool kn_gemm_may_fill(const kn_gemm *g, const kn_problem *p, const kn_target *target) {
    return kn_gemm_sm90_refusal(&g, 1, p, target) == NULL;
}

void kn_gemm_emit(kn_program_builder *b, const kn_gemm *g, const kn_problem *p, const kn_device_facts *facts,
                  const kn_target *target) {
    kn_gemm_emit_group(b, &g, 1, p, facts, target);
}
