/* A launch: its checks, and the loop over the clusters of the grid. Clusters that cannot communicate run on several
 * host threads, each to its end; a kernel that has instructions through which CTAs may communicate (KN_I_SERIAL) runs
 * on one thread that interleaves the clusters by seeded choice, so that one seed is one run. */
#include "base/alloc.h"
#include "base/thread.h"
#include "sim/cluster.h"
#include "sim/extents.h"
#include "sim/happens.h"
#include "sim/ptx_module.h"
#include "sim/schedule.h"

#include <stdio.h>

enum { MAX_THREADS_PER_CTA = 1024, SLICE = 4096 };

/* ---- checks of a launch ------------------------------------------------------------------------------------------ */

static kn_status find_entry(const kn_sim_module *module, const char *name, const kn_entry **out) {
    if (!name && module->n_entries == 1) {
        *out = &module->entry[0];
        return KN_OK;
    }
    for (uint32_t k = 0; name && k < module->n_entries; k++) {
        if (strcmp(module->entry[k].name, name) != 0) continue;
        *out = &module->entry[k];
        return KN_OK;
    }
    return kn_fail(KN_E_ARG, "the module has no kernel %s (it has %u, the first is %s)",
                   name ? name : "to choose by itself", module->n_entries, module->entry[0].name);
}

static bool differs(const uint32_t want[3], const uint32_t seen[3]) {
    return want[0] != 0 && (want[0] != seen[0] || want[1] != seen[1] || want[2] != seen[2]);
}

static kn_status check_shape(const kn_entry *e, const kn_sim_launch *l) {
    for (int k = 0; k < 3; k++) {
        const char axis = (char)('x' + k);
        KN_REQUIRE(l->grid[k] >= 1 && l->block[k] >= 1 && l->cluster[k] >= 1, KN_E_LAUNCH,
                   "%s: grid, block and cluster must be positive", e->name);
        KN_REQUIRE(l->grid[k] <= (k == 0 ? 2147483647u : 65535u), KN_E_LAUNCH, "%s: grid.%c is %u", e->name, axis,
                   l->grid[k]);
        KN_REQUIRE(l->block[k] <= 1024 && l->cluster[k] <= 16, KN_E_LAUNCH, "%s: block or cluster is too large",
                   e->name);
        KN_REQUIRE(l->grid[k] % l->cluster[k] == 0, KN_E_LAUNCH, "%s: grid.%c %u is no multiple of the cluster's %u",
                   e->name, axis, l->grid[k], l->cluster[k]);
    }
    uint32_t threads = l->block[0] * l->block[1] * l->block[2];
    KN_REQUIRE(threads <= MAX_THREADS_PER_CTA, KN_E_LAUNCH, "%s: a block of %u threads", e->name, threads);
    KN_REQUIRE(l->cluster[0] * l->cluster[1] * l->cluster[2] <= KN_MAX_CLUSTER, KN_E_LAUNCH,
               "%s: a cluster of more than %d CTAs", e->name, KN_MAX_CLUSTER);
    KN_REQUIRE((uint64_t)l->grid[0] * l->grid[1] * l->grid[2] <= 2147483647u, KN_E_LAUNCH, "%s: the grid is too large",
               e->name);
    KN_REQUIRE(!differs(e->reqntid, l->block), KN_E_LAUNCH, "%s: block %u,%u,%u, but .reqntid is %u,%u,%u", e->name,
               l->block[0], l->block[1], l->block[2], e->reqntid[0], e->reqntid[1], e->reqntid[2]);
    KN_REQUIRE(e->maxntid[0] == 0 || threads <= e->maxntid[0] * e->maxntid[1] * e->maxntid[2], KN_E_LAUNCH,
               "%s: a block of %u threads, over .maxntid", e->name, threads);
    KN_REQUIRE(!differs(e->cluster, l->cluster), KN_E_LAUNCH,
               "%s: cluster %u,%u,%u, but .reqnctapercluster is %u,%u,%u", e->name, l->cluster[0], l->cluster[1],
               l->cluster[2], e->cluster[0], e->cluster[1], e->cluster[2]);
    return KN_OK;
}

static kn_status check_memory(const kn_entry *e, const kn_sim_launch *l) {
    uint64_t smem = (uint64_t)e->smem_dynamic - KN_SMEM_RESERVED + l->smem_dynamic;
    uint64_t limit = l->smem_per_block ? l->smem_per_block : 232448;
    if (l->smem_dynamic == 0) smem = e->smem_static;
    KN_REQUIRE(smem <= limit, KN_E_LAUNCH, "%s: %llu bytes of shared memory, the device has %llu a block", e->name,
               (unsigned long long)smem, (unsigned long long)limit);
    KN_REQUIRE(l->params_len >= e->params_bytes, KN_E_LAUNCH, "%s: %zu bytes of parameters, the kernel declares %u",
               e->name, l->params_len, e->params_bytes);
    return KN_OK;
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

typedef struct pool {
    kn_run *run;
    const kn_hb_ops *hb;
    uint32_t next; /* atomic: next cluster to start */
    kn_mutex lock; /* guards what follows */
    uint32_t failed_index;
    kn_status failed;
    char sentence[KN_ERROR_CAP];
    kn_sim_stats stats;
} pool;

static uint64_t mix(uint64_t v) {
    v += UINT64_C(0x9E3779B97F4A7C15);
    v = (v ^ v >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    v = (v ^ v >> 27) * UINT64_C(0x94D049BB133111EB);
    v ^= v >> 31;
    return v ? v : 1;
}

/* The failure of the lowest cluster is the one to report, whichever thread met it first. */
static void report(pool *p, uint32_t index, kn_status st) {
    kn_lock(&p->lock);
    if (p->failed == KN_OK || index < p->failed_index) {
        p->failed = st;
        p->failed_index = index;
        snprintf(p->sentence, sizeof p->sentence, "%s", kn_error_message());
    }
    kn_unlock(&p->lock);
}

static bool has_failed(pool *p) {
    kn_lock(&p->lock);
    bool failed = p->failed != KN_OK;
    kn_unlock(&p->lock);
    return failed;
}

static kn_status new_machine(pool *p, kn_machine **out) {
    KN_TRY(KN_NEW(out, 1, "a worker of the simulator"));
    (*out)->run = p->run;
    (*out)->entry = p->run->entry;
    (*out)->hb = p->hb;
    return KN_OK;
}

static void add_stats(pool *p, const kn_machine *m) {
    kn_lock(&p->lock);
    p->stats.warp_instructions += m->stats.warp_instructions;
    p->stats.bytes_loaded += m->stats.bytes_loaded;
    p->stats.bytes_stored += m->stats.bytes_stored;
    p->stats.mma_flops += m->stats.mma_flops;
    kn_unlock(&p->lock);
}

static kn_status run_whole(kn_machine *m, kn_cluster *c, uint32_t index) {
    m->rng = mix(m->run->launch->seed ^ mix(index));
    m->clock = 0;
    kn_status st = kn_cluster_begin(m, c, index);
    for (bool done = false; st == KN_OK && !done;) st = kn_cluster_run(m, SLICE, &done);
    kn_cluster_end(m, c);
    return st;
}

/* Several workers: each takes the next cluster and runs it to its end. */
static kn_status parallel_worker(void *user, int64_t unused) {
    (void)unused;
    pool *p = user;
    kn_machine *m = NULL;
    kn_cluster *c = NULL;
    kn_status st = new_machine(p, &m);
    if (st == KN_OK) st = kn_cluster_create(p->run, &c);
    while (st == KN_OK && !has_failed(p)) {
        uint32_t index = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED);
        if (index >= p->run->n_clusters) break;
        kn_status one = run_whole(m, c, index);
        if (one != KN_OK) report(p, index, one);
    }
    if (m) add_stats(p, m);
    kn_cluster_free(c);
    kn_free(m);
    return st;
}

/* One worker that interleaves up to `limit` clusters. It starts with few and takes another one when one is done, or
 * when the present ones have run for long without an end: they may be waiting for it. */
typedef struct interleaver {
    pool *p;
    kn_machine *m;
    kn_cluster **resident;
    uint32_t n, limit, made;
} interleaver;

static kn_status admit(interleaver *s) {
    uint32_t index = s->p->next++;
    if (s->n == s->made) {
        KN_TRY(kn_cluster_create(s->p->run, &s->resident[s->n]));
        s->made++;
    }
    kn_status st = kn_cluster_begin(s->m, s->resident[s->n++], index);
    if (st != KN_OK) report(s->p, index, st);
    return st;
}

/* One slice of a resident cluster. It is idle when it has neither written nor changed anything others could wait for.
 */
static kn_status run_slice(interleaver *s, kn_cluster *c, uint64_t instructions, bool *done) {
    uint64_t epoch = c->epoch, stored = s->m->stats.bytes_stored;
    s->m->cluster = c;
    kn_status st = kn_cluster_run(s->m, instructions, done);
    c->idle = c->epoch == epoch && s->m->stats.bytes_stored == stored ? c->idle + 1 : 0;
    if (st != KN_OK) report(s->p, c->index, st);
    return st;
}

static bool all_idle(const interleaver *s) {
    for (uint32_t k = 0; k < s->n; k++)
        if (s->resident[k]->idle < 3) return false;
    return true;
}

static kn_status interleave(interleaver *s, uint32_t window) {
    kn_run *run = s->p->run;
    kn_habits habits = kn_habits_of(run->launch->seed);
    while (s->n > 0 || s->p->next < run->n_clusters) {
        while (s->p->next < run->n_clusters && s->n < s->limit && (s->n < window || all_idle(s))) KN_TRY(admit(s));
        uint32_t at = kn_choose(s->m, s->n);
        kn_cluster *c = s->resident[at];
        bool done = false;
        KN_TRY(run_slice(s, c, 1 + kn_choose(s->m, 4 * habits.quantum), &done));
        if (!done) continue;
        kn_cluster_end(s->m, c);
        s->resident[at] = s->resident[--s->n];
        s->resident[s->n] = c; /* its memory is used again */
    }
    return KN_OK;
}

static kn_status serial_worker(pool *p) {
    interleaver s = {.p = p};
    const kn_sim_launch *l = p->run->launch;
    uint32_t sms = l->multiprocessors ? l->multiprocessors : 1, ctas = l->cluster[0] * l->cluster[1] * l->cluster[2];
    uint32_t per_sm = p->run->smem_bytes > 115 * 1024 || p->run->n_warps > KN_MAX_WARPS ? 1 : 2;
    s.limit = sms * per_sm / ctas;
    if (s.limit < 1) s.limit = 1;
    if (s.limit > p->run->n_clusters) s.limit = p->run->n_clusters;
    kn_status st = KN_OK;
    KN_TRY_OUT(st, new_machine(p, &s.m));
    KN_TRY_OUT(st, KN_NEW(&s.resident, s.limit, "resident clusters"));
    s.m->rng = mix(l->seed);
    st = interleave(&s, 1 + kn_choose(s.m, 8));
out:
    for (uint32_t k = 0; k < s.made; k++) {
        if (k < s.n) kn_cluster_end(s.m, s.resident[k]);
        kn_cluster_free(s.resident[k]);
    }
    kn_free(s.resident);
    if (s.m) add_stats(p, s.m);
    kn_free(s.m);
    return st;
}

/* ---- the launch -------------------------------------------------------------------------------------------------- */

static kn_status prepare(kn_run *run, const kn_sim_module *module, const char *entry, const kn_sim_launch *launch) {
    KN_TRY(find_entry(module, entry, &run->entry));
    KN_TRY(check_shape(run->entry, launch));
    KN_TRY(check_memory(run->entry, launch));
    run->module = module;
    run->launch = launch;
    run->n_clusters = 1;
    for (int k = 0; k < 3; k++) {
        run->clusters[k] = launch->grid[k] / launch->cluster[k];
        run->n_clusters *= run->clusters[k];
    }
    run->n_warps = (launch->block[0] * launch->block[1] * launch->block[2] + KN_LANES - 1) / KN_LANES;
    run->smem_bytes = launch->smem_dynamic ? run->entry->smem_dynamic + launch->smem_dynamic
                                           : KN_SMEM_RESERVED + run->entry->smem_static;
    run->params = launch->params;
    run->serial = run->entry->serial;
    return kn_global_create(launch, module, launch->memory, &run->global);
}

kn_status kn_sim_run(const kn_sim_module *m, const char *entry, const kn_sim_launch *launch, kn_sim_stats *stats) {
    kn_run run = {0};
    pool *p = NULL;
    kn_status st = KN_OK;
    KN_TRY_OUT(st, KN_NEW(&p, 1, "a launch"));
    p->run = &run;
    p->hb = &kn_happens;
    kn_mutex_init(&p->lock);
    KN_TRY_OUT(st, prepare(&run, m, entry, launch));
    if (p->hb) KN_TRY_OUT(st, p->hb->run_begin(&run, &run.hb));
    int threads = launch->threads < 1 ? 1 : launch->threads;
    if ((uint32_t)threads > run.n_clusters) threads = (int)run.n_clusters;
    st = run.serial ? serial_worker(p) : kn_parallel_for(threads, threads, parallel_worker, p);
    if (p->hb) p->hb->run_end(&run, run.hb);
    if (p->failed != KN_OK) st = kn_fail(p->failed, "%s", p->sentence);
    if (stats) *stats = p->stats;
out:
    kn_global_free(run.global);
    if (p) kn_mutex_destroy(&p->lock);
    kn_free(p);
    return st;
}
