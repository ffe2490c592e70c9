/* Global memory of a launch. Each extent becomes a region: a range of addresses with, for strided views, the sizes and
 * strides that tell its elements from its gaps. Poisoned extents have a shadow, one byte for each byte, kept by page in
 * the program's kn_sim_memory. */
#include "sim/extents.h"
#include "base/alloc.h"
#include "sim/ptx_module.h"

#include <stdio.h>

enum { PAGE = 4096 };

typedef struct page {
    uint64_t number;
    uint8_t *shadow; /* [PAGE]; 1 = written */
} page;

struct kn_sim_memory {
    page *page;             /* open addressing; shadow NULL = free */
    uint64_t n_pages, room; /* room is a power of two */
};

typedef struct region {
    uint64_t lo, hi;
    const char *name;
    bool writable, poison;
    int n; /* dimensions that remain: byte sizes and byte strides, outermost first; the last has stride 1 */
    uint64_t size[6], stride[6];
} region;

struct kn_global {
    region *region;
    uint32_t n;
    kn_sim_memory *memory;
    bool owns_memory;
};

/* ---- shadow pages ----------------------------------------------------------------------------------------------- */

kn_status kn_sim_memory_create(kn_sim_memory **out) {
    return KN_NEW(out, 1, "the simulator's memory shadow");
}

void kn_sim_memory_free(kn_sim_memory *memory) {
    if (!memory) return;
    for (uint64_t k = 0; k < memory->room; k++) kn_free(memory->page[k].shadow);
    kn_free(memory->page);
    kn_free(memory);
}

static page *page_slot(const kn_sim_memory *s, uint64_t number) {
    uint64_t at = (number * UINT64_C(0x9E3779B97F4A7C15)) >> 20 & (s->room - 1);
    while (s->page[at].shadow && s->page[at].number != number) at = (at + 1) & (s->room - 1);
    return &s->page[at];
}

static kn_status grow_pages(kn_sim_memory *s) {
    kn_sim_memory bigger = {NULL, s->n_pages, s->room ? s->room * 2 : 256};
    KN_TRY(KN_NEW(&bigger.page, bigger.room, "shadow pages"));
    for (uint64_t k = 0; k < s->room; k++)
        if (s->page[k].shadow) *page_slot(&bigger, s->page[k].number) = s->page[k];
    kn_free(s->page);
    *s = bigger;
    return KN_OK;
}

/* Shadow pages for [lo, hi), unwritten where they are new. All exist before the launch starts, so that workers only
 * look them up. */
static kn_status cover(kn_sim_memory *s, uint64_t lo, uint64_t hi) {
    for (uint64_t number = lo / PAGE; number <= (hi - 1) / PAGE; number++) {
        if (s->n_pages * 2 >= s->room) KN_TRY(grow_pages(s));
        page *p = page_slot(s, number);
        if (p->shadow) continue;
        uint8_t *shadow = kn_calloc(1, PAGE);
        if (!shadow) return kn_fail(KN_E_NOMEM, "out of memory for the shadow of a workspace");
        *p = (page){number, shadow};
        s->n_pages++;
    }
    return KN_OK;
}

/* ---- regions ---------------------------------------------------------------------------------------------------- */

/* Dimensions by falling stride, without those of one element, with the bytes of an element as the innermost one, and
 * neighbours without a gap merged. */
static void normalise(const kn_sim_extent *x, region *r) {
    uint64_t size[6], stride[6];
    int n = 0;
    r->lo = (uint64_t)(uintptr_t)x->data;
    for (uint32_t d = 0; d < x->ndim; d++) {
        int64_t step = x->stride[d] * (int64_t)x->item;
        if (x->shape[d] == 1 || step == 0) continue;
        if (step < 0) {
            r->lo += (uint64_t)(step * (x->shape[d] - 1));
            step = -step;
        }
        int at = n++;
        for (; at > 0 && stride[at - 1] < (uint64_t)step; at--) {
            stride[at] = stride[at - 1];
            size[at] = size[at - 1];
        }
        stride[at] = (uint64_t)step;
        size[at] = (uint64_t)x->shape[d];
    }
    stride[n] = 1;
    size[n++] = x->item;
    uint64_t last = 0; /* offset of the last byte */
    for (int k = 0; k < n; k++) last += (size[k] - 1) * stride[k];
    r->hi = r->lo + last + 1;
    /* From the inside out: `run` is the size in bytes of what lies inside. A step within it overlaps or touches. */
    r->n = 0;
    uint64_t out_size[6], out_stride[6];
    int m = 0;
    out_size[0] = size[n - 1];
    out_stride[0] = 1;
    for (int k = n - 2; k >= 0; k--) {
        uint64_t run = (out_size[m] - 1) * out_stride[m] + (m == 0 ? 1 : out_stride[m]);
        if (m == 0 && stride[k] <= out_size[0]) {
            out_size[0] += (size[k] - 1) * stride[k];
        } else if (m > 0 && stride[k] == run) {
            out_size[m] *= size[k];
        } else {
            m++;
            out_size[m] = size[k];
            out_stride[m] = stride[k];
        }
    }
    for (int k = m; k >= 0; k--) {
        r->size[r->n] = out_size[k];
        r->stride[r->n++] = out_stride[k];
    }
}

static kn_status check_extent(const kn_sim_extent *x) {
    KN_REQUIRE(x->ndim <= 5, KN_E_ARG, "extent %s has %u dimensions; at most 5 are possible", x->name, x->ndim);
    KN_REQUIRE(x->item >= 1 && x->item <= 64, KN_E_ARG, "extent %s has elements of %u bytes", x->name, x->item);
    for (uint32_t d = 0; d < x->ndim; d++)
        KN_REQUIRE(x->shape[d] >= 0, KN_E_ARG, "extent %s has a negative size", x->name);
    return KN_OK;
}

static bool is_empty(const kn_sim_extent *x) {
    for (uint32_t d = 0; d < x->ndim; d++)
        if (x->shape[d] == 0) return true;
    return x->data == NULL;
}

kn_status kn_global_create(const kn_sim_launch *launch, const kn_sim_module *module, kn_sim_memory *memory,
                           kn_global **out) {
    kn_global *g = NULL;
    kn_status st = KN_OK;
    KN_TRY(KN_NEW(&g, 1, "a launch's memory map"));
    g->memory = memory;
    if (!memory) {
        KN_TRY_OUT(st, kn_sim_memory_create(&g->memory));
        g->owns_memory = true;
    }
    KN_TRY_OUT(st, KN_NEW(&g->region, launch->n_extents + module->n_variables + 1, "a launch's memory map"));
    for (uint32_t k = 0; k < launch->n_extents; k++) {
        const kn_sim_extent *x = &launch->extents[k];
        KN_TRY_OUT(st, check_extent(x));
        if (is_empty(x)) continue;
        region *r = &g->region[g->n++];
        normalise(x, r);
        r->name = x->name ? x->name : "?";
        r->writable = x->writable;
        r->poison = x->poison;
        if (x->poison) KN_TRY_OUT(st, cover(g->memory, r->lo, r->hi));
    }
    for (uint32_t k = 0; k < module->n_variables; k++) {
        const kn_module_variable *v = &module->variable[k];
        uint64_t lo = (uint64_t)(uintptr_t)v->data;
        if (v->bytes == 0) continue;
        g->region[g->n++] = (region){
            .lo = lo, .hi = lo + v->bytes, .name = "a module variable", .n = 1, .size = {v->bytes}, .stride = {1}};
    }
out:
    if (st == KN_OK)
        *out = g;
    else
        kn_global_free(g);
    return st;
}

void kn_global_free(kn_global *g) {
    if (!g) return;
    if (g->owns_memory) kn_sim_memory_free(g->memory);
    kn_free(g->region);
    kn_free(g);
}

/* The stretch without gaps around `addr`; false: in a gap or outside. */
static bool region_span(const region *r, uint64_t addr, uint64_t *lo, uint64_t *hi) {
    if (addr < r->lo || addr >= r->hi) return false;
    uint64_t offset = addr - r->lo;
    for (int k = 0; k < r->n - 1; k++) {
        uint64_t index = offset / r->stride[k];
        if (index >= r->size[k]) index = r->size[k] - 1; /* the last one: what is behind it is not a gap between two */
        offset -= index * r->stride[k];
    }
    if (offset >= r->size[r->n - 1]) return false;
    *lo = addr - offset;
    *hi = *lo + r->size[r->n - 1];
    return true;
}

/* Of regions that share an address the one that serves best: for reads initialised memory, for writes one whose
 * shadow must learn of it. */
bool kn_global_span(const kn_global *g, uint64_t addr, bool write, kn_span *out) {
    bool found = false;
    for (uint32_t k = 0; k < g->n; k++) {
        const region *r = &g->region[k];
        uint64_t lo, hi;
        if ((write && !r->writable) || !region_span(r, addr, &lo, &hi)) continue;
        if (found && r->poison != write) continue;
        *out = (kn_span){lo, hi, NULL, r->writable};
        found = true;
        if (r->poison) {
            uint64_t start = addr / PAGE * PAGE;
            const page *p = page_slot(g->memory, addr / PAGE);
            if (out->lo < start) out->lo = start;
            if (out->hi > start + PAGE) out->hi = start + PAGE;
            out->shadow = p->shadow + (out->lo - start);
        }
        if (r->poison == write) break;
    }
    return found;
}

void kn_global_describe(const kn_global *g, uint64_t addr, bool write, char *out, size_t cap) {
    const region *best = NULL;
    uint64_t distance = UINT64_MAX;
    for (uint32_t k = 0; k < g->n; k++) {
        const region *r = &g->region[k];
        uint64_t d = addr < r->lo ? r->lo - addr : addr >= r->hi ? addr - r->hi + 1 : 0;
        if (d >= distance) continue;
        distance = d;
        best = r;
    }
    uint64_t lo, hi;
    if (!best) {
        snprintf(out, cap, "the launch has no memory bound to it");
    } else if (distance == 0 && region_span(best, addr, &lo, &hi)) {
        snprintf(out, cap, "it is byte %llu of %s, which %s%s", (unsigned long long)(addr - best->lo), best->name,
                 write && !best->writable ? "is read-only" : "has a contiguous stretch that ends ",
                 write && !best->writable ? "" : "within the access");
    } else if (distance == 0) {
        snprintf(out, cap, "it is in a gap of the strided view %s, %llu bytes from its start", best->name,
                 (unsigned long long)(addr - best->lo));
    } else if (addr < best->lo) {
        snprintf(out, cap, "the nearest is %s (%llu bytes), which starts %llu bytes further on", best->name,
                 (unsigned long long)(best->hi - best->lo), (unsigned long long)distance);
    } else {
        snprintf(out, cap, "the nearest is %s (%llu bytes), which ends %llu bytes before", best->name,
                 (unsigned long long)(best->hi - best->lo), (unsigned long long)(distance - 1));
    }
}
