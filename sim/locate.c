/* Addresses of a warp to host pointers. The usual cases, all lanes in one known stretch of global memory or in the
 * CTA's own shared memory, are checked at once; the others lane by lane. */
#include "sim/locate.h"
#include "sim/access.h"

static kn_status order(kn_machine *m, kn_warp *w, const kn_insn *i, const uint64_t *addr, kn_space space,
                       uint32_t active, uint32_t bytes, kn_access_kind kind) {
    if (!m->hb) return KN_OK;
    kn_access a = {(uint8_t)space, (uint8_t)kind, i->m[KN_M_SEM], i->m[KN_M_SCOPE], bytes, active, addr};
    return m->hb->access(m, w, i, &a);
}

/* True if one comparison with the instruction's cached stretch settles all lanes. */
static bool settle_global(kn_machine *m, const kn_insn *i, const uint64_t *addr, uint32_t active, uint32_t bytes,
                          kn_access_kind kind) {
    const kn_span *s = kn_span_of(m, i, kind != KN_READ);
    uint64_t low = UINT64_MAX, high = 0, all = 0;
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        low = addr[l] < low ? addr[l] : low;
        high = addr[l] > high ? addr[l] : high;
        all |= addr[l];
    }
    return !s->shadow && low >= s->lo && high < s->hi && bytes <= s->hi - high && (all & (bytes - 1)) == 0;
}

static kn_status global(kn_machine *m, kn_warp *w, const kn_insn *i, const uint64_t *addr, uint32_t active,
                        uint32_t bytes, kn_access_kind kind, uint8_t **out) {
    bool settled = settle_global(m, i, addr, active, bytes, kind);
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        if (!settled) KN_TRY(kn_global_at(m, w, i, l, addr[l], bytes, bytes, kind));
        out[l] = (uint8_t *)(uintptr_t)addr[l];
    }
    return order(m, w, i, addr, KN_SPACE_GLOBAL, active, bytes, kind);
}

/* Shadow of up to 16 aligned bytes that are all written and free of marks. */
static inline bool clean(const uint8_t *shadow, uint32_t bytes) {
    uint64_t v[2] = {UINT64_C(0x0101010101010101), UINT64_C(0x0101010101010101)};
    memcpy(v, shadow, bytes);
    return v[0] == UINT64_C(0x0101010101010101) && v[1] == UINT64_C(0x0101010101010101);
}

static kn_status shared(kn_machine *m, kn_warp *w, const kn_insn *i, const uint64_t *addr, uint32_t active,
                        uint32_t bytes, kn_access_kind kind, uint8_t **out) {
    kn_cta *own = w->cta;
    uint64_t base = (uint64_t)own->rank << KN_SMEM_RANK_SHIFT;
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        kn_cta *cta = own;
        uint64_t near = addr[l] - base;
        uint32_t offset = (uint32_t)near;
        bool plain = near >= KN_SMEM_RESERVED && near + bytes <= own->smem_bytes && (near & (bytes - 1)) == 0;
        if (!plain) KN_TRY(kn_shared_at(m, w, i, l, addr[l], bytes, bytes, &cta, &offset));
        uint8_t *shadow = cta->shadow + offset;
        if (!clean(shadow, bytes)) KN_TRY(kn_shared_check(m, w, i, l, cta, offset, bytes, kind));
        if (kind != KN_READ) memset(shadow, KN_SH_INIT, bytes);
        out[l] = cta->smem + offset;
    }
    return order(m, w, i, addr, KN_SPACE_SHARED_CLUSTER, active, bytes, kind);
}

static kn_status parameter(kn_machine *m, kn_warp *w, const kn_insn *i, const uint64_t *addr, uint32_t active,
                           uint32_t bytes, kn_access_kind kind, uint8_t **out) {
    for (int l = 0; l < KN_LANES; l++) {
        const uint8_t *data;
        if (!(active >> l & 1)) continue;
        if (kind != KN_READ) return kn_fault(m, w, i, l, "a parameter is written");
        if (addr[l] & (bytes - 1))
            return kn_fault(m, w, i, l, "parameter offset %llu is not aligned to %u bytes", (unsigned long long)addr[l],
                            bytes);
        KN_TRY(kn_param_at(m, w, i, l, addr[l], bytes, &data));
        out[l] = (uint8_t *)(uintptr_t)data;
    }
    return KN_OK;
}

/* The lanes of each window go their way. */
static kn_status generic(kn_machine *m, kn_warp *w, const kn_insn *i, const uint64_t *addr, uint32_t active,
                         uint32_t bytes, kn_access_kind kind, uint8_t **out) {
    static const kn_space spaces[] = {KN_SPACE_GLOBAL, KN_SPACE_SHARED_CLUSTER, KN_SPACE_LOCAL, KN_SPACE_PARAM};
    uint64_t at[KN_LANES] = {0};
    for (size_t k = 0; k < sizeof spaces / sizeof spaces[0]; k++) {
        uint32_t lanes = 0;
        for (int l = 0; l < KN_LANES; l++)
            if ((active >> l & 1) && kn_resolve(addr[l], &at[l]) == spaces[k]) lanes |= 1u << l;
        if (lanes) KN_TRY(kn_locate(m, w, i, at, spaces[k], lanes, bytes, kind, out));
    }
    return KN_OK;
}

kn_status kn_locate(kn_machine *m, kn_warp *w, const kn_insn *i, const uint64_t addr[32], kn_space space,
                    uint32_t active, uint32_t bytes, kn_access_kind kind, uint8_t *out[32]) {
    switch (space) {
    case KN_SPACE_GENERIC: return generic(m, w, i, addr, active, bytes, kind, out);
    case KN_SPACE_GLOBAL:
    case KN_SPACE_CONST: return global(m, w, i, addr, active, bytes, kind, out);
    case KN_SPACE_SHARED:
    case KN_SPACE_SHARED_CLUSTER: return shared(m, w, i, addr, active, bytes, kind, out);
    case KN_SPACE_PARAM: return parameter(m, w, i, addr, active, bytes, kind, out);
    default: break;
    }
    for (int l = 0; l < KN_LANES; l++)
        if (active >> l & 1) KN_TRY(kn_local_at(m, w, i, l, addr[l], bytes, bytes, kind, &out[l]));
    return KN_OK;
}
