/* The choice between candidates and its explanation: see gemm_choice.h. */
#include "ops/gemm_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_CAP = 4096, CLOCKS_PER_US = 1700 };

/* ---- names ------------------------------------------------------------------------------------------------------- */

void kn_gemm_candidate_name(const kn_gemm_candidate *c, char out[KN_GEMM_NAME_CAP]) {
    snprintf(out, KN_GEMM_NAME_CAP, "%s%s%s%s-%dx%d%s%s%s", c->resident ? "resident-" : "", c->paired ? "paired-" : "",
             c->lean ? "lean-" : "", c->coop ? "coop" : "pingpong", kn_gemm_sm90_tile_rows(c), c->bn,
             c->swap ? "-swap" : "",
             c->parts == 4   ? "-quarters"
             : c->parts == 2 ? "-halves"
                             : "",
             c->boxes ? "-boxes" : "");
}

static void add_sizes(const kn_gemm *g, kn_buf *out) {
    kn_buf_add_i64(out, g->m);
    kn_buf_add_char(out, 'x');
    kn_buf_add_i64(out, g->n);
    for (int s = 0; s < g->n_segments; s++) {
        kn_buf_add_char(out, s ? '+' : 'x');
        kn_buf_add_i64(out, g->segment[s].k);
    }
}

void kn_gemm_sm90_key(const kn_gemm *const *g, int n, kn_buf *out) {
    const kn_gemm_operand *a = &g[0]->segment[0].a, *b = &g[0]->segment[0].b;
    kn_buf_addf(out, "wgmma:%s:%s.%s:%s", kn_dtype_name(a->dtype), a->depth_contiguous ? "k" : "m",
                b->depth_contiguous ? "k" : "n", g[0]->epilogue);
    if (strcmp(g[0]->epilogue, "store") == 0)
        kn_buf_addf(out, ".%s%s", kn_dtype_name(g[0]->d.dtype), g[0]->accumulate ? ".add" : "");
    for (int i = 0; i < n; i++) {
        kn_buf_add_char(out, i ? ',' : ':');
        add_sizes(g[i], out);
    }
}

/* ---- the explanation --------------------------------------------------------------------------------------------- */

/* What can be used before what cannot, then by cost. */
static int by_cost(const void *a, const void *b) {
    const kn_gemm_ranked *x = a, *y = b;
    if (!x->refused != !y->refused) return x->refused ? 1 : -1;
    return x->cost.clocks < y->cost.clocks ? -1 : x->cost.clocks > y->cost.clocks;
}

static void add_clocks(kn_buf *out, const char *name, double v) {
    kn_buf_addf(out, ",\"%s\":", name);
    kn_buf_add_i64(out, (int64_t)(v + 0.5));
}

static void begin(kn_buf *out, const kn_gemm *const *g, int n, const char *path) {
    if (out->len) kn_buf_add_char(out, ',');
    kn_buf_addf(out, "{\"product\":\"%s\",\"path\":\"%s\",\"sizes\":\"", g[0]->symbol, path);
    for (int i = 0; i < n; i++) {
        if (i) kn_buf_add(out, ", ");
        add_sizes(g[i], out);
    }
    kn_buf_add_char(out, '"');
}

static void add_candidate(kn_buf *out, const kn_gemm_ranked *r, const kn_gemm *g, const kn_device_facts *facts) {
    char name[KN_GEMM_NAME_CAP];
    kn_gemm_candidate_name(&r->c, name);
    kn_buf_addf(out, "{\"name\":\"%s\",\"frame\":\"%s\",\"tile\":[%d,%d],\"swap\":%s,\"stages\":%d", name,
                r->c.coop ? "coop" : "pingpong", kn_gemm_sm90_tile_rows(&r->c), r->c.bn, r->c.swap ? "true" : "false",
                kn_gemm_sm90_stages(&r->c, g, facts));
    add_clocks(out, "tiles", r->cost.tiles);
    add_clocks(out, "waves", r->cost.waves);
    add_clocks(out, "tensor", r->cost.tensor);
    add_clocks(out, "l2", r->cost.l2);
    add_clocks(out, "hbm", r->cost.hbm);
    add_clocks(out, "epilogues", r->cost.epilogues);
    add_clocks(out, "clocks", r->cost.clocks);
    int64_t tenths = (int64_t)(r->cost.clocks * 10 / CLOCKS_PER_US + 0.5);
    kn_buf_addf(out, ",\"us\":%d.%d", (int)(tenths / 10), (int)(tenths % 10));
    if (r->refused) {
        kn_buf_add(out, ",\"refused\":");
        kn_buf_add_json(out, r->refused);
    }
    kn_buf_add_char(out, '}');
}

static void explain(kn_buf *out, const kn_gemm *const *g, int n, const kn_device_facts *facts, const char *key,
                    const kn_gemm_candidate *chosen, const char *by) {
    kn_gemm_ranked all[KN_GEMM_MAX_CANDIDATES];
    int count = kn_gemm_sm90_candidates(g, n, facts, all);
    char name[KN_GEMM_NAME_CAP];
    qsort(all, (size_t)count, sizeof *all, by_cost);
    kn_gemm_candidate_name(chosen, name);
    begin(out, g, n, "wgmma");
    kn_buf_addf(out, ",\"key\":\"%s\",\"chosen\":\"%s\",\"by\":\"%s\",\"candidates\":[", key, name, by);
    for (int i = 0; i < count; i++) {
        if (i) kn_buf_add_char(out, ',');
        add_candidate(out, &all[i], g[0], facts);
    }
    kn_buf_add(out, "]}");
}

void kn_gemm_explain_only(kn_program_builder *b, const kn_gemm *const *g, int n, const char *path, const char *tile,
                          const char *reason) {
    kn_buf *out = b->program->explain;
    if (!out || b->status != KN_OK) return;
    begin(out, g, n, path);
    kn_buf_addf(out, ",\"chosen\":\"%s\",\"by\":\"rule\",\"reason\":", tile);
    kn_buf_add_json(out, reason);
    kn_buf_add(out, ",\"candidates\":[]}");
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* The candidate that a tuning file names. */
static kn_status named(const kn_gemm *const *g, int n, const kn_device_facts *facts, const char *key,
                       const char *wanted, kn_gemm_candidate *out) {
    kn_gemm_ranked all[KN_GEMM_MAX_CANDIDATES];
    int count = kn_gemm_sm90_candidates(g, n, facts, all);
    char name[KN_GEMM_NAME_CAP], where[256];
    kn_tuning_where(facts->tuning, key, where, sizeof where);
    for (int i = 0; i < count; i++) {
        kn_gemm_candidate_name(&all[i].c, name);
        if (strcmp(name, wanted) != 0) continue;
        KN_REQUIRE(!all[i].refused, KN_E_FORMAT, "%s chooses %s for %s, which is not possible: %s", where, wanted, key,
                   all[i].refused);
        *out = all[i].c;
        return KN_OK;
    }
    return kn_fail(KN_E_FORMAT, "%s chooses \"%.40s\" for %s, which is none of its %d candidates", where, wanted, key,
                   count);
}

kn_gemm_candidate kn_gemm_sm90_pick(kn_program_builder *b, const kn_gemm *const *g, int n, bool generic,
                                    const kn_device_facts *facts) {
    kn_gemm_candidate c = generic ? kn_gemm_sm90_choose_generic(g, n, facts) : kn_gemm_sm90_choose(g, n, facts);
    if (b->status != KN_OK || (!facts->tuning && !b->program->explain)) return c;
    kn_buf key;
    kn_buf_init(&key, KEY_CAP);
    kn_gemm_sm90_key(g, n, &key);
    b->status = kn_buf_status(&key);
    const char *tuned = b->status == KN_OK && !generic ? kn_tuning_find(facts->tuning, key.data) : NULL;
    if (tuned) b->status = named(g, n, facts, key.data, tuned, &c);
    if (b->status == KN_OK && b->program->explain)
        explain(b->program->explain, g, n, facts, key.data, &c, tuned ? "tuning" : generic ? "generic" : "cost");
    kn_buf_free(&key);
    return c;
}
