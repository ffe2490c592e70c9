/* ops/api_call: the one path that all operations' entry points take. */
#ifndef KN_OPS_API_CALL_H
#define KN_OPS_API_CALL_H

#include "base/buf.h"
#include "jit/engine.h"
#include "kiln/kiln.h"
#include "ops/validate.h"

/* A call that passed the checks. */
typedef struct kn_api_call {
    kn_options options;
    kn_call call;
    kn_problem problem; /* as plans are looked up: generic = 0 */
} kn_api_call;

/** Check everything that a plan depends on. `without_data`: tensors may lack data, as nothing will run. Sentences do
 * not name the operation yet. */
kn_status kn_api_describe(kn_engine *e, const kn_op *op, const DLTensor *const *args, int32_t n_args,
                          const void *options, bool without_data, kn_api_call *out);

/** Run operation `op` (an index of the registry). */
int32_t kn_api_run(kiln_context *ctx, int op, const DLTensor *const *args, int32_t n_args, const void *options,
                   void *stream);

/** The call as one line of a warm list (JSON, no newline). */
kn_status kn_api_record_line(const kn_api_call *c, kn_buf *out);
/** Returns `st`; of KN_E_NOT_CACHED, the line that would have made it work is put at the end of the sentence. */
kn_status kn_api_add_warm_line(const kn_api_call *c, kn_status st);

/** KN_E_ARG naming it if there is no such operation. */
kn_status kn_api_find_op(const char *name, const kn_op **out);
/** Copy JSON out: KN_OK and *needed when it fits or buf is NULL, KN_E_ARG when it does not fit. Frees `b`. */
kn_status kn_api_give_text(kn_buf *b, char *buf, uint64_t cap, uint64_t *needed);

#endif
