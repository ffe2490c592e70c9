/* ops/gemm_candidates: the ways in which the TMA + wgmma kernel may make a product, which of them it refuses, and the
 * cheapest one, with the depth in how many parts: see gemm_cost.h. */
#include "ops/gemm_cost.h"

#include <string.h>

/* Beside these: tiles whose bn divides the tokens with the least rest. nvJitLink assembles relocatable code, in which
 * setmaxnreg is ignored: a thread of three warpgroups has 168 registers, of a lean frame's two 255. */
static const struct {
    bool coop;
    int mb, bn;
    bool lean;
} shapes[] = {{false, 2, 128, false}, {false, 1, 256, false}, {false, 2, 64, false}, {false, 1, 128, false},
              {false, 1, 64, false},  {true, 1, 256, false},  {true, 1, 192, false}, {true, 1, 128, false},
              {true, 1, 64, false},   {false, 1, 32, false},  {false, 2, 32, false}, {false, 2, 192, true},
              {false, 2, 128, true},  {true, 2, 128, true},   {true, 2, 192, true}};
enum {
    MOST_OF_A_TILE = KN_GEMM_MOST_COUNTED,
    MAX_SLICES = 64,
    DEEP = 16,
    PRODUCER_ACCUMULATORS = 128,
    LEAN_MORE = 64,
    SECOND_BLOCK = 32
};
enum { FEW_TOKENS = 256, MANY_TOKENS = 4096 }; /* of generic kernels */
/* Products that are hardly faster in parts are left whole. */
static const double WORTH_IT = 0.97;

/* Accumulators of a thread beside which nothing is spilt, and with which a kernel takes less than 300 ms to assemble:
 * tests/ops/test_gemm_table.c assembles all that this allows. */
static int most_accumulators(const kn_gemm_candidate *c, const kn_gemm *g, int n) {
    int most = g->most_accumulators[c->swap];
    /* Which of two blocks of rows a chunk is of, an epilogue finds out while all accumulators are alive. */
    if (most) return most + (c->lean ? LEAN_MORE : 0) - (c->mb > 1 && !c->boxes ? SECOND_BLOCK : 0);
    /* "store" is unrolled over all accumulators. */
    bool added = g->accumulate, wide = added || kn_dtype_size(g->d.dtype) > 2;
    if (c->lean && wide && n > 1) return 0;
    if (c->lean) return PRODUCER_ACCUMULATORS + LEAN_MORE;
    bool rows_of_256 = c->mb == 1 && !c->swap && !c->boxes;
    bool columns_added = c->mb == 2 && (c->swap || c->paired) && added;
    return rows_of_256 || columns_added ? PRODUCER_ACCUMULATORS - 8 : PRODUCER_ACCUMULATORS;
}

static bool may_rest(const kn_gemm_candidate *c, const kn_gemm *const *g, int n) {
    if (c->coop || c->lean || c->swap || c->parts != 1 || !c->boxes) return false;
    for (int i = 0; i < n; i++)
        if (g[i]->n_segments != 1) return false;
    return true;
}

/* Weight gradients. Tiles 2 i and 2 i + 1 must lie below each other, in all products. */
static bool may_pair(const kn_gemm_candidate *c, const kn_gemm *const *g, int n) {
    if (c->swap || c->lean || c->resident || c->parts != 1 || c->bn % 128 || kn_gemm_sm90_tile_rows(c) * c->bn < 16384)
        return false;
    if (g[0]->segment[0].a.depth_contiguous || g[0]->segment[0].b.depth_contiguous) return false;
    for (int i = 0; i < n; i++)
        if (kn_ceil_div(g[i]->m, kn_gemm_sm90_tile_rows(c)) % 2) return false;
    return true;
}

/* Why the kernel cannot make the products this way; NULL: it can. */
static const char *refusal(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, const kn_device_facts *facts) {
    const kn_gemm_operand *columns = c->swap ? &g[0]->segment[0].a : &g[0]->segment[0].b;
    if (!columns->depth_contiguous && c->bn % 64 != 0)
        return "an operand that is not contiguous along k is read 64 columns at a time";
    if (c->swap && n > 1) return "several products in a launch are not swapped";
    if (c->parts > 1 && (!c->coop || c->lean)) return "CTAs that share a depth add up halves of a shared tile";
    int64_t sums = (int64_t)4 * kn_gemm_sm90_tile_rows(c) * c->bn / 2;
    if (c->parts > 1 && sums > kn_gemm_sm90_stages(c, g[0], facts) * kn_gemm_sm90_stage_bytes(c))
        return "the ring is too small for the sums of others";
    if (c->resident && (!may_rest(c, g, n) || !kn_gemm_sm90_walk(c, g, n, kn_gemm_reference_device.multiprocessors)))
        return "B rests where a short depth is known, for two tiles at least";
    if (c->paired && !may_pair(c, g, n))
        return "pairs are for weight gradients of an even number of rows of large tiles";
    if (c->boxes && !kn_gemm_sm90_takes_boxes(c, g[0])) return "boxes hold rows of 16-bit numbers";
    if (c->mb * c->bn / 2 > most_accumulators(c, g[0], n))
        return "the epilogue needs the registers of so many accumulators";
    if (kn_gemm_sm90_stages(c, g[0], facts) < 3) return "shared memory for less than three k blocks";
    return NULL;
}

static bool same(const kn_gemm_candidate *a, const kn_gemm_candidate *b) {
    return a->swap == b->swap && a->coop == b->coop && a->mb == b->mb && a->bn == b->bn && a->lean == b->lean &&
           a->parts == b->parts && a->boxes == b->boxes && a->resident == b->resident && a->paired == b->paired;
}

static int add(kn_gemm_candidate *out, int n, kn_gemm_candidate c) {
    for (int i = 0; i < n; i++)
        if (same(&out[i], &c)) return n;
    out[n] = c;
    return n + 1;
}

/* Tiles that may suit the product, those of the table first. */
static int list_candidates(const kn_gemm *g, int parts, kn_gemm_candidate *out) {
    int n = 0;
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof shapes[0]; i++)
        n = add(out, n,
                (kn_gemm_candidate){i % 2 != 0, shapes[i / 2].coop, shapes[i / 2].mb, shapes[i / 2].bn,
                                    shapes[i / 2].lean, parts, false, false, false});
    for (int64_t slices = 1, before = 0; slices <= MAX_SLICES; slices++) {
        int64_t rows = kn_ceil_div(kn_ceil_div(g->m, slices), 8) * 8;
        if (rows > 256 || rows < 16 || rows == before) continue;
        before = rows;
        int bn = (int)rows;
        n = add(out, n, (kn_gemm_candidate){true, false, 1, bn, false, parts, false, false, false});
        n = add(out, n, (kn_gemm_candidate){true, true, 1, bn, false, parts, false, false, false});
        if (bn <= 192) n = add(out, n, (kn_gemm_candidate){true, false, 2, bn, bn > 128, parts, false, false, false});
    }
    for (int i = 0, whole = n; i < whole; i++) {
        kn_gemm_candidate c = out[i];
        c.boxes = true;
        if (!kn_gemm_sm90_takes_boxes(&c, g)) continue;
        n = add(out, n, c);
        c.resident = true;
        if (may_rest(&c, &g, 1)) n = add(out, n, c);
    }
    for (int i = 0, alone = n; i < alone; i++) {
        kn_gemm_candidate c = out[i];
        if (!may_pair(&c, &g, 1)) continue;
        c.paired = true;
        n = add(out, n, c);
    }
    return n;
}

int kn_gemm_sm90_candidates(const kn_gemm *const *g, int n, const kn_device_facts *facts,
                            kn_gemm_ranked out[KN_GEMM_MAX_CANDIDATES]) {
    kn_gemm_candidate all[KN_GEMM_MAX_CANDIDATES];
    double sms = facts->multiprocessors ? facts->multiprocessors : 1;
    int count = list_candidates(g[0], n == 1 ? kn_gemm_depth_parts(g[0]) : 1, all);
    for (int i = 0; i < count; i++)
        out[i] = (kn_gemm_ranked){all[i], kn_gemm_sm90_cost(&all[i], g, n, sms), refusal(&all[i], g, n, facts)};
    return count;
}

/* The cheapest candidate with that number of parts; its clocks, or -1 without any. Generic kernels may meet less than
 * the two tiles of a strip or a pair. */
static double cheapest(const kn_gemm *const *g, int n, const kn_device_facts *facts, int parts, bool generic,
                       kn_gemm_candidate *best) {
    kn_gemm_candidate all[KN_GEMM_MAX_CANDIDATES];
    double sms = facts->multiprocessors ? facts->multiprocessors : 1, least = -1;
    int count = list_candidates(g[0], parts, all);
    for (int i = 0; i < count; i++) {
        bool exact = all[i].resident || (all[i].paired && g[0]->m_is_tokens);
        if (refusal(&all[i], g, n, facts) || (generic && exact)) continue;
        double cost = kn_gemm_sm90_cost(&all[i], g, n, sms).clocks;
        if (least < 0 || cost < least) {
            least = cost;
            *best = all[i];
        }
    }
    return least;
}

/* The cheapest one for products of these sizes, with the depth in so many parts. */
static kn_gemm_candidate choose(const kn_gemm *const *g, int n, const kn_device_facts *facts, int parts, bool generic) {
    kn_gemm_candidate best = {parts > 1, parts > 1, parts > 1 ? 1 : 2, parts > 1 ? 64 : 128, false, parts, false,
                              false,     false};
    (void)cheapest(g, n, facts, parts, generic, &best);
    return best;
}

kn_gemm_candidate kn_gemm_sm90_choose(const kn_gemm *const *g, int n, const kn_device_facts *facts) {
    return choose(g, n, facts, n == 1 ? kn_gemm_depth_parts(g[0]) : 1, false);
}

static bool may_have_parts(const kn_gemm *g) {
    const kn_gemm_operand *a = &g->segment[0].a, *b = &g->segment[0].b;
    return g->group == KN_GROUP_NONE && g->gather_dtype == KN_DTYPE_NONE && !g->k_is_tokens && !g->promote &&
           g->a_split == 1 && g->b_split == 1 && a->dtype != KN_F32 && b->dtype == a->dtype &&
           kn_gemm_k_blocks(g) >= DEEP;
}

bool kn_gemm_has_whole_blocks(const kn_gemm *g) {
    for (int s = 0; s < g->n_segments; s++)
        if (g->segment[s].k % KN_GEMM_DEPTH_BLOCK) return false;
    return true;
}

/* Quarters are for tokens that one tile holds, where halves would need two tiles to keep all multiprocessors
 * at work: then each weight is read by one of them alone. The portable kernel puts sums aside at equal distances. */
static bool may_have_quarters(const kn_gemm *g) {
    return g->m > MOST_OF_A_TILE / 2 && g->m <= MOST_OF_A_TILE && kn_gemm_has_whole_blocks(g);
}

int kn_gemm_depth_parts(const kn_gemm *g) {
    kn_gemm_candidate best;
    if (g->m == 0 || g->n == 0 || !may_have_parts(g)) return 1;
    double least = cheapest(&g, 1, &kn_gemm_reference_device, 1, false, &best);
    int parts = 1;
    for (int more = 2; more <= (may_have_quarters(g) ? 4 : 2); more *= 2) {
        double clocks = cheapest(&g, 1, &kn_gemm_reference_device, more, false, &best);
        if (clocks < 0 || (least >= 0 && clocks >= WORTH_IT * least)) continue;
        least = clocks;
        parts = more;
    }
    return parts;
}

int64_t kn_gemm_counter_words(const kn_gemm *g) {
    if (kn_gemm_depth_parts(g) != 4) return 0;
    /* Tiles that share a depth have 128 rows of one operand, and 16 at least of the other. */
    int64_t tiles = kn_ceil_div(g->m, 128) * kn_ceil_div(g->n, 16);
    int64_t swapped = kn_ceil_div(g->m, 16) * kn_ceil_div(g->n, 128);
    return 2 * (tiles > swapped ? tiles : swapped);
}

/* Numbers of tokens that generic kernels are planned for. */
enum { COUNTS = 9 };
static const int64_t counts[COUNTS] = {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

bool kn_gemm_is_for_few(const kn_gemm *g) {
    if (may_have_parts(g)) return kn_gemm_depth_parts(g) > 1;
    return (g->group == KN_GROUP_M && g->n_groups > 0 ? kn_ceil_div(g->m, g->n_groups) : g->m) <= FEW_TOKENS;
}

static const int64_t MATTERS = 512; /* tokens from which on a loss counts */
static const double MORE = 3;       /* times as much */

/* The tile of a generic kernel: of those that are the best for one of these numbers of tokens, the one that at worst
 * loses least for the others that share the kernel. */
static kn_gemm_candidate choose_for_all_tokens(const kn_gemm *g, const kn_device_facts *facts) {
    kn_gemm sized[COUNTS];
    kn_gemm_candidate best[COUNTS], chosen;
    double clocks[COUNTS], least = -1;
    int n = 0, parts = kn_gemm_depth_parts(g);
    bool few = kn_gemm_is_for_few(g);
    for (int i = 0; i < COUNTS; i++) {
        const kn_gemm *one = &sized[n];
        sized[n] = *g;
        sized[n].m = counts[i];
        if (kn_gemm_is_for_few(one) != few) continue;
        best[n] = choose(&one, 1, facts, parts, true);
        clocks[n] = kn_gemm_sm90_cost(&best[n], &one, 1, facts->multiprocessors).clocks;
        n++;
    }
    if (n == 0) { /* parts that pay between these numbers alone */
        const kn_gemm *one = &sized[0];
        sized[0].m = FEW_TOKENS;
        return choose(&one, 1, facts, parts, true);
    }
    for (int c = 0; c < n; c++) {
        double worst = 0;
        for (int i = 0; i < n; i++) {
            const kn_gemm *one = &sized[i];
            double loss = kn_gemm_sm90_cost(&best[c], &one, 1, facts->multiprocessors).clocks / clocks[i] - 1;
            if (one->m >= MATTERS) loss *= MORE;
            if (loss > worst) worst = loss;
        }
        if (least >= 0 && worst >= least) continue;
        least = worst;
        chosen = best[c];
    }
    return chosen;
}

kn_gemm_candidate kn_gemm_sm90_choose_generic(const kn_gemm *const *g, int n, const kn_device_facts *facts) {
    kn_gemm sized[KN_GEMM_SM90_MAX_PRODUCTS];
    const kn_gemm *list[KN_GEMM_SM90_MAX_PRODUCTS];
    /* One kernel for all machines of the architecture that have the memory for it. */
    kn_device_facts machine = *facts;
    machine.multiprocessors = kn_gemm_reference_device.multiprocessors;
    if (n == 1 && g[0]->m_is_tokens) return choose_for_all_tokens(g[0], &machine);
    for (int i = 0; i < n; i++) {
        sized[i] = *g[i];
        list[i] = &sized[i];
        /* Depth hardly matters to a tile. */
        for (int s = 0; g[i]->k_is_tokens && s < g[i]->n_segments; s++) sized[i].segment[s].k = MANY_TOKENS;
    }
    return choose(list, n, &machine, n == 1 ? kn_gemm_depth_parts(g[0]) : 1, true);
}
