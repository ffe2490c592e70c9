/* hb_cells: for each byte of a CTA's shared memory, who wrote it last and who has read it since.
 *
 * A cell of readers is 0, one epoch, or the number of a set; equal sets are stored once, so that a tile read by many
 * warps costs one number a byte. */
#ifndef KN_SIM_HB_CELLS_H
#define KN_SIM_HB_CELLS_H

#include "sim/clocks.h"

/* A cell that is no epoch: its low 32 bits are a number. No cluster is numbered so. */
#define KN_CELL_OTHER (UINT64_C(0x1fffff) << 43)

typedef struct kn_reader {
    kn_epoch who; /* its lane bits are 0: the lanes stand in `lanes` */
    uint32_t lanes;
} kn_reader;

typedef struct kn_reader_set {
    uint32_t first, n, next, hash; /* next: chain of the hash table */
} kn_reader_set;

enum { KN_READS_BUCKETS = 4096, KN_READS_MEMO = 512 };

typedef struct kn_reads {
    kn_reader *reader;
    uint32_t n_readers, room_readers;
    kn_reader_set *set;
    uint32_t n_sets, room_sets;
    uint32_t bucket[KN_READS_BUCKETS]; /* set + 1 */
    struct {
        uint64_t cell, who, out;
        uint32_t lanes;
    } memo[KN_READS_MEMO];
    kn_reader *scratch;
    uint32_t room_scratch;
} kn_reads; /* zeroed: empty */

void kn_reads_free(kn_reads *r);

/** The readers of a cell; *one is room for a cell that holds a single epoch. */
uint32_t kn_reads_list(const kn_reads *r, uint64_t cell, kn_reader *one, const kn_reader **list);

/** The cell after one more read, by a thread (or an engine of it) that knows `vc`: readers ordered before it that a
 * later write cannot miss by missing it are dropped. `lanes` 0: the single lane of `who`. */
kn_status kn_reads_add(kn_reads *r, uint64_t cell, kn_epoch who, uint32_t lanes, const kn_vc *vc, uint64_t *out);
/** The cell without reader `who`. */
kn_status kn_reads_remove(kn_reads *r, uint64_t cell, kn_epoch who, uint64_t *out);

/** True when so many sets have piled up that the owner should call kn_reads_compact with all its cells. */
bool kn_reads_full(const kn_reads *r);
/** Drop the sets that none of the cells names; renumber the others in place. */
kn_status kn_reads_compact(kn_reads *r, uint64_t *const *cells, const uint32_t *n_cells, uint32_t n_arrays);

#endif
