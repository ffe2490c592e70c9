/* exec_cluster: what the CTAs of a cluster do with each other (mapa, st.async, barrier.cluster), the register pool of
 * setmaxnreg, and the order between dependent launches. */
#include "sim/units.h"

/* ---- addresses in the cluster ---------------------------------------------------------------------------- */

/* mapa d, a, rank: the address of the same variable in CTA `rank`. */
kn_status kn_x_mapa(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t wide[32], out[32] = {0};
    uint32_t room[32];
    const uint64_t *a;
    const uint32_t *rank;
    bool generic = i->space[0] == KN_SPACE_GENERIC;
    KN_TRY(kn_src64(m, w, i, &i->op[1], active, wide, &a));
    KN_TRY(kn_src32(m, w, i, &i->op[2], active, room, &rank));
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        uint64_t addr = a[lane];
        if (generic && kn_resolve(a[lane], &addr) != KN_SPACE_SHARED_CLUSTER)
            return kn_fault(m, w, i, lane, "the generic address 0x%llx does not lie in shared memory",
                            (unsigned long long)a[lane]);
        if (rank[lane] >= m->cluster->n_ctas)
            return kn_fault(m, w, i, lane, "rank %u: the cluster has %u CTAs", rank[lane], m->cluster->n_ctas);
        out[lane] =
            (uint64_t)rank[lane] << KN_SMEM_RANK_SHIFT | KN_SMEM_OFFSET(addr) | (generic ? KN_WINDOW_SHARED : 0);
    }
    return kn_put64(m, w, i, &i->op[0], active, out);
}

kn_status kn_x_getctarank(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t room[32];
    const uint64_t *a;
    uint32_t rank[32] = {0};
    KN_TRY(kn_src64(m, w, i, &i->op[1], active, room, &a));
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        uint64_t addr = a[lane];
        if (i->space[0] == KN_SPACE_GENERIC && kn_resolve(a[lane], &addr) != KN_SPACE_SHARED_CLUSTER)
            return kn_fault(m, w, i, lane, "the generic address 0x%llx does not lie in shared memory",
                            (unsigned long long)a[lane]);
        rank[lane] = KN_SMEM_RANK(addr);
    }
    return kn_put32(m, w, i, &i->op[0], active, rank);
}

/* ---- st.async -------------------------------------------------------------------------------------------- */

typedef struct remote_store {
    kn_cta *cta;
    uint32_t offset, bytes;
    kn_bar_slot *bar;
    uint8_t data[16];
} remote_store;

static kn_status land(kn_machine *m, kn_async *a) {
    remote_store *r = a->data;
    if (r->cta->live_warps == 0)
        return kn_fault(m, a->warp, a->insn, a->lane,
                        "CTA (%u,%u,%u) has exited before a store to its shared memory arrives", r->cta->id[0],
                        r->cta->id[1], r->cta->id[2]);
    memcpy(r->cta->smem + r->offset, r->data, r->bytes);
    memset(r->cta->shadow + r->offset, KN_SH_INIT, r->bytes);
    KN_TRY(kn_hb_shared_settle(r->cta, r->offset, r->bytes, kn_bar_running(r->bar, 0), kn_bar_done(r->bar, 0)));
    return kn_bar_complete_tx(m, a->warp, a->insn, a->lane, r->bar, r->bytes);
}

static kn_status send(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t addr, uint64_t bar,
                      const uint8_t *data, uint32_t bytes) {
    kn_async *a = NULL;
    remote_store r = {.bytes = bytes};
    if (KN_SMEM_RANK(addr) != KN_SMEM_RANK(bar))
        return kn_fault(m, w, i, lane, "the destination lies in CTA %u, its mbarrier in CTA %u", KN_SMEM_RANK(addr),
                        KN_SMEM_RANK(bar));
    KN_TRY(kn_shared_at(m, w, i, lane, addr, bytes, bytes, &r.cta, &r.offset));
    KN_TRY(kn_bar_at(m, w, i, lane, bar, false, &r.bar));
    KN_TRY(kn_shared_check(m, w, i, lane, r.cta, r.offset, bytes, KN_WRITE));
    kn_hb_access h = {.who = kn_bar_running(r.bar, 0),
                      .vc = w->hb ? kn_hb_view(w, 1u << lane) : NULL,
                      .kind = KN_WRITE,
                      .lane = lane,
                      .self = w};
    KN_TRY(kn_hb_shared(m, w, i, &h, r.cta, r.offset, bytes));
    memset(r.cta->shadow + r.offset, KN_SH_INFLIGHT, bytes);
    memcpy(r.data, data, bytes);
    KN_TRY(kn_async_begin(m, w, i, lane, land, sizeof r, &a));
    memcpy(a->data, &r, sizeof r);
    return KN_OK;
}

/* [addr], value(s), [mbar] */
kn_status kn_x_st_async(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[32], bar[32], room[32];
    uint8_t data[32][16];
    uint32_t size = kn_type_bytes[i->type[0]];
    KN_TRY(kn_units_shared(m, w, i, &i->op[0], KN_SPACE_SHARED, active, addr));
    KN_TRY(kn_units_shared(m, w, i, &i->op[2], KN_SPACE_SHARED, active, bar));
    for (uint32_t k = 0; k < i->vec; k++) {
        const kn_operand *o = i->op[1].kind == KN_O_VEC ? &i->op[1].elem[k] : &i->op[1];
        const uint64_t *v;
        KN_TRY(kn_src64(m, w, i, o, active, room, &v));
        for (int lane = 0; lane < 32; lane++) memcpy(data[lane] + k * size, &v[lane], size);
    }
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        KN_TRY(send(m, w, i, lane, addr[lane], bar[lane], data[lane], size * i->vec));
    }
    return KN_OK;
}

/* ---- barrier.cluster ------------------------------------------------------------------------------------- */

typedef struct kn_cluster_units {
    kn_hb_object *arrived, *complete;
} kn_cluster_units;

static kn_status cluster_units(kn_cluster *c, kn_cluster_units **out) {
    if (!c->units) {
        kn_cluster_units *u = kn_arena_alloc(&c->arena, sizeof *u);
        KN_REQUIRE(u != NULL, KN_E_NOMEM, "out of memory for a cluster's barrier");
        KN_TRY(kn_hb_object_make(c, &u->arrived));
        KN_TRY(kn_hb_object_make(c, &u->complete));
        c->units = u;
    }
    *out = c->units;
    return KN_OK;
}

/* All threads of the cluster that have not exited have arrived: the next phase begins. */
static kn_status try_complete(kn_cluster *c, kn_cluster_units *u) {
    uint32_t live = 0;
    for (uint32_t k = 0; k < c->n_ctas; k++) live += c->ctas[k].live_threads;
    if (c->cluster_bar.arrived == 0 || c->cluster_bar.arrived < live) return KN_OK;
    c->cluster_bar.arrived = 0;
    c->cluster_bar.phase++;
    kn_wake(c);
    return u->arrived ? kn_vc_copy(&u->complete->vc, &u->arrived->vc) : KN_OK;
}

kn_status kn_x_cluster_arrive(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    kn_cluster *c = m->cluster;
    kn_cluster_units *u;
    kn_warp_units *wu;
    KN_TRY(cluster_units(c, &u));
    KN_TRY(kn_warp_units_of(w, &wu));
    if (active & wu->arrived)
        return kn_fault(m, w, i, __builtin_ctz(active & wu->arrived),
                        "a second arrival without a barrier.cluster.wait in between");
    if (u->arrived && i->m[KN_M_SEM] == KN_TOK_relaxed)
        KN_TRY(kn_hb_release_relaxed(w, &u->arrived->vc));
    else if (u->arrived)
        KN_TRY(kn_hb_release(m, w, active, &u->arrived->vc));
    wu->arrived |= active;
    for (uint32_t mask = active; mask; mask &= mask - 1)
        wu->arrived_phase[__builtin_ctz(mask)] = (uint32_t)c->cluster_bar.phase;
    c->cluster_bar.arrived += (uint32_t)__builtin_popcount(active);
    return try_complete(c, u);
}

kn_status kn_x_cluster_wait(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    kn_cluster *c = m->cluster;
    kn_cluster_units *u;
    kn_warp_units *wu;
    KN_TRY(cluster_units(c, &u));
    KN_TRY(kn_warp_units_of(w, &wu));
    if (active & ~wu->arrived)
        return kn_fault(m, w, i, __builtin_ctz(active & ~wu->arrived),
                        "barrier.cluster.wait without an arrival before it");
    KN_TRY(try_complete(c, u)); /* threads that exited since may have been the last ones missing */
    for (uint32_t mask = active; mask; mask &= mask - 1) {
        if (wu->arrived_phase[__builtin_ctz(mask)] != (uint32_t)c->cluster_bar.phase) continue;
        w->g->wait = "the cluster's barrier; threads that have arrived:";
        w->g->wait_arg = c->cluster_bar.arrived;
        w->g->stage = 1;
        return KN_NOT_READY;
    }
    wu->arrived &= ~active;
    return u->complete ? kn_hb_acquire(w, active, &u->complete->vc) : KN_OK;
}

/* ---- setmaxnreg ------------------------------------------------------------------------------------------ */

/* What the launch gives a thread: its share of a multiprocessor's 64 K registers, warps counted in fours (one a
 * partition), in eights, at most 256. */
static uint32_t entry_registers(uint32_t n_warps) {
    uint32_t share = 65536 / ((n_warps + 3) / 4 * 4 * 32) & ~7u;
    return share > 256 ? 256 : share;
}

kn_status kn_x_setmaxnreg(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)active;
    uint32_t want = (uint32_t)i->op[0].imm;
    kn_warp_units *u;
    kn_cta_units *cu;
    KN_TRY(kn_warp_units_of(w, &u));
    KN_TRY(kn_cta_units_of(w->cta, &cu));
    if (u->registers == 0) u->registers = entry_registers(w->cta->n_warps);
    if (w->live != KN_FULL_MASK || (w->id | 3) >= w->cta->n_warps)
        return kn_fault(m, w, i, -1, "setmaxnreg needs a warpgroup of four whole warps");
    if (i->aux ? want < u->registers : want > u->registers)
        return kn_fault(m, w, i, -1, "setmaxnreg.%s to %u, but a thread of this warp has %u registers",
                        i->aux ? "inc" : "dec", want, u->registers);
    if (i->aux && want - u->registers > cu->pool) {
        w->g->wait = "registers (setmaxnreg.inc); per thread and warp there are free:";
        w->g->wait_arg = cu->pool;
        w->g->stage = 1;
        return KN_NOT_READY;
    }
    if (i->aux)
        cu->pool -= want - u->registers;
    else
        cu->pool += u->registers - want;
    u->registers = want;
    kn_wake(m->cluster);
    /* All warps of a warpgroup must do the same. */
    uint32_t group = w->id / 4, n = u->n_setmaxnreg++;
    if (n >= KN_SETMAXNREG_MAX)
        return kn_fault(m, w, i, -1, "a warp changes its registers more than %d times", KN_SETMAXNREG_MAX);
    if (cu->setmaxnreg[group][n] == 0) cu->setmaxnreg[group][n] = (uint16_t)want;
    if (cu->setmaxnreg[group][n] != want)
        return kn_fault(m, w, i, -1, "the warps of the warpgroup set different register counts: %u and %u",
                        cu->setmaxnreg[group][n], want);
    return KN_OK;
}

kn_status kn_p_setmaxnreg(kn_insn *i) {
    int64_t v = i->op[0].imm;
    if (v < 24 || v > 256 || v % 8)
        return kn_insn_error(i, "%lld registers: wanted a multiple of 8 in 24..256", (long long)v);
    i->aux = strstr(i->text, ".inc") != NULL;
    return KN_OK;
}

/* ---- griddepcontrol -------------------------------------------------------------------------------------- */

/* One launch runs at a time here: nothing to wait for, but the order is checked. */
kn_status kn_x_griddep_wait(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)m;
    (void)i;
    return kn_hb_grid_wait(w, active);
}

kn_status kn_x_griddep_launch(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    (void)m;
    (void)w;
    (void)i;
    (void)active;
    return KN_OK;
}
