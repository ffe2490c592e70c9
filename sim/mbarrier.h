/* mbarrier: the state machine of one mbarrier object, without memory, clocks or warps.
 *
 * A phase completes when no arrival is pending and the transaction count is zero. Functions return NULL, or a static
 * sentence that says which rule of the PTX manual the call broke; the object is then unchanged. */
#ifndef KN_SIM_MBARRIER_H
#define KN_SIM_MBARRIER_H

#include <stdbool.h>
#include <stdint.h>

enum { KN_MBAR_MAX = (1 << 20) - 1 }; /* largest arrival count, largest |transaction count| */

typedef struct kn_mbar {
    uint32_t expected; /* arrivals a phase; 0 = never initialised or invalidated */
    uint32_t pending;  /* arrivals still missing in this phase */
    int32_t tx;        /* bytes announced less bytes arrived */
    uint32_t phase;    /* completed phases, from 0 */
} kn_mbar;

const char *kn_mbar_init(kn_mbar *b, uint32_t count);
const char *kn_mbar_inval(kn_mbar *b);

/* `completed` (may be NULL) says whether the call completed the phase. */
const char *kn_mbar_arrive(kn_mbar *b, uint32_t count, bool *completed);
/** arrive.noComplete: refused if it would complete the phase. */
const char *kn_mbar_arrive_no_complete(kn_mbar *b, uint32_t count);
/** arrive_drop: one thread fewer from the next phase on. */
const char *kn_mbar_arrive_drop(kn_mbar *b, uint32_t count, bool *completed);
const char *kn_mbar_expect_tx(kn_mbar *b, uint32_t bytes);
const char *kn_mbar_complete_tx(kn_mbar *b, uint32_t bytes, bool *completed);
/** cp.async.mbarrier.arrive without .noinc: one more arrival pending in this phase. */
const char *kn_mbar_add_pending(kn_mbar *b);

/** The 64-bit state that arrive returns: it names the phase and the arrivals missing before the call. */
uint64_t kn_mbar_state(const kn_mbar *b);
uint32_t kn_mbar_state_pending(uint64_t state);
/** test_wait on a state: *done when that phase has completed. Only the current and the last phase may be asked for. */
const char *kn_mbar_test_state(const kn_mbar *b, uint64_t state, bool *done);
/** test_wait.parity: *done when the phase with this parity (0: even) that is current or the last one has completed. */
const char *kn_mbar_test_parity(const kn_mbar *b, uint32_t parity, bool *done);

#endif
