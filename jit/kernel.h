/* jit/kernel: from a template and its parameters to a loaded kernel.
 *
 * A kernel is named by its key: canonical bytes of everything it is made from. In one engine a key is loaded once; in
 * one process it is built by one thread at a time, while other keys build in parallel. */
#ifndef KN_JIT_KERNEL_H
#define KN_JIT_KERNEL_H

#include "jit/engine.h"

/* How far to go for a kernel. */
typedef enum kn_want {
    KN_WANT_LOADED, /* only if this engine has it loaded: nothing is allocated on the device */
    KN_WANT_CACHED, /* load it if a cache layer has it */
    KN_WANT_BUILT   /* build it if need be */
} kn_want;

/* What is kept of a kernel beside its code; stands in its cache entry as text. */
typedef struct kn_kernel_info {
    kn_kernel_meta meta;
    kn_asm_report report;    /* zero where no assembler was asked */
    char assembler[160];     /* "nvjitlink 13000 -O3"; "ptx" where PTX is run */
    uint32_t driver_version; /* oldest driver that can load it; 0: any */
    kn_digest ptx;           /* of the expanded text */
} kn_kernel_info;

/* What a kernel is made from. */
typedef struct kn_key_inputs {
    const char *template_name, *target;
    const kn_params *params;
    uint32_t expand_flags;
    bool ptx; /* the payload is PTX text */
} kn_key_inputs;

typedef struct kn_kernel {
    kn_kernel_info info;
    kn_module *module;
    bool built;          /* in this process, rather than found in a cache */
    const kn_blob *blob; /* holds the line map; NULL where no launch needs it */

    /* The rest belongs to kernel.c. */
    struct kn_kernel *next;
    char *key;
    size_t key_len;
    kn_digest digest;
    uint32_t refs, state, wanted;
    uint64_t used; /* the table's clock at the last release */
    bool pinned;   /* a captured graph may launch it */
    kn_status status;
    char message[512];
} kn_kernel;

kn_status kn_kernel_table_new(struct kn_kernel_table **out);
/** Unloads everything but what is pinned. */
void kn_kernel_table_free(kn_engine *e);

/** A reference to the kernel, loaded; *out NULL with KN_OK if it is not to be had that way. */
kn_status kn_kernel_acquire(kn_engine *e, const kn_kernel_spec *spec, kn_want want, kn_kernel **out);
/** Give a reference back. The last one leaves the kernel to kn_kernel_collect. */
void kn_kernel_release(kn_engine *e, kn_kernel *k);
/** Never unload it, not even with the engine. */
void kn_kernel_pin(kn_engine *e, kn_kernel *k);
/** Unload kernels without references, those unused longest first, until at most `keep` are loaded. */
void kn_kernel_collect(kn_engine *e, uint32_t keep);
uint32_t kn_kernel_count(kn_engine *e);

/* ---- building ---------------------------------------------------------------------------------------------------- */

/** The assembler that builds for `e`, as cache entries name it: "nvjitlink 13000 OPTIONS", "driver 13000 OPTIONS", or
 *  "ptx" where the device runs PTX. `load`: the assembler will be used. Otherwise what is known of it without loading a
 *  library is enough, and "none" (with KN_OK) where there is none. */
kn_status kn_kernel_assembler(kn_engine *e, bool load, char out[160]);
/** The nvJitLink that builds for `e`; KN_E_UNAVAILABLE and why where it is not there or must not be used. */
kn_status kn_kernel_nvjitlink(const kn_engine *e, const kn_assembler_id **out);
/** May `e` load code of this assembler, named as in cache entries? KN_E_UNAVAILABLE and why not. */
kn_status kn_kernel_check_assembler(const kn_engine *e, const char *text);
/** Make the cache directory's note agree with the nvJitLink that is loaded. */
void kn_kernel_note_assembler(kn_engine *e);
/** Expand, assemble and publish. One thread of the process at a time builds a key, the others get its blob. */
kn_status kn_kernel_build(kn_engine *e, const kn_key_inputs *in, const kn_key *key, const kn_blob **out, bool *mine);
/** Expand and, unless PTX is what runs and no assembler is at hand, assemble, without the cache. `cubin` may be NULL.
 */
kn_status kn_kernel_make(kn_engine *e, const kn_key_inputs *in, kn_expansion *x, kn_kernel_info *info, void **cubin,
                         size_t *cubin_len);

/** What the engine makes the kernel from. */
static inline kn_key_inputs kn_kernel_inputs(const kn_engine *e, const kn_kernel_spec *spec) {
    return (kn_key_inputs){.template_name = spec->template_name,
                           .target = e->backend->target->name,
                           .params = &spec->params,
                           .expand_flags = e->expand_flags,
                           .ptx = e->backend->runs_ptx};
}

/* ---- keys and metadata, also for `kiln cache verify` ------------------------------------------------------------- */

kn_status kn_kernel_key(const kn_key_inputs *in, kn_key *out);
/** Take a key's bytes apart and expand again what it names. KN_E_FORMAT if it is no such key, KN_E_UNSUPPORTED if other
 *  templates or another expander made it. */
kn_status kn_kernel_reexpand(const void *key, size_t key_len, kn_expansion *out);

kn_status kn_kernel_info_write(const kn_kernel_info *info, kn_buf *out);
kn_status kn_kernel_info_read(const kn_blob *blob, kn_kernel_info *out);

#endif
