/* ops/validate: what every operation asks of its tensors and options, checked from the registry's table. Sentences name
 * the argument, what was seen and what was wanted; the caller puts the operation's name in front. */
#ifndef KN_OPS_VALIDATE_H
#define KN_OPS_VALIDATE_H

#include "kiln/kiln.h"
#include "ops/registry.h"

#include <stdbool.h>

/* Option struct of a call: the caller's fields, zeros (the defaults) for those that it does not know. */
typedef union kn_options {
    kiln_common_options common;
    unsigned char bytes[KN_OPTIONS_CAP];
} kn_options;

/** `options` may be NULL. Larger structs than this library's are accepted if their tail is zero, smaller ones are older
 *  callers'. */
kn_status kn_validate_options(const kn_op *op, const void *options, kn_options *out);

/* Where tensors must live: DLPack's numbers. */
typedef struct kn_place_rule {
    int32_t device_type, device_id;
    bool without_data; /* data may be NULL although there are elements: nothing will run */
} kn_place_rule;

/** Check `args` and fill out->op, tensor, letter and options (which must stay alive). */
kn_status kn_validate_tensors(const kn_op *op, const DLTensor *const *args, int32_t n_args, const kn_place_rule *place,
                              kn_call *out);

/** Check the call and fill everything of `p` but generic, portable and sm_limit: the general part here, axes and
 * options by the operation's describe. */
kn_status kn_validate_problem(const kn_call *call, kn_problem *p);

#endif
