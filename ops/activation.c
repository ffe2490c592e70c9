/* The checks of a call's activation: see activation.h. */
#include "ops/activation.h"

#include <math.h>
#include <string.h>

static kn_status float_bits(double v, const char *name, int64_t *out) {
    float f = (float)v;
    uint32_t bits;
    KN_REQUIRE(isfinite(f), KN_E_ARG, "activation.%s is %g; wanted a finite number", name, v);
    memcpy(&bits, &f, sizeof bits);
    *out = bits;
    return KN_OK;
}

kn_status kn_describe_activation(const kiln_activation *a, kn_problem *p, int64_t *alpha, int64_t *limit,
                                 int64_t *offset) {
    KN_REQUIRE(a->limit >= 0, KN_E_ARG, "activation.limit is %g; wanted a positive number, or 0 for none", a->limit);
    if (a->source) {
        KN_REQUIRE(
            a->alpha == 0 && a->limit == 0 && a->offset == 0, KN_E_ARG,
            "activation.alpha, limit and offset are %g, %g and %g beside a source; wanted 0: the source says it all",
            a->alpha, a->limit, a->offset);
        KN_TRY(kn_user_function_keep(a->source, p->source));
    }
    KN_TRY(float_bits(a->alpha == 0 ? 1 : a->alpha, "alpha", alpha));
    KN_TRY(float_bits(a->limit == 0 || isinf(a->limit) ? 0 : a->limit, "limit", limit)); /* -0 is 0 */
    return float_bits(a->offset == 0 ? 0 : a->offset, "offset", offset);
}
