/* jit/plan: from a problem to a plan: a program whose kernels are loaded, ready to be walked any number of times.
 *
 * Plans stand in a table of their engine under the problem as the call describes it (generic = 0); which variant of
 * the kernels a plan uses, exact or generic, was decided when it was made. A look-up that hits hashes and compares the
 * problem, allocates nothing, and takes no lock that is held while anything is built. */
#ifndef KN_JIT_PLAN_H
#define KN_JIT_PLAN_H

#include "jit/engine.h"
#include "jit/kernel.h"

enum { KN_PARAM_BYTES = 4096 }; /* most that a kernel's parameter block may have */

/* A slot of the parameter block that is filled in at the call. */
typedef struct kn_patch {
    uint16_t offset;
    uint8_t kind, arg, dim; /* as in kn_binding */
    int64_t value;
} kn_patch;

typedef struct kn_plan_launch {
    kn_kernel *kernel;
    uint32_t grid[3];
    bool dependent;
    uint32_t params_len, n_patches;
    unsigned char *params; /* constants in place, zeros elsewhere */
    kn_patch *patches;
} kn_plan_launch;

typedef struct kn_plan {
    const kn_op *op;
    kn_problem problem; /* its name in the table */
    bool generic;       /* which variant it became */
    uint64_t workspace_bytes;
    uint32_t n_launches, n_maps, n_slices, n_kernels;
    kn_plan_launch *launches;
    kn_map_spec *maps;
    kn_slice *slices;
    kn_kernel **kernels;        /* one reference each */
    struct kn_map_cache *cache; /* encoded tensor maps; NULL without maps */

    /* The rest belongs to plan.c. */
    struct kn_plan *next;
    uint64_t hash;
    atomic_uint_fast32_t refs; /* the table's among them */
    atomic_uint_fast64_t used;
    atomic_bool pinned;
} kn_plan;

kn_status kn_plan_table_new(struct kn_plan_table **out);
void kn_plan_table_free(kn_engine *e);

/** A reference to the plan for `p`, which has generic = 0; NULL if there is none yet. */
kn_plan *kn_plan_find(kn_engine *e, const kn_problem *p);
/** Make that plan. *fresh: it was new to the table. With `capturing` nothing is loaded: KN_E_CAPTURE if a kernel is
 *  missing. */
kn_status kn_plan_add(kn_engine *e, const kn_op *op, const kn_problem *p, bool capturing, kn_plan **out, bool *fresh);
void kn_plan_release(kn_engine *e, kn_plan *plan);
/** Keep the plan and its kernels for ever: a captured graph launches them. */
void kn_plan_pin(kn_engine *e, kn_plan *plan);

/** Run the operation's planner. p->generic chooses the variant. *out is zeroed first; it is large: allocate it. */
kn_status kn_plan_program(const kn_engine *e, const kn_op *op, const kn_problem *p, kn_program *out);
/** The same, and how the program's products were chosen: see kn_program.explain. */
kn_status kn_plan_explain(const kn_engine *e, const kn_op *op, const kn_problem *p, kn_program *out, kn_buf *explain);
/** Which variants a call of `p` may use, as the shape policy stands: bit 0 exact, bit 1 generic. */
uint32_t kn_plan_variants(const kn_engine *e, const kn_op *op);

#endif
