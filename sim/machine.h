/* The simulator's inside: decoded instructions, registers, warps, CTAs, clusters, memory with its checks, pending
 * asynchronous work. Everything that executes instructions sees this file; nothing outside sim/ does.
 *
 * How a kernel runs. A cluster is the unit of work: one worker (kn_machine) runs its warps in turn on one host thread,
 * so code in here needs no locks except for global memory shared between workers. The scheduler (schedule.c) picks a
 * warp by seeded choice, runs it for a seeded number of instructions, and between two quanta may complete one pending
 * asynchronous operation, also by seeded choice.
 *
 * An instruction is one C function, a kn_exec, named by its row in isa.def. It handles all lanes of `active` at once:
 *   KN_OK          done; the scheduler moves on to the next instruction.
 *   KN_NOT_READY   cannot complete now (set w->g->wait to say why). It is called again, with the same lanes, after the
 *                  next kn_wake(). An instruction that works in steps keeps its progress in w->g->stage and ->ticket.
 *   KN_YIELD       done, but it was a poll that failed: let others run before this warp goes on.
 *   anything else  a fault, made with kn_fault(): the run stops. */
#ifndef KN_SIM_MACHINE_H
#define KN_SIM_MACHINE_H

#include "base/arena.h"
#include "base/status.h"
#include "sim/sim.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { KN_NOT_READY = -1, KN_YIELD = -2 };
enum { KN_LANES = 32, KN_MAX_WARPS = 32, KN_BARRIERS = 16, KN_MAX_CLUSTER = 16 };
#define KN_FULL_MASK 0xffffffffu

typedef struct kn_machine kn_machine;
typedef struct kn_warp kn_warp;
typedef struct kn_cta kn_cta;
typedef struct kn_cluster kn_cluster;
typedef struct kn_insn kn_insn;
typedef struct kn_operand kn_operand;
typedef struct kn_async kn_async;
typedef struct kn_run kn_run; /* one launch; grid.c */

/* ---- types and modifiers ------------------------------------------------------------------------------------- */

/* X(id, text, bytes, kind): kind b bits, u unsigned, s signed, f floating, p predicate */
#define KN_TYPES(X)                                                                                                    \
    X(pred, "pred", 0, 'p')                                                                                            \
    X(b8, "b8", 1, 'b')                                                                                                \
    X(b16, "b16", 2, 'b')                                                                                              \
    X(b32, "b32", 4, 'b')                                                                                              \
    X(b64, "b64", 8, 'b')                                                                                              \
    X(b128, "b128", 16, 'b')                                                                                           \
    X(u8, "u8", 1, 'u')                                                                                                \
    X(u16, "u16", 2, 'u')                                                                                              \
    X(u32, "u32", 4, 'u')                                                                                              \
    X(u64, "u64", 8, 'u')                                                                                              \
    X(s8, "s8", 1, 's')                                                                                                \
    X(s16, "s16", 2, 's')                                                                                              \
    X(s32, "s32", 4, 's')                                                                                              \
    X(s64, "s64", 8, 's')                                                                                              \
    X(f16, "f16", 2, 'f')                                                                                              \
    X(f16x2, "f16x2", 4, 'f')                                                                                          \
    X(bf16, "bf16", 2, 'f')                                                                                            \
    X(bf16x2, "bf16x2", 4, 'f')                                                                                        \
    X(tf32, "tf32", 4, 'f')                                                                                            \
    X(f32, "f32", 4, 'f')                                                                                              \
    X(f64, "f64", 8, 'f')                                                                                              \
    X(u16x2, "u16x2", 4, 'u')                                                                                          \
    X(s16x2, "s16x2", 4, 's')                                                                                          \
    X(e4m3x2, "e4m3x2", 2, 'f')                                                                                        \
    X(e5m2x2, "e5m2x2", 2, 'f')

typedef enum kn_type {
    KN_T_none,
#define KN_TYPE_ENUM(id, text, bytes, kind) KN_T_##id,
    KN_TYPES(KN_TYPE_ENUM)
#undef KN_TYPE_ENUM
        KN_T_COUNT
} kn_type;

extern const uint8_t kn_type_bytes[KN_T_COUNT];
extern const char kn_type_kind[KN_T_COUNT];

/* State spaces, also of addresses behind a generic one. */
typedef enum kn_space {
    KN_SPACE_GENERIC, /* none written */
    KN_SPACE_GLOBAL,
    KN_SPACE_SHARED,         /* .shared, .shared::cta */
    KN_SPACE_SHARED_CLUSTER, /* .shared::cluster */
    KN_SPACE_PARAM,
    KN_SPACE_LOCAL,
    KN_SPACE_CONST
} kn_space;

/* Classes of modifiers. An instruction keeps one token of each class in i->m[class] (0 = none written); types go to
 * i->type[] in the order written, numbers of a shape .m64n128k16 to i->shape[], spaces to i->space[]. */
typedef enum kn_mod_class {
    KN_M_RND,       /* rn rz rm rp rna rni rzi rmi rpi, approx, full */
    KN_M_FTZ,       /* ftz, noftz */
    KN_M_SAT,       /* sat, satfinite */
    KN_M_RELU,      /* relu */
    KN_M_NAN,       /* NaN */
    KN_M_CMP,       /* eq .. , also lo hi wide of mul/mad */
    KN_M_OP,        /* and or xor add inc min ... of atom/red/redux/setp/vote/shfl modes */
    KN_M_SEM,       /* weak volatile relaxed acquire release acq_rel sc */
    KN_M_SCOPE,     /* cta cluster gpu sys, also gl of membar */
    KN_M_CACHE,     /* ca cg cs lu cv wb wt: no effect */
    KN_M_HINT,      /* L2::cache_hint: one more operand, the policy */
    KN_M_NC,        /* nc */
    KN_M_VEC,       /* v2 v4 */
    KN_M_ALIGNED,   /* aligned: all lanes of the warp together, checked by the scheduler */
    KN_M_SYNC,      /* sync, async */
    KN_M_COUNT4,    /* x1 x2 x4 */
    KN_M_TRANS,     /* trans */
    KN_M_WORD,      /* words that only name a form (arrive, wait, tensor, ...): checked by the pattern; last one kept */
    KN_M_DIM,       /* 1d .. 5d */
    KN_M_LAYOUT,    /* row col */
    KN_M_MULTICAST, /* multicast::cluster */
    KN_M_COMPLETION, /* mbarrier::complete_tx::bytes, bulk_group */
    KN_M_CLASSES
} kn_mod_class;

/* Tokens: X(id, text, class). isa.c turns text into KN_TOK_<id>. Add a line to add a modifier. */
typedef enum kn_token {
    KN_TOK_NONE,
#define KN_TOKEN(id, text, cls) KN_TOK_##id,
#include "sim/tokens.def"
#undef KN_TOKEN
    KN_TOK_COUNT
} kn_token;

/* ---- decoded instructions -------------------------------------------------------------------------------------- */

typedef enum kn_operand_kind {
    KN_O_NONE,
    KN_O_REG,  /* also special registers with a value fixed at the start of the warp */
    KN_O_PRED, /* predicate register, perhaps negated */
    KN_O_IMM,
    KN_O_SYMBOL, /* address of a variable: imm; own shared memory if space is SHARED */
    KN_O_CLOCK,  /* %clock, %clock64, %globaltimer...: imm says which (KN_CLOCK_*) */
    KN_O_VEC,    /* {a, b, ...}: n elements at elem */
    KN_O_ADDR,   /* [base + imm], [symbol + imm], [base, {c0, c1}] (elem: the coordinates, n of them) */
    KN_O_LABEL,  /* slot: index of the target instruction */
    KN_O_SINK,   /* _ */
    KN_O_PAIR    /* a|b: n = 2 elements at elem */
} kn_operand_kind;

#define KN_NO_SLOT 0xffffffffu

struct kn_operand {
    uint8_t kind;
    uint8_t bytes;          /* REG, IMM: width 1, 2, 4, 8; ADDR: width of the base register */
    uint8_t n;              /* VEC, PAIR, ADDR: elements */
    uint8_t space;          /* SYMBOL, ADDR with a symbol: kn_space of it */
    bool negate;            /* PRED */
    uint32_t slot;          /* REG, PRED: index; ADDR: base register or KN_NO_SLOT; LABEL: instruction */
    int64_t imm;            /* IMM: its bits; SYMBOL, ADDR: displacement */
    const void *lanes;      /* IMM: 32 copies, uint32_t[32] or (8 bytes wide) uint64_t[32] */
    const kn_operand *elem; /* VEC, PAIR, ADDR */
};

typedef kn_status kn_exec(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active);

/* Called once when an instruction has been decoded and its operands fit the row's signature: refuse what the signature
 * cannot say with kn_insn_error, and specialise (i->exec, i->aux). */
typedef kn_status kn_prep(kn_insn *i);

/* Row flags. */
enum {
    KN_I_ORDER = 1 << 0,  /* an ordering instruction: a site of the mutation test */
    KN_I_SERIAL = 1 << 1, /* CTAs may communicate through it: CTAs are then interleaved on one host thread */
    KN_I_BRANCH = 1 << 2, /* sets the pc itself: bra, exit, ret */
    KN_I_WIDER = 1 << 3,  /* registers wider than the type are allowed (ld, st, cvt) */
};

typedef struct kn_isa_row {
    const char *op, *pattern, *operands;
    kn_exec *exec;
    kn_prep *prep;
    uint32_t flags;
} kn_isa_row;

struct kn_insn {
    kn_exec *exec;
    const kn_operand *op;
    uint8_t n_op;
    uint8_t guard;    /* 0 none, 1 @p, 2 @!p */
    uint8_t type[4];  /* kn_type, in the order written */
    uint8_t space[2]; /* kn_space, in the order written */
    uint8_t vec;      /* 1, 2, 4 */
    uint8_t m[KN_M_CLASSES];
    uint16_t shape[3];   /* m, n, k */
    uint32_t guard_slot; /* predicate */
    uint32_t flags;      /* the row's KN_I_* */
    uint32_t line;       /* 1-based PTX line */
    uint64_t aux;        /* free for kn_prep */
    const char *text;    /* "ld.global.v4.b32" */
    const kn_isa_row *row;
};

/** A refusal while decoding: KN_E_SIM "instruction: sentence"; the parser puts the line in front. */
kn_status kn_insn_error(const kn_insn *i, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* ---- addresses --------------------------------------------------------------------------------------------------
 * Global: host pointers. Shared (32 bits): rank << 24 | offset, in .shared::cta and .shared::cluster alike, so that an
 * address names its CTA of the cluster; the first KN_SMEM_RESERVED bytes belong to the system as on the hardware.
 * Generic addresses of the other spaces lie in windows that no host pointer reaches. */
enum { KN_SMEM_RESERVED = 1024, KN_SMEM_RANK_SHIFT = 24 };
#define KN_SMEM_OFFSET(addr) ((uint32_t)(addr)&0xffffffu)
#define KN_SMEM_RANK(addr) ((uint32_t)(addr) >> KN_SMEM_RANK_SHIFT)
#define KN_WINDOW_SHARED (UINT64_C(1) << 56)
#define KN_WINDOW_LOCAL (UINT64_C(2) << 56)
#define KN_WINDOW_PARAM (UINT64_C(3) << 56)
#define KN_WINDOW_MASK (UINT64_C(0xff) << 56)

/* Shadow of shared memory, one byte for each byte. */
enum {
    KN_SH_INIT = 1,     /* has been written */
    KN_SH_INFLIGHT = 2, /* an asynchronous write is under way or has not been waited for: neither read nor write */
    KN_SH_OBJECT = 4,   /* part of an mbarrier: ordinary accesses are refused */
    KN_SH_PINNED = 8    /* an asynchronous operation reads it: no write */
};

/* ---- warps ------------------------------------------------------------------------------------------------------ */

enum { KN_G_RUN, KN_G_BLOCKED, KN_G_ALIGN };

/* Lanes of a warp that stand at the same instruction. */
typedef struct kn_group {
    uint32_t pc, mask;
    uint8_t state;     /* KN_G_*: ALIGN = at an aligned instruction, waits for the warp's other lanes */
    uint8_t stage;     /* progress of the instruction at pc; 0 at its start, reset when it is done */
    uint64_t ticket;   /* free for that instruction while stage != 0 */
    uint64_t seen;     /* cluster->epoch when it blocked */
    uint32_t spins;    /* backward branches since another group of the warp had its turn */
    const char *wait;  /* what it waits for (static text), for the deadlock report */
    uint64_t wait_arg; /* and a number to print with it */
} kn_group;

struct kn_warp {
    kn_cta *cta;
    uint32_t id;       /* in its CTA */
    uint32_t exists;   /* lanes that have a thread */
    uint32_t live;     /* lanes that have not exited */
    kn_group *g;       /* the group that executes now */
    uint32_t n_groups; /* 0: the warp is done */
    kn_group group[KN_LANES];
    /* Registers: regs + slot * 32 is uint32_t[32]; a 64-bit register is uint64_t[32] over two slots; 8- and 16-bit
     * ones keep their bits at the bottom of 32, the rest zero. def[slot]: lanes that have been written. */
    uint32_t *regs, *def;
    uint32_t *pred, *pred_def; /* predicate p of lane l: pred[p] >> l & 1 */
    /* Registers owned by an asynchronous operation. Whoever sets hold also clears def (KN_HOLD_ALL) so that reads take
     * the slow path, which explains. */
    uint8_t *hold; /* per slot: KN_HOLD_* */
    uint32_t n_holds;
    uint8_t *local, *local_def; /* .local: [lane][entry->local_bytes] */
    uint64_t clock;
    uint64_t n_executed;
    struct kn_cp_async *cp; /* copy.c: this warp's cp.async groups */
    void *units;            /* wgmma groups, bulk groups: owned by the units' files */
    void *hb;               /* happens.c */
};
enum {
    KN_HOLD_NONE,
    KN_HOLD_WRITE, /* source of a running operation */
    KN_HOLD_ALL,   /* its accumulator */
    KN_HOLD_WATCH  /* free, but an access is reported: kn_wgmma_touched */
};
/** exec_wgmma.c: a register of wgmma is read or written by an ordinary instruction. */
void kn_wgmma_touched(kn_warp *w, uint32_t slot);

#define KN_BARRIER_ALL 0xffffffffu /* as `expected`: all warps that have not exited */

typedef struct kn_barrier {
    uint32_t expected;                    /* threads of the phase under way */
    uint32_t arrived;                     /* threads */
    uint64_t phase;                       /* completed times */
    uint32_t red_and, red_or, red_pop;    /* reduction under way */
    uint32_t last_and, last_or, last_pop; /* result of the completed phase */
    void *hb[2];                          /* happens.c: clocks that arrivals release into, of even and odd phases */
} kn_barrier;

struct kn_cta {
    kn_cluster *cluster;
    uint32_t rank; /* in the cluster */
    uint32_t id[3];
    uint8_t *smem, *shadow; /* [smem_bytes], offset 0 = start of the reserved part */
    uint32_t smem_bytes;
    uint32_t n_warps, live_warps;
    uint32_t live_threads;
    kn_warp *warps;
    kn_barrier bar[KN_BARRIERS];
    uint32_t maxnreg_pool; /* registers for setmaxnreg: owned by the units' files */
    void *units;
    void *hb;
};

struct kn_cluster {
    kn_run *run;
    uint32_t index; /* in the grid */
    uint32_t n_ctas, live_ctas;
    kn_cta *ctas;
    kn_warp *warps; /* of all its CTAs, CTA by CTA */
    uint32_t n_warps;
    uint64_t epoch; /* bumped by kn_wake: blocked instructions are tried again */
    kn_async **pending;
    uint32_t n_pending, room_pending;
    uint64_t next_order;
    uint64_t idle; /* slices in a row without progress (grid.c) */
    kn_barrier cluster_bar;
    kn_arena arena; /* lives as long as the cluster */
    void *units;
    void *hb;
};

/* ---- the worker ------------------------------------------------------------------------------------------------- */

typedef struct kn_span { /* a checked stretch of global memory, cached for each instruction */
    uint64_t lo, hi;     /* [lo, hi) */
    uint8_t *shadow;     /* shadow of lo, or NULL: all initialised */
    bool writable;
} kn_span;
enum { KN_SPANS = 512 };

struct kn_machine {
    kn_run *run;
    const struct kn_entry *entry;
    kn_cluster *cluster;
    uint64_t rng;
    uint64_t clock; /* instructions executed by this worker */
    kn_sim_stats stats;
    kn_span span[2 * KN_SPANS]; /* by instruction index; reads, then writes */
    const struct kn_hb_ops *hb; /* NULL: no ordering checks */
};

/** A seeded choice in [0, n). n > 0. */
static inline uint32_t kn_choose(kn_machine *m, uint32_t n) {
    m->rng ^= m->rng << 13;
    m->rng ^= m->rng >> 7;
    m->rng ^= m->rng << 17;
    return (uint32_t)(((m->rng >> 32) * n) >> 32);
}

/** State has changed that a blocked instruction of this cluster may be waiting for. */
static inline void kn_wake(kn_cluster *c) {
    c->epoch++;
}

/** A fault at instruction `i` of warp `w`, lane or -1: KN_E_SIM "template line: CTA, warp, lane: instruction: ...". */
kn_status kn_fault(kn_machine *m, const kn_warp *w, const kn_insn *i, int lane, const char *fmt, ...)
    __attribute__((format(printf, 5, 6), cold));

/* ---- operands at run time --------------------------------------------------------------------------------------- */

static inline uint32_t *kn_reg32(kn_warp *w, uint32_t slot) {
    return w->regs + (size_t)slot * KN_LANES;
}
static inline uint64_t *kn_reg64(kn_warp *w, uint32_t slot) {
    return (uint64_t *)(void *)kn_reg32(w, slot);
}

/** Explains why `slot` cannot be read or written; KN_E_SIM. */
kn_status kn_register_fault(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t lanes);

/** *out = 32 values of a 32-bit (or narrower) operand: a register, an immediate, a special register, the address of a
 *  variable (`room` is used where a value must be made). Faults on lanes of `mask` that were never written. */
kn_status kn_src32(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask, uint32_t room[32],
                   const uint32_t **out);
/** The same for 64 bits; narrower registers are refused at decode time. */
kn_status kn_src64(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask, uint64_t room[32],
                   const uint64_t **out);
/** Lanes of `mask` for which a predicate operand is true. */
kn_status kn_src_pred(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask, uint32_t *out);

/** Write lanes of `mask`. SINK operands are fine. Values wider than the register are cut to its width. */
kn_status kn_put32(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask,
                   const uint32_t v[32]);
kn_status kn_put64(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask,
                   const uint64_t v[32]);
kn_status kn_put_pred(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask, uint32_t bits);

/** Addresses of an ADDR operand, base + displacement (for .shared: with the rank bits), 64 bits each. */
kn_status kn_src_addr(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask,
                      uint64_t out[32]);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

typedef enum kn_access_kind { KN_READ = 1, KN_WRITE = 2, KN_ATOMIC = 3 } kn_access_kind;

/** Resolve a generic address: its space, and the address in it (shared: 32 bits with rank; param, local: offset). */
kn_space kn_resolve(uint64_t generic, uint64_t *addr);

/** `bytes` of shared memory of the CTA that `addr` names: bounds, alignment, live CTA. No look at the shadow. */
kn_status kn_shared_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t addr, uint32_t bytes,
                       uint32_t align, kn_cta **cta, uint32_t *offset);
/** Shadow checks for one access of the generic proxy (READ: initialised, not in flight; WRITE: also not pinned). */
kn_status kn_shared_check(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_cta *cta, uint32_t offset,
                          uint32_t bytes, kn_access_kind kind);

/** `bytes` of global memory at `addr`, inside one extent without gaps, writable if kind says so. READ of bytes that are
 *  still poison faults; WRITE marks them written. The data are at (void *)addr. */
kn_status kn_global_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t addr, uint32_t bytes,
                       uint32_t align, kn_access_kind kind);

/** The launch's parameter block at `offset`: bounds only. */
kn_status kn_param_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t offset, uint32_t bytes,
                      const uint8_t **data);

/* ---- asynchronous operations -------------------------------------------------------------------------------------
 * kn_async_begin queues an operation of the cluster; the scheduler calls step when its seeded choice falls on it:
 *   KN_OK          finished: it is taken off the queue and freed (call kn_wake if somebody may wait for it).
 *   KN_NOT_READY   not yet (an operation that must come first is pending), or only part of it was done: then it calls
 *                  kn_wake, so that the scheduler sees progress.
 * Whether completions come early, late or mixed is part of the seed; when nothing else can run, they come. */
typedef kn_status kn_async_step(kn_machine *m, kn_async *a);
struct kn_async {
    kn_async_step *step;
    kn_cta *cta; /* issuer */
    kn_warp *warp;
    const kn_insn *insn;
    int lane;
    uint64_t order; /* issue order in the cluster */
    void *data;     /* `bytes` zeroed bytes, 16-byte aligned */
};
kn_status kn_async_begin(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_async_step *step, size_t bytes,
                         kn_async **out);

/* ---- ordering checks (happens.c) ---------------------------------------------------------------------------------
 * The core calls these; a unit calls what it needs. Clocks are per warp. An object's clock hangs on a void * in the
 * object (zero at its start); memory for it comes from the cluster's arena. */
typedef struct kn_access {
    uint8_t space;  /* KN_SPACE_GLOBAL (host address) or KN_SPACE_SHARED_CLUSTER (address with rank) */
    uint8_t kind;   /* kn_access_kind */
    uint8_t sem;    /* KN_TOK_weak (or 0), volatile, relaxed, acquire, release, acq_rel */
    uint8_t scope;  /* KN_TOK_cta .. sys, 0 */
    uint32_t bytes; /* each lane */
    uint32_t mask;
    const uint64_t *addr; /* [32] */
} kn_access;

typedef struct kn_hb_ops {
    kn_status (*run_begin)(kn_run *run, void **state); /* per launch; state is run->hb, shared by all workers */
    void (*run_end)(kn_run *run, void *state);
    kn_status (*cluster_begin)(kn_machine *m, kn_cluster *c); /* fills the hb fields of cluster, CTAs, warps */
    void (*cluster_end)(kn_machine *m, kn_cluster *c);
    /* A ld/st/atom/red/ldmatrix/stmatrix/cp.async access, after all other checks and before the data move. Release and
     * acquire on an address are part of it (sem). */
    kn_status (*access)(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_access *a);
    kn_status (*release)(kn_machine *m, kn_warp *w, void **object);    /* barrier arrival */
    kn_status (*acquire)(kn_machine *m, kn_warp *w, void **object);    /* barrier passed */
    kn_status (*fence)(kn_machine *m, kn_warp *w, const kn_insn *i);   /* fence.*, membar.*: reads i->m */
    kn_status (*warp_sync)(kn_machine *m, kn_warp *w, uint32_t lanes); /* bar.warp.sync: lanes have met */
    kn_status (*warp_exit)(kn_machine *m, kn_warp *w);
} kn_hb_ops;

/* ---- one launch -------------------------------------------------------------------------------------------------- */

struct kn_run {
    const kn_sim_module *module;
    const struct kn_entry *entry;
    const kn_sim_launch *launch;
    uint32_t clusters[3], n_clusters;
    uint32_t n_warps;         /* a CTA */
    uint32_t smem_bytes;      /* a CTA, the reserved part included */
    const uint8_t *params;    /* copy, entry->params_bytes */
    struct kn_global *global; /* extents.c */
    uint64_t budget_used;     /* atomic */
    bool serial;              /* CTAs communicate: one worker interleaves the clusters */
    void *hb;
};

#endif
