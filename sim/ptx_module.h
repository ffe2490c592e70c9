/* What the parser makes: a module of kernels, each decoded into an array of instructions. Immutable once parsed. */
#ifndef KN_SIM_PTX_MODULE_H
#define KN_SIM_PTX_MODULE_H

#include "sim/machine.h"

typedef struct kn_entry_param {
    const char *name;
    uint32_t offset, bytes;
} kn_entry_param;

/* Special registers with a value fixed for the life of a warp. */
typedef enum kn_special {
    KN_S_TID_X,
    KN_S_TID_Y,
    KN_S_TID_Z,
    KN_S_NTID_X,
    KN_S_NTID_Y,
    KN_S_NTID_Z,
    KN_S_CTAID_X,
    KN_S_CTAID_Y,
    KN_S_CTAID_Z,
    KN_S_NCTAID_X,
    KN_S_NCTAID_Y,
    KN_S_NCTAID_Z,
    KN_S_LANEID,
    KN_S_WARPID,
    KN_S_NWARPID,
    KN_S_SMID,
    KN_S_NSMID,
    KN_S_GRIDID,
    KN_S_LANEMASK_EQ,
    KN_S_LANEMASK_LE,
    KN_S_LANEMASK_LT,
    KN_S_LANEMASK_GE,
    KN_S_LANEMASK_GT,
    KN_S_CLUSTERID_X,
    KN_S_CLUSTERID_Y,
    KN_S_CLUSTERID_Z,
    KN_S_NCLUSTERID_X,
    KN_S_NCLUSTERID_Y,
    KN_S_NCLUSTERID_Z,
    KN_S_CLUSTER_CTAID_X,
    KN_S_CLUSTER_CTAID_Y,
    KN_S_CLUSTER_CTAID_Z,
    KN_S_CLUSTER_NCTAID_X,
    KN_S_CLUSTER_NCTAID_Y,
    KN_S_CLUSTER_NCTAID_Z,
    KN_S_CLUSTER_CTARANK,
    KN_S_CLUSTER_NCTARANK,
    KN_S_DYNAMIC_SMEM,
    KN_S_TOTAL_SMEM,
    KN_S_AGGR_SMEM,
    KN_S_COUNT
} kn_special;

/* Special registers that change while a warp runs (KN_O_CLOCK, operand.imm). */
enum { KN_CLOCK, KN_CLOCK_HI, KN_CLOCK64, KN_GLOBALTIMER, KN_GLOBALTIMER_LO, KN_GLOBALTIMER_HI };

typedef struct kn_entry {
    const char *name;
    kn_insn *code;
    uint32_t n_code;
    uint32_t n_slots, n_preds;         /* 32-bit register slots, predicates */
    uint32_t special_slot[KN_S_COUNT]; /* KN_NO_SLOT: not used */
    kn_entry_param *param;
    uint32_t n_params, params_bytes;
    uint32_t reqntid[3], maxntid[3], cluster[3]; /* zeros: not given */
    uint32_t smem_static;                        /* bytes behind the reserved part, alignment holes included */
    uint32_t smem_dynamic; /* offset at which dynamic shared memory starts, reserved part included */
    uint32_t local_bytes;  /* a thread */
    bool serial;           /* has an instruction through which CTAs may communicate */
} kn_entry;

typedef struct kn_module_variable {
    uint8_t *data;
    uint64_t bytes;
} kn_module_variable;

struct kn_sim_module {
    kn_arena arena;
    kn_entry *entry;
    uint32_t n_entries;
    kn_module_variable *variable; /* .const and .global variables, read-only; their addresses are host pointers */
    uint32_t n_variables;
    char target[16];
    uint32_t ptx_version;
};

#endif
