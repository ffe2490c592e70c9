/* units: what the executors of the asynchronous units share: the mbarriers of a CTA, the bulk and wgmma groups of a
 * warp, the register pool. All of it lives in the cluster's arena. */
#ifndef KN_SIM_UNITS_H
#define KN_SIM_UNITS_H

#include "sim/happens.h"
#include "sim/mbarrier.h"

/* ---- mbarriers --------------------------------------------------------------------------------------------------- */

typedef struct kn_bar_slot {
    uint32_t offset; /* in the CTA */
    kn_cta *cta;
    kn_mbar b;
    uint32_t agent, turn; /* happens: agent, and its count that the current phase's completion makes known */
    kn_hb_object *arrived, *complete; /* what arrivals released so far; what a waiter of the last phase acquires */
    kn_epoch init;                    /* by whom, for the order of the first use */
    uint32_t init_lane;
    bool fenced; /* the init has passed a fence.mbarrier_init or fence.proxy.async */
    struct kn_bar_slot *next;
} kn_bar_slot;

/** The live mbarrier at shared address `addr`, for a use by `lane`: bounds, alignment, and that its init is ordered
 * before; `async`: the use is by the asynchronous proxy, which needs a fence behind the init. */
kn_status kn_bar_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t addr, bool async,
                    kn_bar_slot **out);
/** The epoch of asynchronous work that completes on the mbarrier in its current phase; while it runs, and once it is
 * done. */
kn_epoch kn_bar_running(const kn_bar_slot *s, uint64_t flags);
kn_epoch kn_bar_done(const kn_bar_slot *s, uint64_t flags);
/** complete_tx by asynchronous work. */
kn_status kn_bar_complete_tx(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_bar_slot *s, uint32_t bytes);

/* ---- warps and CTAs -------------------------------------------------------------------------------------- */

enum { KN_SETMAXNREG_MAX = 16 };
enum { KN_BULK_GROUPS = 64 }; /* most bulk groups that one thread may have open */

typedef struct kn_bulk_group {
    uint32_t count;         /* happens: count of KN_A_BULK_READ and _WRITE while the group was open */
    uint32_t reads, writes; /* operations whose reads, writes are not done */
} kn_bulk_group;

typedef struct kn_bulk_lane {            /* of one thread */
    kn_bulk_group group[KN_BULK_GROUPS]; /* ring: [first, first + n) are committed, the one behind is open */
    uint32_t first, n;
} kn_bulk_lane;

typedef struct kn_warp_units {
    kn_bulk_lane *bulk[KN_LANES];
    struct kn_wgmma_state *wgmma;
    uint32_t registers; /* a thread's, 0: setmaxnreg was not used */
    uint32_t n_setmaxnreg;
    uint32_t arrived; /* lanes that have arrived at the cluster's barrier and not waited, and in which phase */
    uint32_t arrived_phase[KN_LANES];
} kn_warp_units;

typedef struct kn_cta_units {
    kn_bar_slot *bars;
    struct kn_wgmma_log *wgmma[KN_MAX_WARPS / 4]; /* of each warpgroup */
    uint32_t pool;                                /* of setmaxnreg: registers a thread times warps, that nobody holds */
    uint16_t setmaxnreg[KN_MAX_WARPS / 4][KN_SETMAXNREG_MAX]; /* what the warpgroups have set */
} kn_cta_units;

/** The warp ends: refused while a bulk copy may still read shared memory, that is, before its thread has waited for it.
 */
kn_status kn_bulk_exit(kn_machine *m, kn_warp *w);
kn_status kn_warp_units_of(kn_warp *w, kn_warp_units **out);
kn_status kn_cta_units_of(kn_cta *cta, kn_cta_units **out);

/** Shared addresses of an address operand, rank and all: `space` KN_SPACE_GENERIC resolves generic ones. */
kn_status kn_units_shared(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint8_t space,
                          uint32_t active, uint64_t out[32]);

#endif
