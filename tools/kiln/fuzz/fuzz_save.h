/* Cases as safetensors files: tensors that `kiln run --check` takes, and the description that `kiln fuzz --replay`
 * makes the case from again, with its layouts. */
#ifndef KILN_TOOL_FUZZ_SAVE_H
#define KILN_TOOL_FUZZ_SAVE_H

#include "fuzz/fuzz_run.h"

int kt_fuzz_save(kt_fuzz_machine *machine, const kt_fuzz_case *c, const char *path);
int kt_fuzz_load(const char *path, kt_fuzz_case *out);

#endif
