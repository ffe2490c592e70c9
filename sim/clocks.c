/* clocks: see the header. */
#include "sim/clocks.h"

#include "base/alloc.h"

#include <string.h>

void kn_tick_join(kn_tick *a, kn_tick b) {
    if (b.all > a->all) a->all = b.all;
    if (b.some > a->some) {
        bool keep = a->some > a->all;
        a->some = b.some;
        a->mask = b.mask | (keep ? a->mask : 0);
    } else if (b.some > a->all) {
        a->mask |= b.mask;
    }
    if (a->mask == 0xffffffffu && a->some > a->all) a->all = a->some;
    if (a->some <= a->all) a->some = a->mask = 0;
}

void kn_vc_free(kn_vc *v) {
    for (uint32_t k = 0; k < v->n_parts; k++) kn_free(v->part[k].tick[0]);
    kn_free(v->part);
    *v = (kn_vc){0};
}

static kn_vc_part *find(const kn_vc *v, uint32_t cluster) {
    for (uint32_t k = 0; k < v->n_parts; k++)
        if (v->part[k].cluster == cluster) return &v->part[k];
    return NULL;
}

/* A part with room for `n` agents. */
static kn_status part_with(kn_vc *v, uint32_t cluster, uint32_t n, kn_vc_part **out) {
    kn_vc_part *p = find(v, cluster);
    if (!p) {
        kn_vc_part *more = kn_realloc(v->part, (v->n_parts + 1) * sizeof *more);
        KN_REQUIRE(more != NULL, KN_E_NOMEM, "out of memory for the simulator's vector clocks");
        v->part = more;
        p = &more[v->n_parts++];
        *p = (kn_vc_part){.cluster = cluster};
    }
    *out = p;
    if (n <= p->n) return KN_OK;
    uint32_t room = (n + 15) & ~15u;
    kn_tick *t = NULL;
    KN_TRY(KN_NEW(&t, (size_t)room * KN_LAYERS, "the simulator's vector clocks"));
    for (int l = 0; l < KN_LAYERS; l++) {
        if (p->n) memcpy(t + (size_t)room * (size_t)l, p->tick[l], p->n * sizeof *t);
    }
    kn_free(p->tick[0]);
    for (int l = 0; l < KN_LAYERS; l++) p->tick[l] = t + (size_t)room * (size_t)l;
    p->n = room;
    return KN_OK;
}

kn_tick kn_vc_get(const kn_vc *v, kn_layer layer, uint32_t cluster, uint32_t agent) {
    const kn_vc_part *p = find(v, cluster);
    return p && agent < p->n ? p->tick[layer][agent] : (kn_tick){0};
}

kn_status kn_vc_raise(kn_vc *v, kn_layer layer, uint32_t cluster, uint32_t agent, kn_tick t) {
    kn_vc_part *p;
    KN_TRY(part_with(v, cluster, agent + 1, &p));
    kn_tick_join(&p->tick[layer][agent], t);
    return KN_OK;
}

kn_status kn_vc_join(kn_vc *v, const kn_vc *other) {
    for (uint32_t k = 0; k < other->n_parts; k++) {
        const kn_vc_part *o = &other->part[k];
        kn_vc_part *p;
        KN_TRY(part_with(v, o->cluster, o->n, &p));
        for (int l = 0; l < KN_LAYERS; l++)
            for (uint32_t a = 0; a < o->n; a++) kn_tick_join(&p->tick[l][a], o->tick[l][a]);
    }
    return KN_OK;
}

kn_status kn_vc_copy(kn_vc *v, const kn_vc *other) {
    for (uint32_t k = 0; k < v->n_parts; k++) /* forget, keep the memory */
        if (v->part[k].n) memset(v->part[k].tick[0], 0, (size_t)v->part[k].n * KN_LAYERS * sizeof(kn_tick));
    for (uint32_t k = 0; k < other->n_parts; k++) {
        const kn_vc_part *o = &other->part[k];
        kn_vc_part *p;
        KN_TRY(part_with(v, o->cluster, o->n, &p));
        for (int l = 0; l < KN_LAYERS; l++)
            if (o->n) memcpy(p->tick[l], o->tick[l], o->n * sizeof(kn_tick));
    }
    return KN_OK;
}

void kn_vc_fence(kn_vc *v, kn_layer layer) {
    for (uint32_t k = 0; k < v->n_parts; k++)
        for (uint32_t a = 0; a < v->part[k].n; a++)
            kn_tick_join(&v->part[k].tick[layer][a], v->part[k].tick[KN_L_ORDER][a]);
}
