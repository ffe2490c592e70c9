/* The ledger of known findings: a JSON list of {"op", "kind", "argument", "message", "why"}. A finding is known when
 * all that a row says of it holds; "message" is a part of the sentence. "why" must be there. */
#ifndef KILN_TOOL_FUZZ_KNOWN_H
#define KILN_TOOL_FUZZ_KNOWN_H

#include "fuzz/fuzz_run.h"

/** Read and check the ledger; NULL path: an empty one. */
int kt_fuzz_known_read(const char *path, json_t **out);
/** The row that a finding is in, or NULL; counts it in the row's "seen". */
json_t *kt_fuzz_known_find(json_t *ledger, const kt_fuzz_case *c, const kt_fuzz_finding *finding);

#endif
