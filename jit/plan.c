/* The table of plans and the shape policy: see plan.h. plan_make.c makes one plan. */
#include "jit/plan.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/thread.h"
#include "jit/plan_make.h"

#include <string.h>

enum { SHARDS = 16, BUCKETS = 128 };
enum { AUTO_COUNTS = 16 }; /* token counts of one set of feature axes that the policy `auto` builds exactly */
enum { MAX_FEATURES = 4096 };

/* Token counts seen for one set of feature axes, as digests. */
typedef struct features {
    struct features *next;
    uint64_t id;
    int count;
    uint64_t seen[AUTO_COUNTS];
} features;

typedef struct shard {
    kn_mutex lock; /* held for a look-up or an insertion, never while anything is made */
    kn_plan *bucket[BUCKETS];
} shard;

typedef struct kn_plan_table {
    shard shard[SHARDS];
    atomic_uint_fast32_t count;
    atomic_uint_fast64_t clock;
    kn_mutex features_lock;
    features *features;
    int n_features;
} kn_plan_table;

kn_status kn_plan_table_new(kn_plan_table **out) {
    KN_TRY(KN_NEW(out, 1, "a table of plans"));
    for (int i = 0; i < SHARDS; i++) kn_mutex_init(&(*out)->shard[i].lock);
    kn_mutex_init(&(*out)->features_lock);
    return KN_OK;
}

void kn_plan_table_free(kn_engine *e) {
    kn_plan_table *t = e->plans;
    if (!t) return;
    for (int i = 0; i < SHARDS; i++) {
        for (int j = 0; j < BUCKETS; j++) {
            while (t->shard[i].bucket[j]) {
                kn_plan *plan = t->shard[i].bucket[j];
                t->shard[i].bucket[j] = plan->next;
                kn_plan_free(e, plan);
            }
        }
        kn_mutex_destroy(&t->shard[i].lock);
    }
    while (t->features) {
        features *f = t->features;
        t->features = f->next;
        kn_free(f);
    }
    kn_mutex_destroy(&t->features_lock);
    kn_free(t);
    e->plans = NULL;
}

/* ---- look-up ----------------------------------------------------------------------------------------------------- */

static uint64_t hash_problem(const kn_problem *p) {
    return kn_hash(p, sizeof *p).lo;
}

static shard *shard_of(kn_plan_table *t, uint64_t hash) {
    return &t->shard[hash % SHARDS];
}

static kn_plan **bucket_of(shard *s, uint64_t hash) {
    return &s->bucket[hash / SHARDS % BUCKETS];
}

/* A reference, or NULL. The shard's lock is held. */
static kn_plan *look_up(kn_plan_table *t, shard *s, uint64_t hash, const kn_problem *p) {
    kn_plan *plan = *bucket_of(s, hash);
    while (plan && (plan->hash != hash || memcmp(&plan->problem, p, sizeof *p) != 0)) plan = plan->next;
    if (!plan) return NULL;
    atomic_fetch_add_explicit(&plan->refs, 1, memory_order_relaxed);
    uint64_t now = atomic_fetch_add_explicit(&t->clock, 1, memory_order_relaxed);
    atomic_store_explicit(&plan->used, now, memory_order_relaxed);
    return plan;
}

void kn_plan_release(kn_engine *e, kn_plan *plan) {
    if (plan && atomic_fetch_sub_explicit(&plan->refs, 1, memory_order_acq_rel) == 1) kn_plan_free(e, plan);
}

void kn_plan_pin(kn_engine *e, kn_plan *plan) {
    if (atomic_exchange(&plan->pinned, true)) return;
    atomic_store(&e->captured, true);
    for (uint32_t i = 0; i < plan->n_kernels; i++) kn_kernel_pin(e, plan->kernels[i]);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* Take the plan that was used longest ago out of the table; false if all are pinned. */
static bool evict_one(kn_engine *e) {
    kn_plan_table *t = e->plans;
    uint64_t oldest = UINT64_MAX, hash = 0;
    for (int i = 0; i < SHARDS; i++) {
        kn_lock(&t->shard[i].lock);
        for (int j = 0; j < BUCKETS; j++) {
            for (kn_plan *p = t->shard[i].bucket[j]; p; p = p->next) {
                uint64_t used = atomic_load_explicit(&p->used, memory_order_relaxed);
                if (used >= oldest || atomic_load(&p->pinned)) continue;
                oldest = used;
                hash = p->hash;
            }
        }
        kn_unlock(&t->shard[i].lock);
    }
    if (oldest == UINT64_MAX) return false;
    shard *s = shard_of(t, hash);
    kn_lock(&s->lock);
    kn_plan **link = bucket_of(s, hash);
    /* It may have been used or evicted since: then nothing is taken, and the caller's loop looks again. */
    while (*link && atomic_load_explicit(&(*link)->used, memory_order_relaxed) != oldest) link = &(*link)->next;
    kn_plan *victim = *link;
    if (victim) *link = victim->next;
    kn_unlock(&s->lock);
    if (!victim) return true;
    atomic_fetch_sub(&t->count, 1);
    kn_plan_release(e, victim);
    return true;
}

static void keep_bounds(kn_engine *e) {
    while (atomic_load(&e->plans->count) > e->max_plans && evict_one(e)) continue;
    if (kn_kernel_count(e) <= e->max_modules) return;
    /* Unloading waits for the device: several at a time, so that it happens rarely. */
    uint32_t keep = e->max_modules - e->max_modules / 8;
    for (kn_kernel_collect(e, keep); kn_kernel_count(e) > keep && evict_one(e);) kn_kernel_collect(e, keep);
}

/* Put a new plan into the table, or give it up for one that another thread put there meanwhile. */
static kn_plan *insert(kn_engine *e, kn_plan *plan) {
    kn_plan_table *t = e->plans;
    shard *s = shard_of(t, plan->hash);
    kn_lock(&s->lock);
    kn_plan *there = look_up(t, s, plan->hash, &plan->problem);
    if (!there) {
        atomic_store(&plan->refs, 2); /* the table's and the caller's */
        atomic_store(&plan->used, atomic_fetch_add(&t->clock, 1));
        plan->next = *bucket_of(s, plan->hash);
        *bucket_of(s, plan->hash) = plan;
        atomic_fetch_add(&t->count, 1);
    }
    kn_unlock(&s->lock);
    if (there) kn_plan_free(e, plan);
    return there ? there : plan;
}

/* ---- the shape policy -------------------------------------------------------------------------------------------- */

uint32_t kn_plan_variants(const kn_engine *e, const kn_op *op) {
    if (op->token_axes == 0 || e->shapes == KN_SHAPES_EXACT) return 1;
    return e->shapes == KN_SHAPES_GENERIC ? 2 : 3;
}

/* Is `p` among the first AUTO_COUNTS token counts of its feature axes? Remembers it. */
static kn_status counts_as_few(kn_engine *e, const kn_op *op, const kn_problem *p, bool *few) {
    kn_plan_table *t = e->plans;
    kn_problem feature = *p, tokens;
    memset(&tokens, 0, sizeof tokens);
    for (int i = 0; i < KN_MAX_AXES; i++) {
        if (!(op->token_axes >> i & 1)) continue;
        tokens.axis[i] = p->axis[i];
        feature.axis[i] = 0;
    }
    memset(feature.align_log2, 0, sizeof feature.align_log2);
    uint64_t id = hash_problem(&feature), seen = hash_problem(&tokens);
    kn_status st = KN_OK;
    kn_lock(&t->features_lock);
    features *f = t->features;
    while (f && f->id != id) f = f->next;
    if (!f && t->n_features < MAX_FEATURES) {
        st = KN_NEW(&f, 1, "the token counts of a problem");
        if (st == KN_OK) {
            f->id = id;
            f->next = t->features;
            t->features = f;
            t->n_features++;
        }
    }
    int i = 0;
    while (f && i < f->count && f->seen[i] != seen) i++;
    *few = f && i < AUTO_COUNTS;
    if (*few && i == f->count) f->seen[f->count++] = seen;
    kn_unlock(&t->features_lock);
    return st;
}

/* Make the variant `generic` of `p` into a plan, going as far as `want`; *out NULL with KN_OK if that is not enough. */
static kn_status make_variant(kn_engine *e, const kn_op *op, const kn_problem *p, bool generic, kn_want want,
                              kn_plan **out) {
    kn_problem variant = *p;
    variant.generic = generic;
    KN_TRY(kn_plan_make(e, op, &variant, want, out));
    if (*out) (*out)->problem.generic = 0;
    return KN_OK;
}

static kn_status make(kn_engine *e, const kn_op *op, const kn_problem *p, bool capturing, kn_plan **out) {
    uint32_t variants = kn_plan_variants(e, op);
    *out = NULL;
    if (variants == 3 || capturing) {
        kn_want want = capturing ? KN_WANT_LOADED : KN_WANT_CACHED;
        if (variants & 1) KN_TRY(make_variant(e, op, p, false, want, out));
        if (!*out && variants & 2) KN_TRY(make_variant(e, op, p, true, want, out));
        if (*out) return KN_OK;
        KN_REQUIRE(!capturing, KN_E_CAPTURE,
                   "kernels for these shapes are not loaded yet, and the stream is being captured; make the same call "
                   "with KILN_PREPARE_ONLY before the capture");
    }
    bool few = false;
    if (variants == 3) KN_TRY(counts_as_few(e, op, p, &few));
    return make_variant(e, op, p, variants == 2 || (variants == 3 && !few), KN_WANT_BUILT, out);
}

kn_plan *kn_plan_find(kn_engine *e, const kn_problem *p) {
    kn_plan_table *t = e->plans;
    uint64_t hash = hash_problem(p);
    shard *s = shard_of(t, hash);
    kn_lock(&s->lock);
    kn_plan *plan = look_up(t, s, hash, p);
    kn_unlock(&s->lock);
    return plan;
}

kn_status kn_plan_add(kn_engine *e, const kn_op *op, const kn_problem *p, bool capturing, kn_plan **out, bool *fresh) {
    kn_plan *mine = NULL;
    *out = NULL;
    *fresh = false;
    KN_TRY(make(e, op, p, capturing, &mine));
    kn_count(&e->count.plans, 1);
    mine->hash = hash_problem(p);
    *out = insert(e, mine);
    *fresh = *out == mine;
    if (!capturing) keep_bounds(e);
    return KN_OK;
}
