/* mbarrier: see the header. */
#include "sim/mbarrier.h"

#include <stddef.h>

static const char not_live[] = "no mbarrier lives at this address: it was never initialised or has been invalidated";
static const char bad_count[] = "an mbarrier's count lies in 1..1048575";

const char *kn_mbar_init(kn_mbar *b, uint32_t count) {
    if (b->expected != 0) return "an mbarrier lives at this address already: mbarrier.inval it first";
    if (count < 1 || count > KN_MBAR_MAX) return bad_count;
    *b = (kn_mbar){.expected = count, .pending = count};
    return NULL;
}

const char *kn_mbar_inval(kn_mbar *b) {
    if (b->expected == 0) return not_live;
    b->expected = 0;
    return NULL;
}

static bool complete(kn_mbar *b) {
    if (b->pending != 0 || b->tx != 0) return false;
    b->phase++;
    b->pending = b->expected;
    return true;
}

static const char *check_arrive(const kn_mbar *b, uint32_t count) {
    if (b->expected == 0) return not_live;
    if (count < 1 || count > KN_MBAR_MAX) return bad_count;
    if (count > b->pending) return "more arrivals than the mbarrier expects in this phase";
    return NULL;
}

const char *kn_mbar_arrive(kn_mbar *b, uint32_t count, bool *completed) {
    const char *why = check_arrive(b, count);
    if (why) return why;
    b->pending -= count;
    bool c = complete(b);
    if (completed) *completed = c;
    return NULL;
}

const char *kn_mbar_arrive_no_complete(kn_mbar *b, uint32_t count) {
    const char *why = check_arrive(b, count);
    if (why) return why;
    if (count == b->pending) return "an arrive.noComplete would complete the phase";
    b->pending -= count;
    return NULL;
}

const char *kn_mbar_arrive_drop(kn_mbar *b, uint32_t count, bool *completed) {
    const char *why = check_arrive(b, count);
    if (why) return why;
    if (count >= b->expected) return "arrive_drop would leave an mbarrier that expects nobody";
    b->expected -= count;
    b->pending -= count;
    bool c = complete(b);
    if (completed) *completed = c;
    return NULL;
}

const char *kn_mbar_expect_tx(kn_mbar *b, uint32_t bytes) {
    if (b->expected == 0) return not_live;
    if (bytes > KN_MBAR_MAX || b->tx + (int32_t)bytes > KN_MBAR_MAX)
        return "the mbarrier's transaction count passes 1048575 bytes";
    b->tx += (int32_t)bytes;
    return NULL;
}

const char *kn_mbar_complete_tx(kn_mbar *b, uint32_t bytes, bool *completed) {
    if (b->expected == 0) return not_live;
    if (bytes > KN_MBAR_MAX || b->tx - (int32_t)bytes < -KN_MBAR_MAX)
        return "the mbarrier's transaction count passes -1048575 bytes";
    b->tx -= (int32_t)bytes;
    bool c = complete(b);
    if (completed) *completed = c;
    return NULL;
}

const char *kn_mbar_add_pending(kn_mbar *b) {
    if (b->expected == 0) return not_live;
    if (b->pending >= KN_MBAR_MAX) return "the mbarrier's pending count passes 1048575";
    b->pending++;
    return NULL;
}

uint64_t kn_mbar_state(const kn_mbar *b) {
    return (uint64_t)b->phase << 20 | b->pending;
}

uint32_t kn_mbar_state_pending(uint64_t state) {
    return (uint32_t)(state & KN_MBAR_MAX);
}

const char *kn_mbar_test_state(const kn_mbar *b, uint64_t state, bool *done) {
    if (b->expected == 0) return not_live;
    uint64_t phase = state >> 20;
    if (phase != b->phase && phase + 1 != b->phase)
        return "the state is neither of the mbarrier's current nor of its last phase";
    *done = phase != b->phase;
    return NULL;
}

const char *kn_mbar_test_parity(const kn_mbar *b, uint32_t parity, bool *done) {
    if (b->expected == 0) return not_live;
    if (parity > 1) return "a phase parity is 0 or 1";
    *done = (b->phase & 1) != parity;
    return NULL;
}
