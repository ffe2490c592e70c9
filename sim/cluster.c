/* Clusters: registers, shared memory and shadows of their CTAs; the state in which a CTA starts. */
#include "sim/cluster.h"
#include "base/alloc.h"
#include "sim/ptx_module.h"

/* Nobody may rely on what memory holds at the start; this makes a value that slips through conspicuous. */
enum { FILL = 0xcb };

static kn_status create_warp(const kn_entry *e, kn_warp *w) {
    KN_TRY(KN_NEW(&w->def, e->n_slots + 1, "register masks"));
    KN_TRY(KN_NEW(&w->hold, e->n_slots + 1, "register marks"));
    KN_TRY(KN_NEW(&w->pred, e->n_preds + 1, "predicates"));
    KN_TRY(KN_NEW(&w->pred_def, e->n_preds + 1, "predicates"));
    KN_TRY(KN_NEW(&w->regs, ((size_t)e->n_slots + 1) * KN_LANES, "registers"));
    if (e->local_bytes == 0) return KN_OK;
    KN_TRY(KN_NEW(&w->local, (size_t)e->local_bytes * KN_LANES, "local memory"));
    return KN_NEW(&w->local_def, (size_t)e->local_bytes * KN_LANES, "the shadow of local memory");
}

kn_status kn_cluster_create(const kn_run *run, kn_cluster **out) {
    kn_cluster *c = NULL;
    kn_status st = KN_OK;
    const uint32_t *size = run->launch->cluster;
    KN_TRY(KN_NEW(&c, 1, "a cluster"));
    c->run = (kn_run *)(uintptr_t)run;
    c->n_ctas = size[0] * size[1] * size[2];
    c->n_warps = c->n_ctas * run->n_warps;
    KN_TRY_OUT(st, KN_NEW(&c->ctas, c->n_ctas, "CTAs"));
    KN_TRY_OUT(st, KN_NEW(&c->warps, c->n_warps, "warps"));
    for (uint32_t k = 0; k < c->n_ctas; k++) {
        kn_cta *cta = &c->ctas[k];
        cta->cluster = c;
        cta->rank = k;
        cta->smem_bytes = run->smem_bytes;
        cta->n_warps = run->n_warps;
        cta->warps = c->warps + (size_t)k * run->n_warps;
        KN_TRY_OUT(st, KN_NEW(&cta->smem, run->smem_bytes, "shared memory"));
        KN_TRY_OUT(st, KN_NEW(&cta->shadow, run->smem_bytes, "the shadow of shared memory"));
        for (uint32_t v = 0; v < run->n_warps; v++) KN_TRY_OUT(st, create_warp(run->entry, &cta->warps[v]));
    }
out:
    if (st == KN_OK)
        *out = c;
    else
        kn_cluster_free(c);
    return st;
}

void kn_cluster_free(kn_cluster *c) {
    if (!c) return;
    for (uint32_t k = 0; c->ctas && k < c->n_ctas; k++) {
        kn_free(c->ctas[k].smem);
        kn_free(c->ctas[k].shadow);
    }
    for (uint32_t k = 0; c->warps && k < c->n_warps; k++) {
        kn_warp *w = &c->warps[k];
        kn_free(w->regs);
        kn_free(w->def);
        kn_free(w->hold);
        kn_free(w->pred);
        kn_free(w->pred_def);
        kn_free(w->local);
        kn_free(w->local_def);
    }
    for (uint32_t k = 0; k < c->n_pending; k++) kn_free(c->pending[k]);
    kn_free(c->pending);
    kn_free(c->ctas);
    kn_free(c->warps);
    kn_arena_free(&c->arena);
    kn_free(c);
}

/* ---- the start of a CTA ------------------------------------------------------------------------------------------ */

static void set_all(kn_warp *w, const kn_entry *e, kn_special s, uint32_t v) {
    uint32_t slot = e->special_slot[s];
    if (slot == KN_NO_SLOT) return;
    uint32_t *r = kn_reg32(w, slot);
    for (int l = 0; l < KN_LANES; l++) r[l] = v;
    w->def[slot] = KN_FULL_MASK;
}

static void set_three(kn_warp *w, const kn_entry *e, kn_special first, const uint32_t v[3]) {
    for (int k = 0; k < 3; k++) set_all(w, e, (kn_special)((int)first + k), v[k]);
}

static void set_lane(kn_warp *w, const kn_entry *e, kn_special s, int lane, uint32_t v) {
    if (e->special_slot[s] != KN_NO_SLOT) kn_reg32(w, e->special_slot[s])[lane] = v;
}

static void lane_specials(kn_warp *w, const kn_entry *e, const uint32_t block[3]) {
    for (int s = KN_S_TID_X; s <= KN_S_TID_Z; s++) set_all(w, e, (kn_special)s, 0);
    for (int s = KN_S_LANEMASK_EQ; s <= KN_S_LANEMASK_GT; s++) set_all(w, e, (kn_special)s, 0);
    set_all(w, e, KN_S_LANEID, 0);
    for (int l = 0; l < KN_LANES; l++) {
        uint32_t t = w->id * KN_LANES + (uint32_t)l, bit = 1u << l;
        set_lane(w, e, KN_S_TID_X, l, t % block[0]);
        set_lane(w, e, KN_S_TID_Y, l, t / block[0] % block[1]);
        set_lane(w, e, KN_S_TID_Z, l, t / block[0] / block[1]);
        set_lane(w, e, KN_S_LANEID, l, (uint32_t)l);
        set_lane(w, e, KN_S_LANEMASK_EQ, l, bit);
        set_lane(w, e, KN_S_LANEMASK_LT, l, bit - 1);
        set_lane(w, e, KN_S_LANEMASK_LE, l, bit | (bit - 1));
        set_lane(w, e, KN_S_LANEMASK_GT, l, ~(bit | (bit - 1)));
        set_lane(w, e, KN_S_LANEMASK_GE, l, ~(bit - 1));
    }
}

static void warp_specials(const kn_run *run, const kn_cta *cta, kn_warp *w) {
    const kn_sim_launch *launch = run->launch;
    const kn_entry *e = run->entry;
    uint32_t clusterid[3], cluster_ctaid[3];
    for (int k = 0; k < 3; k++) {
        clusterid[k] = cta->id[k] / launch->cluster[k];
        cluster_ctaid[k] = cta->id[k] % launch->cluster[k];
    }
    lane_specials(w, e, launch->block);
    set_three(w, e, KN_S_NTID_X, launch->block);
    set_three(w, e, KN_S_CTAID_X, cta->id);
    set_three(w, e, KN_S_NCTAID_X, launch->grid);
    set_three(w, e, KN_S_CLUSTERID_X, clusterid);
    set_three(w, e, KN_S_NCLUSTERID_X, run->clusters);
    set_three(w, e, KN_S_CLUSTER_CTAID_X, cluster_ctaid);
    set_three(w, e, KN_S_CLUSTER_NCTAID_X, launch->cluster);
    uint32_t n_sms = launch->multiprocessors ? launch->multiprocessors : 1;
    set_all(w, e, KN_S_WARPID, w->id);
    set_all(w, e, KN_S_NWARPID, 64);
    set_all(w, e, KN_S_SMID, (cta->cluster->index * cta->cluster->n_ctas + cta->rank) % n_sms);
    set_all(w, e, KN_S_NSMID, n_sms);
    set_all(w, e, KN_S_GRIDID, 1);
    set_all(w, e, KN_S_CLUSTER_CTARANK, cta->rank);
    set_all(w, e, KN_S_CLUSTER_NCTARANK, cta->cluster->n_ctas);
    set_all(w, e, KN_S_DYNAMIC_SMEM, launch->smem_dynamic);
    set_all(w, e, KN_S_TOTAL_SMEM, run->smem_bytes);
    set_all(w, e, KN_S_AGGR_SMEM, run->smem_bytes);
}

static void begin_warp(const kn_run *run, kn_cta *cta, uint32_t id, uint32_t threads) {
    kn_warp *w = &cta->warps[id];
    const kn_entry *e = run->entry;
    uint32_t lanes = threads - id * KN_LANES;
    memset(w->def, 0, e->n_slots * sizeof *w->def);
    memset(w->hold, KN_HOLD_NONE, e->n_slots);
    memset(w->pred_def, 0, e->n_preds * sizeof *w->pred_def);
    if (w->local_def) memset(w->local_def, 0, (size_t)e->local_bytes * KN_LANES);
    w->cta = cta;
    w->id = id;
    w->exists = w->live = lanes >= KN_LANES ? KN_FULL_MASK : (1u << lanes) - 1;
    w->n_groups = 1;
    w->g = &w->group[0];
    *w->g = (kn_group){.mask = w->live};
    w->n_holds = 0;
    w->n_executed = 0;
    w->cp = NULL;
    w->units = NULL;
    w->hb = NULL;
    warp_specials(run, cta, w);
}

static void begin_cta(const kn_run *run, kn_cta *cta) {
    const uint32_t *size = run->launch->cluster, *block = run->launch->block;
    const kn_cluster *c = cta->cluster;
    uint32_t at[3] = {c->index % run->clusters[0], c->index / run->clusters[0] % run->clusters[1],
                      c->index / run->clusters[0] / run->clusters[1]};
    cta->id[0] = at[0] * size[0] + cta->rank % size[0];
    cta->id[1] = at[1] * size[1] + cta->rank / size[0] % size[1];
    cta->id[2] = at[2] * size[2] + cta->rank / size[0] / size[1];
    memset(cta->smem, FILL, cta->smem_bytes);
    memset(cta->shadow, 0, cta->smem_bytes);
    memset(cta->bar, 0, sizeof cta->bar);
    cta->live_warps = cta->n_warps;
    cta->live_threads = block[0] * block[1] * block[2];
    cta->maxnreg_pool = 0;
    cta->units = NULL;
    cta->hb = NULL;
    for (uint32_t v = 0; v < cta->n_warps; v++) begin_warp(run, cta, v, cta->live_threads);
}

kn_status kn_cluster_begin(kn_machine *m, kn_cluster *c, uint32_t index) {
    c->index = index;
    c->live_ctas = c->n_ctas;
    c->epoch = 1;
    c->next_order = 0;
    c->idle = 0;
    c->units = NULL;
    c->hb = NULL;
    memset(&c->cluster_bar, 0, sizeof c->cluster_bar);
    for (uint32_t k = 0; k < c->n_ctas; k++) begin_cta(c->run, &c->ctas[k]);
    m->cluster = c;
    return m->hb ? m->hb->cluster_begin(m, c) : KN_OK;
}

void kn_cluster_end(kn_machine *m, kn_cluster *c) {
    if (m->hb) m->hb->cluster_end(m, c);
    for (uint32_t k = 0; k < c->n_pending; k++) kn_free(c->pending[k]);
    c->n_pending = 0;
    kn_arena_free(&c->arena);
}
