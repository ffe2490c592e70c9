/* One access to memory, checked: where it goes, whether it may, whether the bytes are there. */
#include "sim/access.h"
#include "sim/extents.h"
#include "sim/ptx_module.h"

kn_space kn_resolve(uint64_t generic, uint64_t *addr) {
    *addr = generic & ~KN_WINDOW_MASK;
    switch (generic & KN_WINDOW_MASK) {
    case KN_WINDOW_SHARED: return KN_SPACE_SHARED_CLUSTER;
    case KN_WINDOW_LOCAL: return KN_SPACE_LOCAL;
    case KN_WINDOW_PARAM: return KN_SPACE_PARAM;
    default: *addr = generic; return KN_SPACE_GLOBAL;
    }
}

static kn_status misaligned(kn_machine *m, const kn_warp *w, const kn_insn *i, int lane, const char *space,
                            uint64_t addr, uint32_t align) {
    return kn_fault(m, w, i, lane, "%s address 0x%llx is not aligned to %u bytes", space, (unsigned long long)addr,
                    align);
}

/* ---- shared ------------------------------------------------------------------------------------------------------ */

kn_status kn_shared_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t addr, uint32_t bytes,
                       uint32_t align, kn_cta **cta, uint32_t *offset) {
    kn_cluster *c = m->cluster;
    uint32_t rank = KN_SMEM_RANK(addr), at = KN_SMEM_OFFSET(addr);
    if (addr >> 32 || rank >= c->n_ctas)
        return kn_fault(m, w, i, lane, "shared address 0x%llx lies outside the cluster's %u CTA%s",
                        (unsigned long long)addr, c->n_ctas, c->n_ctas == 1 ? "" : "s");
    kn_cta *to = &c->ctas[rank];
    if (at & (align - 1)) return misaligned(m, w, i, lane, "shared", addr, align);
    if (at < KN_SMEM_RESERVED || bytes > to->smem_bytes || at > to->smem_bytes - bytes)
        return kn_fault(m, w, i, lane,
                        "%u bytes at shared address 0x%x are out of bounds: the CTA has 0x%x..0x%x (%u bytes)", bytes,
                        at, KN_SMEM_RESERVED, to->smem_bytes, to->smem_bytes - KN_SMEM_RESERVED);
    if (to != w->cta && to->live_warps == 0)
        return kn_fault(m, w, i, lane, "shared memory of CTA (%u,%u,%u) is accessed after that CTA has exited",
                        to->id[0], to->id[1], to->id[2]);
    *cta = to;
    *offset = at;
    return KN_OK;
}

kn_status kn_shared_check(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_cta *cta, uint32_t offset,
                          uint32_t bytes, kn_access_kind kind) {
    bool read = kind != KN_WRITE, write = kind != KN_READ;
    const uint8_t *shadow = cta->shadow + offset;
    for (uint32_t k = 0; k < bytes; k++) {
        uint8_t s = shadow[k];
        uint32_t at = offset + k;
        if (s == KN_SH_INIT || (s == 0 && !read)) continue;
        if (s & KN_SH_INFLIGHT)
            return kn_fault(m, w, i, lane,
                            "shared byte 0x%x is %s while an asynchronous write to it is under way or has "
                            "not been waited for",
                            at, write ? "written" : "read");
        if (s & KN_SH_OBJECT)
            return kn_fault(m, w, i, lane, "shared byte 0x%x belongs to an mbarrier and takes no ordinary access", at);
        if (write && (s & KN_SH_PINNED))
            return kn_fault(m, w, i, lane, "shared byte 0x%x is overwritten while an asynchronous operation reads it",
                            at);
        if (read && !(s & KN_SH_INIT))
            return kn_fault(m, w, i, lane, "shared byte 0x%x is read but was never written", at);
    }
    return KN_OK;
}

/* ---- global ------------------------------------------------------------------------------------------------------ */

static kn_status no_access(kn_machine *m, const kn_warp *w, const kn_insn *i, int lane, uint64_t addr, uint32_t bytes,
                           bool write) {
    char nearest[320];
    kn_global_describe(m->run->global, addr, write, nearest, sizeof nearest);
    return kn_fault(m, w, i, lane, "%s of %u bytes at global address 0x%llx is not allowed: %s",
                    write ? "a write" : "a read", bytes, (unsigned long long)addr, nearest);
}

static kn_status poisoned(kn_machine *m, const kn_warp *w, const kn_insn *i, int lane, uint64_t addr) {
    char nearest[320];
    kn_global_describe(m->run->global, addr, true, nearest, sizeof nearest);
    return kn_fault(m, w, i, lane, "a read of uninitialised memory at global address 0x%llx: %s",
                    (unsigned long long)addr, nearest);
}

/* All bytes of [addr, addr + n) lie in span `s`. */
static inline kn_status use_shadow(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, const kn_span *s,
                                   uint64_t addr, uint32_t n, kn_access_kind kind) {
    uint8_t *shadow = s->shadow + (addr - s->lo);
    if (kind != KN_WRITE) {
        for (uint32_t k = 0; k < n; k++)
            if (!shadow[k]) return poisoned(m, w, i, lane, addr + k);
    }
    if (kind != KN_READ) memset(shadow, 1, n);
    return KN_OK;
}

kn_status kn_global_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t addr, uint32_t bytes,
                       uint32_t align, kn_access_kind kind) {
    bool write = kind != KN_READ;
    kn_span *s = kn_span_of(m, i, write);
    if (addr & (align - 1)) return misaligned(m, w, i, lane, "global", addr, align);
    for (bool more = false; bytes > 0; more = true) { /* pages of a shadow end a span, gaps do too */
        if (addr < s->lo || addr >= s->hi) {
            kn_span fresh;
            if (!kn_global_span(m->run->global, addr, write, &fresh))
                return no_access(m, w, i, lane, addr, bytes, write);
            *s = fresh;
        }
        if (more && s->lo != addr) return no_access(m, w, i, lane, addr, bytes, write);
        uint64_t room = s->hi - addr;
        uint32_t n = bytes < room ? bytes : (uint32_t)room;
        if (s->shadow)
            KN_TRY(use_shadow(m, w, i, lane, s, addr, n, kind));
        else if (n < bytes)
            return no_access(m, w, i, lane, addr + n, bytes - n, write);
        addr += n;
        bytes -= n;
    }
    return KN_OK;
}

kn_status kn_param_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t offset, uint32_t bytes,
                      const uint8_t **data) {
    uint32_t have = m->entry->params_bytes;
    if (bytes > have || offset > have - bytes)
        return kn_fault(m, w, i, lane, "parameter bytes %llu..%llu are out of bounds: the kernel has %u",
                        (unsigned long long)offset, (unsigned long long)(offset + bytes), have);
    *data = m->run->params + offset;
    return KN_OK;
}

kn_status kn_local_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t offset, uint32_t bytes,
                      uint32_t align, kn_access_kind kind, uint8_t **data) {
    uint32_t have = m->entry->local_bytes;
    if (offset & (align - 1)) return misaligned(m, w, i, lane, "local", offset, align);
    if (bytes > have || offset > have - bytes)
        return kn_fault(m, w, i, lane, "local bytes %llu..%llu are out of bounds: a thread has %u",
                        (unsigned long long)offset, (unsigned long long)(offset + bytes), have);
    size_t at = (size_t)lane * have + (size_t)offset;
    for (uint32_t k = 0; k < bytes && kind != KN_WRITE; k++)
        if (!w->local_def[at + k])
            return kn_fault(m, w, i, lane, "local byte %llu is read but was never written",
                            (unsigned long long)offset + k);
    if (kind != KN_READ) memset(w->local_def + at, 1, bytes);
    *data = w->local + at;
    return KN_OK;
}
