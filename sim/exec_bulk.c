/* exec_bulk: cp.async.bulk, cp.reduce.async.bulk, their tensor forms, prefetches and bulk groups. */
#include "sim/bulk.h"
#include "sim/ptx_module.h"

/* Operands that all forms share, as lanes. */
typedef struct arguments {
    uint64_t dst[32], src[32], bar[32];
    uint32_t room[32];
    const uint32_t *value; /* bytes of a one-dimensional copy, mask of a multicast */
} arguments;

static kn_status check_size(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint32_t bytes, uint64_t global) {
    if (bytes == 0 || bytes % 16)
        return kn_fault(m, w, i, lane, "a bulk copy of %u bytes: wanted a positive multiple of 16", bytes);
    if (global % 16)
        return kn_fault(m, w, i, lane, "global address 0x%llx is not aligned to 16 bytes", (unsigned long long)global);
    return KN_OK;
}

/* ---- one-dimensional ------------------------------------------------------------------------------------- */

/* [dst], [src], bytes, [mbar]{, mask} */
kn_status kn_x_bulk_load(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    arguments a;
    uint32_t room[32];
    const uint32_t *mask = NULL;
    bool multicast = i->m[KN_M_MULTICAST] != 0;
    KN_TRY(kn_units_shared(m, w, i, &i->op[0], KN_SPACE_SHARED, active, a.dst));
    KN_TRY(kn_src_addr(m, w, i, &i->op[1], active, a.src));
    KN_TRY(kn_src32(m, w, i, &i->op[2], active, a.room, &a.value));
    KN_TRY(kn_units_shared(m, w, i, &i->op[3], KN_SPACE_SHARED, active, a.bar));
    if (multicast) KN_TRY(kn_src32(m, w, i, &i->op[4], active, room, &mask));
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        kn_copy c = {.global = a.src[lane], .bytes = a.value[lane]};
        KN_TRY(check_size(m, w, i, lane, c.bytes, c.global));
        KN_TRY(kn_bulk_load_all(m, w, i, lane, &c, a.dst[lane], a.bar[lane], multicast, mask ? mask[lane] : 0, 16));
    }
    return KN_OK;
}

/* [dst], [src], bytes */
kn_status kn_x_bulk_store(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    arguments a;
    KN_TRY(kn_src_addr(m, w, i, &i->op[0], active, a.dst));
    KN_TRY(kn_units_shared(m, w, i, &i->op[1], KN_SPACE_SHARED, active, a.src));
    KN_TRY(kn_src32(m, w, i, &i->op[2], active, a.room, &a.value));
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        kn_copy c = {.global = a.dst[lane], .bytes = a.value[lane]};
        KN_TRY(check_size(m, w, i, lane, c.bytes, c.global));
        KN_TRY(kn_bulk_source(m, w, i, lane, a.src[lane], c.bytes, 16, &c.cta, &c.offset));
        if (i->aux) KN_TRY(kn_bulk_reduction(m, w, i, (kn_tma_elem)(i->aux - 1), &c));
        KN_TRY(kn_bulk_store(m, w, i, lane, &c));
    }
    return KN_OK;
}

/* [dst in the cluster], [own src], bytes, [mbar beside dst] */
kn_status kn_x_bulk_peer(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    arguments a;
    KN_TRY(kn_units_shared(m, w, i, &i->op[0], KN_SPACE_SHARED, active, a.dst));
    KN_TRY(kn_units_shared(m, w, i, &i->op[1], KN_SPACE_SHARED, active, a.src));
    KN_TRY(kn_src32(m, w, i, &i->op[2], active, a.room, &a.value));
    KN_TRY(kn_units_shared(m, w, i, &i->op[3], KN_SPACE_SHARED, active, a.bar));
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        kn_copy c = {.bytes = a.value[lane]};
        KN_TRY(check_size(m, w, i, lane, c.bytes, 0));
        if (KN_SMEM_RANK(a.dst[lane]) != KN_SMEM_RANK(a.bar[lane]))
            return kn_fault(m, w, i, lane, "the destination and its mbarrier lie in different CTAs");
        KN_TRY(kn_bulk_source(m, w, i, lane, a.src[lane], c.bytes, 16, &c.from, &c.from_offset));
        KN_TRY(kn_shared_at(m, w, i, lane, a.dst[lane], c.bytes, 16, &c.cta, &c.offset));
        KN_TRY(kn_bar_at(m, w, i, lane, a.bar[lane], true, &c.bar));
        KN_TRY(kn_bulk_peer(m, w, i, lane, &c));
    }
    return KN_OK;
}

static bool elem_of(kn_type t, uint64_t *out) {
    static const struct {
        uint8_t type, elem;
    } of[] = {{KN_T_u32, KN_TMA_U32}, {KN_T_s32, KN_TMA_S32},   {KN_T_u64, KN_TMA_U64}, {KN_T_s64, KN_TMA_S64},
              {KN_T_f16, KN_TMA_F16}, {KN_T_bf16, KN_TMA_BF16}, {KN_T_f32, KN_TMA_F32}, {KN_T_f64, KN_TMA_F64},
              {KN_T_b32, KN_TMA_B32}, {KN_T_b64, KN_TMA_B64}};
    for (uint32_t k = 0; k < sizeof of / sizeof of[0]; k++) {
        if (of[k].type != t) continue;
        *out = of[k].elem + 1u;
        return true;
    }
    return false;
}

kn_status kn_p_bulk_reduce(kn_insn *i) {
    if (!elem_of((kn_type)i->type[0], &i->aux)) return kn_insn_error(i, "no bulk reduction of this type");
    bool half = i->type[0] == KN_T_f16 || i->type[0] == KN_T_bf16;
    if (half && i->m[KN_M_OP] == KN_TOK_add && i->m[KN_M_FTZ] != KN_TOK_noftz)
        return kn_insn_error(i, ".add needs .noftz here");
    return KN_OK;
}

/* A prefetch moves nothing that the simulator can see; its addresses are checked as they are. */
kn_status kn_x_bulk_prefetch(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    arguments a;
    KN_TRY(kn_src_addr(m, w, i, &i->op[0], active, a.src));
    KN_TRY(kn_src32(m, w, i, &i->op[1], active, a.room, &a.value));
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        KN_TRY(check_size(m, w, i, lane, a.value[lane], a.src[lane]));
    }
    return KN_OK;
}

/* ---- tensors --------------------------------------------------------------------------------------------- */

/* The 128 bytes behind an address operand: a parameter or global memory. */
static kn_status map_bytes(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, const kn_operand *o, uint64_t generic,
                           const uint8_t **out) {
    uint64_t addr = generic;
    bool named_param = o->slot == KN_NO_SLOT && o->space == KN_SPACE_PARAM;
    kn_space space = named_param ? KN_SPACE_PARAM : kn_resolve(generic, &addr);
    if (addr % 64)
        return kn_fault(m, w, i, lane, "the tensor map's address 0x%llx is not a multiple of 64",
                        (unsigned long long)addr);
    if (space == KN_SPACE_PARAM) return kn_param_at(m, w, i, lane, addr, 128, out);
    if (space != KN_SPACE_GLOBAL)
        return kn_fault(m, w, i, lane, "the tensor map lies neither in global memory nor in a parameter");
    KN_TRY(kn_global_at(m, w, i, lane, addr, 128, 64, KN_READ));
    *out = (const uint8_t *)(uintptr_t)addr;
    return KN_OK;
}

/* Map and coordinates of one lane from operand [map, {c0, ..}]. */
static kn_status tensor_of(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, const kn_operand *o,
                           const uint64_t addr[32], kn_copy *c) {
    const uint8_t *bytes = NULL;
    *c = (kn_copy){.tensor = true};
    KN_TRY(map_bytes(m, w, i, lane, o, addr[lane], &bytes));
    const char *why = kn_tma_decode(bytes, &c->map);
    if (why) return kn_fault(m, w, i, lane, "%s", why);
    if (c->map.rank != o->n)
        return kn_fault(m, w, i, lane, "%u coordinates for a tensor map of rank %u", o->n, c->map.rank);
    for (int d = 0; d < o->n; d++) {
        uint32_t room[32];
        const uint32_t *v;
        KN_TRY(kn_src32(m, w, i, &o->elem[d], 1u << lane, room, &v));
        c->coord[d] = (int32_t)v[lane];
    }
    c->bytes = c->map.box_bytes;
    return KN_OK;
}

kn_status kn_p_bulk_tensor(kn_insn *i) {
    static const uint8_t dims[] = {KN_TOK_d1, KN_TOK_d2, KN_TOK_d3, KN_TOK_d4, KN_TOK_d5};
    for (int k = 0; k < i->n_op; k++) {
        if (i->op[k].kind != KN_O_ADDR || i->op[k].n == 0) continue;
        if (i->op[k].n > 5 || dims[i->op[k].n - 1] != i->m[KN_M_DIM])
            return kn_insn_error(i, "%u coordinates do not fit the instruction's dimensions", i->op[k].n);
        return KN_OK;
    }
    return kn_insn_error(i, "the coordinates are missing");
}

/* [dst], [map, {c}], [mbar]{, mask} */
kn_status kn_x_tensor_load(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    arguments a;
    bool multicast = i->m[KN_M_MULTICAST] != 0;
    KN_TRY(kn_units_shared(m, w, i, &i->op[0], KN_SPACE_SHARED, active, a.dst));
    KN_TRY(kn_src_addr(m, w, i, &i->op[1], active, a.src));
    KN_TRY(kn_units_shared(m, w, i, &i->op[2], KN_SPACE_SHARED, active, a.bar));
    a.value = NULL;
    if (multicast) KN_TRY(kn_src32(m, w, i, &i->op[3], active, a.room, &a.value));
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        kn_copy c;
        KN_TRY(tensor_of(m, w, i, lane, &i->op[1], a.src, &c));
        KN_TRY(
            kn_bulk_load_all(m, w, i, lane, &c, a.dst[lane], a.bar[lane], multicast, a.value ? a.value[lane] : 0, 128));
    }
    return KN_OK;
}

/* [map, {c}], [src] */
kn_status kn_x_tensor_store(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    arguments a;
    KN_TRY(kn_src_addr(m, w, i, &i->op[0], active, a.dst));
    KN_TRY(kn_units_shared(m, w, i, &i->op[1], KN_SPACE_SHARED, active, a.src));
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        kn_copy c;
        KN_TRY(tensor_of(m, w, i, lane, &i->op[0], a.dst, &c));
        KN_TRY(kn_bulk_source(m, w, i, lane, a.src[lane], c.bytes, 128, &c.cta, &c.offset));
        if (i->m[KN_M_OP]) {
            kn_tma_elem elem;
            if (!kn_tma_map_elem(c.map.dtype, &elem))
                return kn_fault(m, w, i, lane, "the tensor map's type has no reductions");
            KN_TRY(kn_bulk_reduction(m, w, i, elem, &c));
        }
        KN_TRY(kn_bulk_store(m, w, i, lane, &c));
    }
    return KN_OK;
}

/* [map, {c}] */
kn_status kn_x_tensor_prefetch(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    arguments a;
    KN_TRY(kn_src_addr(m, w, i, &i->op[0], active, a.src));
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        kn_copy c;
        KN_TRY(tensor_of(m, w, i, __builtin_ctz(lanes), &i->op[0], a.src, &c));
    }
    return KN_OK;
}

/* prefetch.tensormap [map] */
kn_status kn_x_map_prefetch(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    arguments a;
    KN_TRY(kn_src_addr(m, w, i, &i->op[0], active, a.src));
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        const uint8_t *bytes = NULL;
        kn_tma_map map;
        if (i->space[0] == KN_SPACE_PARAM)
            KN_TRY(kn_param_at(m, w, i, lane, a.src[lane] & ~KN_WINDOW_MASK, 128, &bytes));
        else
            KN_TRY(map_bytes(m, w, i, lane, &i->op[0], a.src[lane], &bytes));
        const char *why = kn_tma_decode(bytes, &map);
        if (why) return kn_fault(m, w, i, lane, "%s", why);
    }
    return KN_OK;
}

/* ---- bulk groups ----------------------------------------------------------------------------------------- */

kn_status kn_x_bulk_commit(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    kn_warp_units *u;
    KN_TRY(kn_warp_units_of(w, &u));
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        kn_bulk_lane *b = u->bulk[lane];
        if (!b) continue; /* an empty group: nothing to wait for */
        if (b->n == KN_BULK_GROUPS - 1) {
            const kn_bulk_group *oldest = &b->group[b->first];
            if (oldest->reads || oldest->writes)
                return kn_fault(m, w, i, lane, "more than %d bulk groups of one thread are under way",
                                KN_BULK_GROUPS - 1);
            b->first = (b->first + 1) % KN_BULK_GROUPS;
            b->n--;
        }
        b->n++;
        b->group[(b->first + b->n) % KN_BULK_GROUPS] = (kn_bulk_group){0};
    }
    kn_hb_warp *h = w->hb;
    if (h) {
        h->count[KN_A_BULK_READ]++;
        h->count[KN_A_BULK_WRITE]++;
    }
    return KN_OK;
}

kn_status kn_x_bulk_wait(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)m;
    kn_warp_units *u;
    KN_TRY(kn_warp_units_of(w, &u));
    uint32_t keep = (uint32_t)i->op[0].imm;
    bool full = i->aux == 0;
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        const kn_bulk_lane *b = u->bulk[__builtin_ctz(lanes)];
        for (uint32_t k = 0; b && k + keep < b->n; k++) {
            const kn_bulk_group *g = &b->group[(b->first + k) % KN_BULK_GROUPS];
            if (g->reads == 0 && (g->writes == 0 || !full)) continue;
            w->g->wait = "bulk groups, all but the newest";
            w->g->wait_arg = keep;
            w->g->stage = 1;
            return KN_NOT_READY;
        }
    }
    for (uint32_t lanes = active; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        kn_bulk_lane *b = u->bulk[lane];
        if (!b || b->n <= keep) continue;
        uint32_t count = 0;
        for (uint32_t k = 0; k + keep < b->n; k++) {
            uint32_t c = b->group[(b->first + k) % KN_BULK_GROUPS].count;
            if (c > count) count = c;
        }
        kn_hb_waited_alone(w, (uint32_t)lane, KN_A_BULK_READ, count);
        if (!full) continue;
        kn_hb_waited_alone(w, (uint32_t)lane, KN_A_BULK_WRITE, count);
        b->first = (b->first + b->n - keep) % KN_BULK_GROUPS;
        b->n = keep;
    }
    return KN_OK;
}

kn_status kn_bulk_exit(kn_machine *m, kn_warp *w) {
    const kn_warp_units *u = w->units;
    const kn_hb_warp *h = w->hb;
    for (int lane = 0; u && h && lane < KN_LANES; lane++) {
        const kn_bulk_lane *b = u->bulk[lane];
        uint32_t count = 0; /* of the newest group with a copy in it */
        for (uint32_t k = 0; b && k <= b->n; k++) {
            uint32_t c = b->group[(b->first + k) % KN_BULK_GROUPS].count;
            if (c > count) count = c;
        }
        kn_tick known =
            kn_vc_get(kn_hb_view(w, 1u << lane), KN_L_ORDER, w->cta->cluster->index, h->base + KN_A_BULK_READ);
        if (h->own[0][lane] < count && !kn_tick_covers(known, count, 1u << lane))
            return kn_fault(
                m, w, &m->entry->code[w->g->pc], lane,
                "the thread exits without waiting for its bulk copies: they may still read the CTA's shared memory");
    }
    return KN_OK;
}

kn_status kn_p_bulk_wait(kn_insn *i) {
    if (i->op[0].imm < 0 || i->op[0].imm > KN_BULK_GROUPS)
        return kn_insn_error(i, "a group count of %lld", (long long)i->op[0].imm);
    i->aux = strstr(i->text, ".read") != NULL;
    return KN_OK;
}
