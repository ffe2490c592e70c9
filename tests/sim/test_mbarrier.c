/* sim/mbarrier.c: phases, transaction counts, parity and the rules that must be refused (PTX ISA, mbarrier). */
#include "sim/mbarrier.h"
#include "support/suite.h"

#include <string.h>

static void refused(const char *why, const char *part) {
    ck_assert_msg(why != NULL && strstr(why, part) != NULL, "got \"%s\", wanted \"%s\"", why ? why : "no refusal",
                  part);
}

static bool parity_done(const kn_mbar *b, uint32_t parity) {
    bool done = false;
    ck_assert_ptr_null(kn_mbar_test_parity(b, parity, &done));
    return done;
}

START_TEST(arrivals_complete_phases) {
    kn_mbar b = {0};
    bool done;
    ck_assert_ptr_null(kn_mbar_init(&b, 3));
    ck_assert(parity_done(&b, 1)); /* the phase before the first one: a producer's first wait falls through */
    ck_assert(!parity_done(&b, 0));
    uint64_t s0 = kn_mbar_state(&b);
    ck_assert_uint_eq(kn_mbar_state_pending(s0), 3);
    ck_assert_ptr_null(kn_mbar_arrive(&b, 2, &done));
    ck_assert(!done);
    ck_assert_ptr_null(kn_mbar_test_state(&b, s0, &done));
    ck_assert(!done);
    refused(kn_mbar_arrive_no_complete(&b, 1), "noComplete");
    refused(kn_mbar_arrive(&b, 2, &done), "more arrivals");
    ck_assert_ptr_null(kn_mbar_arrive(&b, 1, &done));
    ck_assert(done && parity_done(&b, 0) && !parity_done(&b, 1));
    ck_assert_ptr_null(kn_mbar_test_state(&b, s0, &done));
    ck_assert(done);
    ck_assert_uint_eq(b.pending, 3);
    ck_assert_ptr_null(kn_mbar_arrive(&b, 3, &done));
    ck_assert(done && b.phase == 2);
    refused(kn_mbar_test_state(&b, s0, &done), "neither");
    refused(kn_mbar_test_parity(&b, 2, &done), "parity");
}
END_TEST

START_TEST(transactions_hold_the_phase) {
    kn_mbar b = {0};
    bool done;
    ck_assert_ptr_null(kn_mbar_init(&b, 1));
    ck_assert_ptr_null(kn_mbar_complete_tx(&b, 64, &done)); /* bytes may come before they are announced */
    ck_assert(!done);
    ck_assert_ptr_null(kn_mbar_expect_tx(&b, 192));
    ck_assert_ptr_null(kn_mbar_arrive(&b, 1, &done));
    ck_assert(!done);
    ck_assert_ptr_null(kn_mbar_complete_tx(&b, 64, &done));
    ck_assert(!done);
    ck_assert_ptr_null(kn_mbar_complete_tx(&b, 64, &done));
    ck_assert(done);
    refused(kn_mbar_expect_tx(&b, KN_MBAR_MAX + 1), "transaction count");
    ck_assert_ptr_null(kn_mbar_expect_tx(&b, KN_MBAR_MAX));
    refused(kn_mbar_expect_tx(&b, 1), "transaction count");
    ck_assert_ptr_null(kn_mbar_complete_tx(&b, KN_MBAR_MAX, &done));
    ck_assert_ptr_null(kn_mbar_complete_tx(&b, KN_MBAR_MAX, &done));
    refused(kn_mbar_complete_tx(&b, 1, &done), "transaction count");
}
END_TEST

START_TEST(life_and_drop) {
    kn_mbar b = {0};
    bool done;
    refused(kn_mbar_arrive(&b, 1, &done), "never initialised");
    refused(kn_mbar_expect_tx(&b, 1), "never initialised");
    refused(kn_mbar_test_parity(&b, 0, &done), "never initialised");
    refused(kn_mbar_init(&b, 0), "1..1048575");
    refused(kn_mbar_init(&b, KN_MBAR_MAX + 1), "1..1048575");
    ck_assert_ptr_null(kn_mbar_init(&b, 2));
    refused(kn_mbar_init(&b, 2), "lives at this address");
    ck_assert_ptr_null(kn_mbar_add_pending(&b));
    ck_assert_uint_eq(b.pending, 3);
    ck_assert_ptr_null(kn_mbar_arrive(&b, 1, &done));
    ck_assert_ptr_null(kn_mbar_arrive_drop(&b, 1, &done));
    ck_assert(!done);
    ck_assert_ptr_null(kn_mbar_arrive(&b, 1, &done));
    ck_assert(done && b.pending == 1);
    refused(kn_mbar_arrive_drop(&b, 1, &done), "expects nobody");
    ck_assert_ptr_null(kn_mbar_inval(&b));
    refused(kn_mbar_inval(&b), "never initialised");
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/mbarrier");
    TCase *t = tcase_create("mbarrier");
    tcase_add_test(t, arrivals_complete_phases);
    tcase_add_test(t, transactions_hold_the_phase);
    tcase_add_test(t, life_and_drop);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
