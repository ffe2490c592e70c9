/* The parser's inside, shared by ptx_lex.c (characters), ptx_names.c (symbol table), ptx_operand.c (operands and their
 * fit to a row's signature), ptx_body.c (statements of a kernel) and ptx_parse.c (module level). */
#ifndef KN_SIM_PTX_PARSE_H
#define KN_SIM_PTX_PARSE_H

#include "sim/ptx_module.h"

enum {
    KN_PTX_MAX_OPERANDS = 12,
    KN_PTX_MAX_ELEMENTS = 256,
    KN_PTX_MAX_DEPTH = 32,    /* nested { } */
    KN_PTX_MAX_SLOTS = 65536, /* 32-bit registers of a kernel */
    KN_PTX_MAX_CODE = 4000000
};

/* Address of dynamic shared memory until the kernel's static size is known. */
#define KN_PTX_DYNAMIC (INT64_C(1) << 40)

/* What a name stands for. */
typedef enum kn_name_kind { KN_N_REG, KN_N_REG_RANGE, KN_N_VARIABLE, KN_N_LABEL } kn_name_kind;
typedef struct kn_name {
    const char *text;
    uint32_t len, hash;
    uint32_t next;              /* in its bucket, + 1 */
    uint8_t kind, space, bytes; /* REG: width, 0 = predicate */
    uint8_t depth;
    uint32_t slot, count; /* REG: first slot or predicate, registers of a range; LABEL: instruction */
    int64_t address;      /* VARIABLE */
} kn_name;

/* A branch target by name, resolved when its scope closes. */
typedef struct kn_fixup {
    kn_operand *operand;
    const char *text;
    uint32_t len, line;
    uint8_t depth;
} kn_fixup;

typedef struct kn_form { /* a mnemonic that has been decoded before */
    uint32_t hash;
    kn_insn insn; /* insn.text NULL: empty */
} kn_form;
enum { KN_FORMS = 1024, KN_NAME_BUCKETS = 4096, KN_IMM_BUCKETS = 1024 };

typedef struct kn_imm {
    struct kn_imm *next;
    uint64_t bits;
    uint32_t bytes;
    void *lanes;
} kn_imm;

typedef struct kn_ptx {
    const char *at, *end;
    uint32_t line;
    uint32_t insn_line; /* line that the statement being parsed starts on */
    kn_sim_origin *origin;
    void *origin_user;
    kn_sim_module *module;
    kn_entry *entry; /* the kernel being parsed */
    kn_name *name;
    uint32_t n_names, room_names;
    uint32_t bucket[KN_NAME_BUCKETS]; /* index + 1 */
    uint8_t depth;
    kn_fixup *fixup;
    uint32_t n_fixups, room_fixups;
    uint32_t room_code, room_entries;
    uint32_t smem_module; /* bytes of module-level .shared variables */
    uint32_t smem_align;  /* of dynamic shared memory */
    uint32_t room_variables;
    kn_form form[KN_FORMS];
    uint32_t n_forms;
    kn_imm *imm[KN_IMM_BUCKETS];
    kn_operand scratch[KN_PTX_MAX_ELEMENTS * 2];
    uint32_t n_scratch;
} kn_ptx;

/* ptx_lex.c */
kn_status kn_ptx_error(kn_ptx *p, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
void kn_ptx_skip(kn_ptx *p);         /* blanks and comments */
bool kn_ptx_is(kn_ptx *p, char c);   /* skip, then look */
bool kn_ptx_take(kn_ptx *p, char c); /* skip, consume if there */
kn_status kn_ptx_expect(kn_ptx *p, char c);
/** An identifier [A-Za-z_$%][A-Za-z0-9_$]*; false if there is none. `dots`: also .name and ::name parts. */
bool kn_ptx_word(kn_ptx *p, bool dots, const char **text, uint32_t *len);
bool kn_ptx_word_is(const char *text, uint32_t len, const char *want);
/** A directive ".name" is next: consume it. */
bool kn_ptx_directive(kn_ptx *p, const char **text, uint32_t *len);
typedef enum kn_literal { KN_LIT_INT, KN_LIT_F32, KN_LIT_F64 } kn_literal;
/** A number, maybe with a minus sign. Integers: negative ones in two's complement, *negative says so. */
kn_status kn_ptx_number(kn_ptx *p, kn_literal *kind, uint64_t *bits, bool *negative);
/** A non-negative integer in [0, max]. */
kn_status kn_ptx_count(kn_ptx *p, uint64_t max, const char *what, uint64_t *out);
char *kn_ptx_copy(kn_ptx *p, const char *text, uint32_t len); /* in the module's arena; NULL: out of memory */
uint32_t kn_ptx_hash(const char *text, uint32_t len);

/* ptx_names.c */
kn_status kn_ptx_declare(kn_ptx *p, const kn_name *name);
const kn_name *kn_ptx_find(kn_ptx *p, const char *text, uint32_t len);
/** A register by name, also one of a range: its slot and width (0: predicate). */
bool kn_ptx_register(kn_ptx *p, const char *text, uint32_t len, uint32_t *slot, uint8_t *bytes);
/** Forget the names declared at depths above `depth`. */
void kn_ptx_close_scope(kn_ptx *p, uint8_t depth);

/* ptx_operand.c */
kn_status kn_ptx_operand(kn_ptx *p, kn_operand *out);
/** Check operands against the row's signature and give immediates their bits. */
kn_status kn_ptx_fit(kn_ptx *p, kn_insn *i, kn_operand *op, uint32_t n);

/* ptx_body.c */
kn_status kn_ptx_body(kn_ptx *p); /* from behind '{' to its '}' */

/* ptx_variable.c */
kn_status kn_ptx_variable(kn_ptx *p, kn_space space, bool external); /* behind ".shared" and the like */
kn_status kn_ptx_registers(kn_ptx *p);                               /* behind ".reg" */
kn_status kn_ptx_parameters(kn_ptx *p);                              /* behind the kernel's '(' */

/** Grow an array kept by (pointer, room) to hold one more than n; memory by base/alloc.h. */
kn_status kn_ptx_grow(void **array, uint32_t *room, uint32_t n, size_t item, const char *what);

#endif
