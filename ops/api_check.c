/* References and comparison, on host tensors and without a context. */
#include "kiln/kiln_tools.h"
#include "ops/api_call.h"
#include "ops/compare.h"
#include "ops/ref_common.h"

#include <string.h>

/* The checks of a real call, for tensors in host memory; describe's too, since references rely on them. */
static kn_status describe_host(const kn_op *op, const DLTensor *const *args, int32_t n_args, const void *options,
                               kn_api_call *c) {
    const kn_place_rule host = {.device_type = 1, .device_id = 0};
    KN_TRY(kn_validate_options(op, options, &c->options));
    c->call.options = c->options.bytes;
    KN_TRY(kn_validate_tensors(op, args, n_args, &host, &c->call));
    return kn_validate_problem(&c->call, &c->problem);
}

int32_t kiln_reference(const char *op_name, const DLTensor *const *args, int32_t n_args, const void *options,
                       double *const *exact, double *const *magnitude) {
    const kn_op *op = NULL;
    kn_api_call c;
    KN_TRY(kn_api_find_op(op_name, &op));
    kn_status st = describe_host(op, args, n_args, options, &c);
    if (st == KN_OK) st = op->reference(&c.call, exact, magnitude);
    return st == KN_OK ? KN_OK : kn_error_prefix(st, "%s: ", op->name);
}

int32_t kiln_reference_products(kiln_product_fn product, void *user) {
    kn_ref_set_products(product, user);
    return KN_OK;
}

static kn_status check(const kn_op *op, const kn_api_call *c, const double *const *exact,
                       const double *const *magnitude, kiln_check_result *results) {
    KN_REQUIRE(exact && magnitude, KN_E_ARG, "exact or magnitude is NULL");
    KN_REQUIRE(results, KN_E_ARG, "results is NULL");
    for (int i = 0; i < op->n_outputs; i++)
        KN_REQUIRE(results[i].struct_size == sizeof *results, KN_E_ABI,
                   "results[%d]: struct_size is %u; wanted sizeof(kiln_check_result) = %zu", i, results[i].struct_size,
                   sizeof *results);
    return kn_compare(&c->call, exact, magnitude, results);
}

int32_t kiln_check(const char *op_name, const DLTensor *const *args, int32_t n_args, const void *options,
                   const double *const *exact, const double *const *magnitude, kiln_check_result *results) {
    const kn_op *op = NULL;
    kn_api_call c;
    KN_TRY(kn_api_find_op(op_name, &op));
    kn_status st = describe_host(op, args, n_args, options, &c);
    if (st == KN_OK) st = check(op, &c, exact, magnitude, results);
    return st == KN_OK ? KN_OK : kn_error_prefix(st, "%s: ", op->name);
}
