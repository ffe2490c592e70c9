/* bulk: copies of the asynchronous proxy between global and shared memory, one-dimensional and by tensor map. A copy is
 * a walk over pieces of at most 16 bytes; it is checked when it is issued and moves its data later. */
#ifndef KN_SIM_BULK_H
#define KN_SIM_BULK_H

#include "sim/tma.h"
#include "sim/units.h"

typedef struct kn_copy {
    bool tensor;
    kn_tma_map map; /* tensor: and coord */
    int32_t coord[5];
    uint64_t global; /* one-dimensional */
    uint32_t bytes;  /* in shared memory, and completed on the mbarrier */
    kn_cta *cta;     /* the shared side */
    uint32_t offset;
    kn_cta *from; /* shared to shared: the source, from_offset */
    uint32_t from_offset;
    kn_bar_slot *bar;     /* loads: completes here */
    kn_bulk_group *group; /* stores: belongs to it */
    bool reduces;
    kn_tma_op op;
    kn_tma_elem elem;
    bool captured; /* stores: shared memory has been read into data */
    uint8_t data[];
} kn_copy;

/** Shared to global (copy or reduction), in the lane's open bulk group. */
kn_status kn_bulk_store(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, const kn_copy *c);
/** Own shared to a peer's shared memory, completing on c->bar. */
kn_status kn_bulk_peer(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, const kn_copy *c);

/** Destinations of a load: `dst` and the mbarrier for one CTA, or for each CTA of a multicast mask at the same offsets.
 */
kn_status kn_bulk_load_all(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_copy *c, uint64_t dst,
                           uint64_t bar, bool multicast, uint32_t mask, uint32_t align);
/** The source of a store or peer copy: c->bytes at `src` of the own CTA, into c->cta and offset. */
kn_status kn_bulk_source(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t src, uint32_t bytes,
                         uint32_t align, kn_cta **cta, uint32_t *offset);
/** The reduction that i's modifiers name, on elements of type `elem`. */
kn_status kn_bulk_reduction(kn_machine *m, kn_warp *w, const kn_insn *i, kn_tma_elem elem, kn_copy *c);

#endif
