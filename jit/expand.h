/* jit/expand: template -> PTX text + launch metadata + line map. A pure function of template sources and parameters:
 * no clock, locale, device or environment (KILN_TEMPLATE_DIR excepted) has a part in it. Knows nothing of CUDA.
 *
 * The template language is described in ptx_templates/README.md. */
#ifndef KN_JIT_EXPAND_H
#define KN_JIT_EXPAND_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- parameters: what a planner chose for one kernel -------------------------------------------------------- */

enum { KN_NAME_CAP = 32, KN_MAX_PARAMS = 96 };

/* A parameter's value: a 64-bit integer, or a name (dtype, operation, target: [A-Za-z_][A-Za-z0-9_]*). */
typedef struct kn_param {
    char name[KN_NAME_CAP];
    bool is_name;
    int64_t value;          /* when !is_name */
    char text[KN_NAME_CAP]; /* when is_name */
} kn_param;

/* Sorted by name, each name once, so that equal sets are equal bytes once serialised. Zero it to begin. Errors are
 * sticky: add in a row, kn_expand and kn_params_write report the first failure. */
typedef struct kn_params {
    int count;
    kn_status status;
    kn_param item[KN_MAX_PARAMS];
} kn_params;

void kn_params_set(kn_params *p, const char *name, int64_t value);
void kn_params_set_name(kn_params *p, const char *name, const char *text);
const kn_param *kn_params_find(const kn_params *p, const char *name);
/** "BM=128 T=bf16 ..." in sorted order: the canonical form that keys and logs use. */
kn_status kn_params_write(const kn_params *p, kn_buf *out);

/* ---- what comes out ------------------------------------------------------------------------------------------ */

enum { KN_MAX_KERNEL_ARGS = 64 };

/* One .param of the entry, as the PTX declares it. */
typedef struct kn_kernel_arg {
    char name[KN_NAME_CAP];
    uint32_t offset; /* byte offset in the parameter block */
    uint32_t size;   /* bytes: 4, 8, or 128 for a tensor map */
    uint32_t align;
} kn_kernel_arg;

/* Read back from the expanded PTX (.entry, .reqntid, .reqnctapercluster, .version, .target) and from #smem: the single
 * source for the launch. */
typedef struct kn_kernel_meta {
    char entry[160];          /* symbol of the kernel */
    char target[16];          /* "sm_90a" */
    uint32_t ptx_version;     /* 81 = 8.1 */
    uint32_t threads[3];      /* .reqntid (.maxntid if that is all there is) */
    uint32_t cluster[3];      /* .reqnctapercluster; 1,1,1 without */
    uint32_t smem_dynamic;    /* bytes of dynamic shared memory, from #smem */
    uint32_t smem_static;     /* bytes of .shared variables with a size */
    uint32_t grid_dependency; /* 1 if the text has griddepcontrol.wait: only then may a launch ask for PDL */
    uint32_t n_args;
    kn_kernel_arg arg[KN_MAX_KERNEL_ARGS];
    uint32_t ptx_lines;
} kn_kernel_meta;

/* Where an output line comes from. */
typedef struct kn_line_origin {
    uint32_t file;  /* index into kn_expansion.files */
    uint32_t line;  /* 1-based */
    uint32_t loops; /* offset into kn_expansion.loop_text of "ks=3 i=0, used at gemm.ptxt:141", 0 = "" */
} kn_line_origin;

typedef struct kn_expansion {
    char *ptx; /* NUL-terminated */
    size_t ptx_len;
    kn_kernel_meta meta;
    uint32_t n_lines;      /* lines of ptx */
    kn_line_origin *lines; /* [n_lines]; lines[i] describes PTX line i+1 */
    uint32_t n_files;
    char (*files)[64]; /* template names, "gemm_sm90.ptxt" */
    char *loop_text;   /* offset 0 is "" */
} kn_expansion;

enum { KN_EXPAND_LINT = 1, KN_EXPAND_LINEINFO = 2 };

/** Expand template `name` ("load_balance.ptxt"). Beside the caller's parameters every template sees the names `target`
 *  (a name, "sm_90a"), `target_ptx` (the lowest .version that target needs, 80 = 8.0) and `target_cc` (90).
 *  flags: KN_EXPAND_LINT turns lint findings into errors; KN_EXPAND_LINEINFO adds .file/.loc.
 *  KN_E_TEMPLATE with "FILE:LINE [i=3]: sentence" on failure; nothing is left allocated then. */
kn_status kn_expand(const char *name, const kn_params *params, const char *target, uint32_t flags, kn_expansion *out);
/* A text that takes the place of a template or library file. */
typedef struct kn_template_text {
    const char *name; /* "lib/activation_user.ptxi" */
    const char *text;
    size_t len;
} kn_template_text;

/** The same, with `instead` in the place of the file of its name. */
kn_status kn_expand_replacing(const char *name, const kn_params *params, const char *target, uint32_t flags,
                              const kn_template_text *instead, kn_expansion *out);
void kn_expansion_free(kn_expansion *x); /* a zeroed or freed one is fine */

/** "gemm_sm90.ptxt:141 [ks=3]" for a 1-based PTX line into `out`; "PTX line N" when the map does not reach. */
void kn_expansion_origin(const kn_expansion *x, uint32_t ptx_line, char *out, size_t cap);

/** The same map as text, one "ptx_line file:line [loops]" row per change, for KILN_DUMP and for cache metadata. */
kn_status kn_expansion_write_map(const kn_expansion *x, kn_buf *out);

/* ---- template sources ---------------------------------------------------------------------------------------- */

/** Source text of one template or library file: from KILN_TEMPLATE_DIR if that is set, else built in. *owned must be
 *  freed with kn_free if not NULL. */
kn_status kn_template_source(const char *name, const char **text, size_t *len, char **owned);

/** Visit `name` and every file it can include, directly or not, each once, in a fixed order: what a digest must cover.
 *  An #include whose name depends on a parameter counts with every choice that the parameter has. */
typedef kn_status kn_template_visit(void *user, const char *name, const char *text, size_t len);
kn_status kn_template_closure(const char *name, kn_template_visit *visit, void *user);

/** The parameter sets that a template's #example lines carry, in order: what lint, the assembler and the simulator try
 *  it with. `line` is the template line. */
typedef kn_status kn_example_visit(void *user, uint32_t line, const kn_params *params, const char *target);
kn_status kn_template_examples(const char *name, kn_example_visit *visit, void *user);

/** Names of the built-in templates and library files, NULL-ended, sorted. */
const char *const *kn_template_names(void);

/** Digest of the expander's own sources, fixed when Kiln is built; part of every cache key. */
const char *kn_expander_digest(void);

#endif
