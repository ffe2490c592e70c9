/* Memory of one fuzz case. Every tensor lies in a block of its own, between two pages that nobody may touch, amid bytes
 * that must not change: those around it and those in the gaps of its strides. On a GPU the blocks are copied whole. */
#ifndef KILN_TOOL_FUZZ_MEMORY_H
#define KILN_TOOL_FUZZ_MEMORY_H

#include "fuzz/fuzz_case.h"

typedef struct kt_fuzz_block {
    unsigned char *host, *before; /* `before`: what it held when the call began */
    void *device;                 /* `host` itself where the device is the host */
    size_t bytes;
    void *map;
    size_t map_bytes;
} kt_fuzz_block;

typedef struct kt_fuzz_memory {
    const kt_fuzz_case *c;
    kt_library *lib;
    void *ctx;
    bool device_is_host;
    int32_t device_type, device_id;
    void *options; /* the operation's option struct */
    kt_tensors shapes;
    kt_fuzz_block block[KT_MAX_ARGS], workspace;
    int64_t stride[KT_MAX_ARGS][KT_MAX_RANK];
    DLTensor on_host[KT_MAX_ARGS], on_device[KT_MAX_ARGS];
    const void *host_args[KT_MAX_ARGS], *device_args[KT_MAX_ARGS]; /* what calls take: NULL where absent */
} kt_fuzz_memory;

/** Blocks for the case's tensors, values in the inputs and in the outputs that are added to, all else 0xFF. */
int kt_fuzz_memory_make(const kt_fuzz_case *c, kt_library *lib, void *ctx, kt_fuzz_memory *out);
/** A guarded workspace of as many bytes as the library asks for in the context m->ctx, in the place of an earlier one.
 */
int kt_fuzz_memory_workspace(kt_fuzz_memory *m);
void kt_fuzz_memory_free(kt_fuzz_memory *m);

/** The state before the call, with `poison` in every byte of the workspace and of outputs that are overwritten. */
int kt_fuzz_memory_reset(kt_fuzz_memory *m, unsigned char poison);
int kt_fuzz_memory_fetch(kt_fuzz_memory *m);

bool kt_fuzz_is_output(const kt_fuzz_memory *m, int arg);
/** KT_CHECK and a sentence if an input, a gap or a byte around a tensor was written to; *input: it was an input. */
int kt_fuzz_memory_check(const kt_fuzz_memory *m, bool *input);
/** The elements of an argument, compact; free them. */
void *kt_fuzz_memory_compact(const kt_fuzz_memory *m, int arg);

#endif
