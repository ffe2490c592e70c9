/* jit/expand, inside: the types that the expander's files share. Nothing outside jit/expand* includes this but its
 * tests.
 *
 * One expansion goes through three stages:
 *   parse  (expand_lex, expand_expr, expand_parse)  a source file -> a tree of nodes; done once for each file
 *   run    (expand_run, expand_eval, expand_regs)   walks the tree with the parameters' values and writes PTX lines
 *   finish (expand_meta, expand_linemap, expand_lint) reads the finished text back
 * Everything that a stage builds lives in the expansion's arena; every cap below exists so that any input terminates.
 */
#ifndef KN_JIT_EXPAND_INTERNAL_H
#define KN_JIT_EXPAND_INTERNAL_H

#include "base/arena.h"
#include "base/buf.h"
#include "jit/expand.h"
#include "jit/target.h"

enum {
    KN_EX_MAX_OUTPUT = 16 << 20, /* bytes of PTX */
    KN_EX_MAX_SOURCE = 4 << 20,  /* bytes of one source file */
    KN_EX_MAX_ARENA = 256 << 20, /* bytes of trees and values */
    KN_EX_MAX_STEPS = 1 << 20,   /* nodes executed */
    KN_EX_MAX_FILES = 64,
    KN_EX_MAX_NEST = 32,      /* #for/#if/#macro inside each other; parentheses of an expression */
    KN_EX_MAX_USES = 32,      /* macros inside macros while running */
    KN_EX_MAX_OPERANDS = 512, /* nodes of one expression */
    KN_EX_MAX_TEXT = 16384,   /* bytes of a text value */
    KN_EX_MAX_REGS = 65536,   /* registers of one array */
    KN_EX_MAX_ARGS = 32       /* arguments of a macro */
};

typedef struct kn_ex kn_ex;

/* ---- values -------------------------------------------------------------------------------------------------- */

/* An exact rational: lowest terms, d > 0. Only f32(), f64(), f16() and bf16() turn it into bits. */
typedef struct kn_ex_rat {
    __int128 n, d;
} kn_ex_rat;

typedef struct kn_ex_array {
    const char *prefix; /* "%acc": element i is prefix, then i */
    uint32_t prefix_len;
    int64_t count;
} kn_ex_array;

enum { KN_EX_INT, KN_EX_RAT, KN_EX_TEXT, KN_EX_REGS };
/* How a list of registers prints: a whole array does not, a slice prints as "a, b", [*] as "{a, b}". */
enum { KN_EX_WHOLE, KN_EX_BODY, KN_EX_BRACED };

typedef struct kn_ex_val {
    uint8_t kind;
    uint8_t style; /* KN_EX_REGS */
    uint32_t len;  /* KN_EX_TEXT */
    union {
        int64_t i;
        const kn_ex_rat *rat;
        const char *text;
        const kn_ex_array *array;
    };
    int64_t lo, count, step; /* KN_EX_REGS: elements lo, lo + step, ... */
} kn_ex_val;

/* ---- names --------------------------------------------------------------------------------------------------- */

/* An identifier, interned: equal names are equal pointers. */
typedef struct kn_ex_sym {
    struct kn_ex_sym *chain;
    struct kn_ex_var *global;        /* its file-level declaration, once executed */
    struct kn_ex_macro *macro;       /* the macro of that name, once its definition was executed */
    const struct kn_ex_node *choice; /* the #param that has this word among its choices */
    const struct kn_ex_node *label;  /* where the file-level label L@name is defined */
    const struct kn_ex_node *bra;    /* a place that refers to the file-level label */
    uint32_t hash, len;
    bool dtype;      /* a PTX type or a target: stands for itself */
    bool referenced; /* lint: an expression names it */
    bool declared;   /* lint: a file-level declaration of it exists */
    bool used_macro; /* lint: a #use names it */
    bool branched;   /* lint: a branch names it */
    char text[];
} kn_ex_sym;

typedef struct kn_ex_var {
    kn_ex_sym *sym;
    struct kn_ex_var *next;
    const struct kn_ex_node *where; /* NULL: predefined */
    kn_ex_val val;
} kn_ex_var;

/* A place that declares names: the files' top level, one use of a macro, or one turn of a #for. */
typedef struct kn_ex_scope {
    struct kn_ex_scope *up;        /* the scope around a #for; NULL at the top level and in a macro */
    const struct kn_ex_block *own; /* whose labels belong to this scope */
    kn_ex_var *vars;
    uint32_t id;        /* suffix of its registers and labels; 0 until one is needed, and always at the top level */
    kn_ex_sym *loop;    /* the #for's variable */
    int64_t loop_value; /* and its value */
    struct kn_ex_scope *caller;   /* a macro: the scope of the #use */
    const struct kn_ex_node *use; /* a macro: the #use */
    uint32_t context;             /* offset of its text in kn_ex.loop_text, 0: not written yet */
} kn_ex_scope;

/* ---- the tree ------------------------------------------------------------------------------------------------ */

enum {
    KN_EX_CONST,  /* val */
    KN_EX_NAME,   /* sym */
    KN_EX_STRING, /* segs */
    KN_EX_LABEL,  /* sym: L@sym */
    KN_EX_CALL,   /* fn(a, a->next, ...) */
    KN_EX_INDEX,  /* a[b] */
    KN_EX_SLICE,  /* a[b .. c step d] */
    KN_EX_ALL,    /* a[*] */
    KN_EX_UNARY,  /* token a */
    KN_EX_BINARY, /* a token b */
    KN_EX_COND    /* a ? b : c */
};

typedef struct kn_ex_expr {
    uint8_t op;
    uint8_t fn; /* row of the table of built-ins */
    int token;  /* the operator */
    struct kn_ex_expr *a, *b, *c, *d, *next;
    kn_ex_sym *sym;
    struct kn_ex_text *text;
    kn_ex_val val;
} kn_ex_expr;

/* A line or a string, cut at its ${...} and L@... */
typedef struct kn_ex_seg {
    const char *lit; /* literal bytes, if expr is NULL */
    uint32_t len;
    kn_ex_expr *expr;
} kn_ex_seg;

typedef struct kn_ex_text {
    uint32_t n;
    kn_ex_seg seg[];
} kn_ex_text;

enum kn_ex_what {
    KN_EX_LINE,
    KN_EX_PARAM,
    KN_EX_LET,
    KN_EX_ASSERT,
    KN_EX_REGS_DECL, /* #regs */
    KN_EX_SMEM,
    KN_EX_FOR,
    KN_EX_IF,
    KN_EX_MACRO,
    KN_EX_USE,
    KN_EX_INCLUDE,
    KN_EX_EXAMPLE
};

typedef struct kn_ex_block {
    struct kn_ex_node *first;
    kn_ex_sym **label; /* L@names defined in it; those of a #for or #macro inside it are not */
    uint32_t n_labels, room;
} kn_ex_block;

/* One declared name of a #regs, one argument of a #macro or #use, one choice of a #param, one pair of an #example. */
typedef struct kn_ex_item {
    struct kn_ex_item *next;
    kn_ex_sym *sym;
    kn_ex_expr *expr; /* array size, argument value, integer choice or value */
} kn_ex_item;

/* A directive or a line. Which fields hold what is said at each parse function in expand_parse.c. */
typedef struct kn_ex_node {
    struct kn_ex_node *next;
    uint8_t what; /* enum kn_ex_what */
    bool is_set;  /* PARAM: in { ... } */
    bool blank;   /* LINE: nothing but space */
    uint32_t file, line;
    kn_ex_sym *sym;
    kn_ex_sym *label; /* LINE: the label that it defines */
    kn_ex_expr *expr, *lo, *hi, *step, *dflt;
    kn_ex_text *text;
    kn_ex_item *item;
    uint32_t n_items;
    const char *type; /* REGS: "f32", unless expr computes it */
    uint32_t type_len;
    const char *indent; /* the space before a directive */
    uint32_t indent_len;
    kn_ex_block body;
    struct kn_ex_node *other; /* IF: the #elif or #else */
} kn_ex_node;

typedef struct kn_ex_macro {
    const kn_ex_node *node;
    bool active;
} kn_ex_macro;

/* ---- one expansion ------------------------------------------------------------------------------------------- */

/* Where source text comes from; *owned is freed with kn_free when the expansion ends. */
typedef struct kn_ex_source {
    kn_status (*load)(void *user, const char *name, const char **text, size_t *len, char **owned);
    void *user;
} kn_ex_source;

typedef struct kn_ex_file {
    char name[64];
    const char *text;
    size_t len;
    char *owned;
    kn_ex_block block;
} kn_ex_file;

struct kn_ex {
    kn_arena arena;
    size_t arena_bytes;
    const kn_ex_source *source;
    const kn_params *params;
    bool taken[KN_MAX_PARAMS]; /* params->item[i] was declared by a #param */
    const kn_target *target;
    kn_ex_sym *table[256];
    kn_ex_file file[KN_EX_MAX_FILES];
    uint32_t n_files;
    const kn_ex_node *at;      /* the node that runs; NULL while a file is parsed */
    uint32_t at_file, at_line; /* the place that an error names */
    kn_ex_block *owner;        /* while parsing: the #for, #macro or file that a label belongs to */
    uint32_t nest;             /* while parsing: open blocks */
    uint32_t in_local;         /* while parsing: of these, #for and #macro */
    kn_ex_scope *scope;
    kn_ex_scope global;
    uint64_t steps;
    uint32_t uses;    /* macros inside each other */
    uint32_t last_id; /* scopes numbered so far */
    kn_ex_sym *smem_total, *smem_align;
    int64_t smem_bytes, smem_max_align;
    uint32_t smem_read_line; /* where smem_total was read first; 0: not yet */
    bool last_blank;
    kn_buf out, loop_text;
    kn_line_origin *lines;
    size_t n_lines, lines_room;
};

/* expand_run.c: the life of an expansion and what all its files need. */
kn_status kn_ex_begin(kn_ex *ex, const kn_ex_source *source, const kn_params *params, const char *target);
void kn_ex_end(kn_ex *ex);
/** kn_expand() on any source of text. */
kn_status kn_ex_expand(const kn_ex_source *source, const char *name, const kn_params *params, const char *target,
                       uint32_t flags, kn_expansion *out);
/** KN_E_TEMPLATE with "FILE:LINE [i=3]: " in front. */
kn_status kn_ex_fail(kn_ex *ex, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
kn_status kn_ex_new(kn_ex *ex, void **out, size_t size); /* zeroed, in the arena */
#define KN_EX_NEW(ex, pp) kn_ex_new((ex), (void **)(pp), sizeof **(pp))
kn_status kn_ex_strndup(kn_ex *ex, const char *s, size_t n, const char **out);
kn_status kn_ex_intern(kn_ex *ex, const char *s, size_t n, kn_ex_sym **out);
/** Bind `sym` in the current scope; an error if it is taken there. */
kn_status kn_ex_declare(kn_ex *ex, kn_ex_sym *sym, const kn_ex_val *val);
const kn_ex_var *kn_ex_lookup(const kn_ex *ex, const kn_ex_sym *sym);
uint32_t kn_ex_scope_id(kn_ex *ex, kn_ex_scope *scope);
/** Parse file `name` unless it is there already; *file is its index, *fresh whether it was parsed now. */
kn_status kn_ex_load(kn_ex *ex, const char *name, uint32_t *file, bool *fresh);

/* expand_parse.c */
kn_status kn_ex_parse_file(kn_ex *ex, uint32_t file);

/* expand_lex.c: tokens of an expression. Single characters are their own code. */
enum {
    KN_TOK_END = 0, /* end of line, or a // comment */
    KN_TOK_INT = 256,
    KN_TOK_RAT,
    KN_TOK_WORD,
    KN_TOK_STRING, /* at/len: between the quotes */
    KN_TOK_LABEL,  /* at/len: behind L@ */
    KN_TOK_FLOAT,  /* 0f3F800000: at/len */
    KN_TOK_DOTS,   /* .. */
    KN_TOK_EQ,
    KN_TOK_NE,
    KN_TOK_LE,
    KN_TOK_GE,
    KN_TOK_SHL,
    KN_TOK_SHR,
    KN_TOK_AND,
    KN_TOK_OR
};

typedef struct kn_ex_lex {
    kn_ex *ex;
    const char *p, *end; /* what follows the current token */
    int tok;
    const char *at; /* the current token's text */
    size_t len;
    int64_t i;
    kn_ex_rat rat;
    uint32_t depth, operands; /* of the expression being parsed */
} kn_ex_lex;

bool kn_ex_is_word_start(char c);
bool kn_ex_is_word(char c);
/** Start on [p, end) and read the first token. */
kn_status kn_ex_lex_begin(kn_ex_lex *lx, kn_ex *ex, const char *p, const char *end);
kn_status kn_ex_lex_next(kn_ex_lex *lx);
/** Consume `tok`, or fail with "expected WHAT". */
kn_status kn_ex_lex_expect(kn_ex_lex *lx, int tok, const char *what);
bool kn_ex_lex_is(const kn_ex_lex *lx, const char *word);

/* expand_expr.c */
kn_status kn_ex_parse_expr(kn_ex_lex *lx, kn_ex_expr **out);
kn_status kn_ex_parse_text(kn_ex *ex, const char *p, const char *end, kn_ex_text **out);

/* expand_eval.c */
extern const struct kn_ex_builtin {
    const char *name;
    uint8_t min_args, max_args;
} kn_ex_builtins[];
int kn_ex_builtin_find(const char *s, size_t n); /* -1: none */
kn_status kn_ex_eval(kn_ex *ex, const kn_ex_expr *e, kn_ex_val *out);
/** The value must be an integer; `what` names it in the error. */
kn_status kn_ex_eval_int(kn_ex *ex, const kn_ex_expr *e, const char *what, int64_t *out);
kn_status kn_ex_put_text(kn_ex *ex, const kn_ex_text *t, kn_buf *out);
/** The same as a text value of at most KN_EX_MAX_TEXT bytes. */
kn_status kn_ex_eval_text(kn_ex *ex, const kn_ex_text *t, kn_ex_val *out);

/* expand_rational.c: exact arithmetic and its one rounding. All return false on overflow (or division by zero). */
bool kn_ex_rat_make(__int128 n, __int128 d, kn_ex_rat *out);
bool kn_ex_rat_op(int token, const kn_ex_rat *a, const kn_ex_rat *b, kn_ex_rat *out); /* + - * / */
bool kn_ex_rat_compare(const kn_ex_rat *a, const kn_ex_rat *b, int *out);
/** Bits of the nearest (ties to even) binary float with `exp_bits` and `man_bits`; false when it overflows. */
bool kn_ex_rat_round(const kn_ex_rat *r, int exp_bits, int man_bits, uint64_t *bits);

/* expand_regs.c */
kn_status kn_ex_run_regs(kn_ex *ex, const kn_ex_node *n);
kn_status kn_ex_run_smem(kn_ex *ex, const kn_ex_node *n);
kn_status kn_ex_index(kn_ex *ex, const kn_ex_val *regs, int64_t i, kn_ex_val *out);
kn_status kn_ex_slice(kn_ex *ex, const kn_ex_val *regs, int64_t lo, int64_t hi, int64_t step, kn_ex_val *out);
kn_status kn_ex_put_regs(kn_ex *ex, const kn_ex_val *v, kn_buf *out);
bool kn_ex_is_type(const char *s, size_t n); /* "f32": a register type */

/* expand_linemap.c */
kn_status kn_ex_add_line(kn_ex *ex); /* the line just written comes from ex->at */
uint32_t kn_ex_context(kn_ex *ex, kn_ex_scope *scope);
kn_status kn_ex_add_lineinfo(kn_ex *ex); /* rewrites ex->out with .file and .loc */

/* expand_meta.c */
kn_status kn_ex_read_meta(kn_ex *ex, kn_kernel_meta *meta);
/** Fail at the template line of byte `at` of the output. */
kn_status kn_ex_fail_at(kn_ex *ex, const char *at, const char *fmt, ...) __attribute__((format(printf, 3, 4), cold));

/* expand_lint.c */
kn_status kn_ex_check_output(kn_ex *ex); /* leftovers; always on */
kn_status kn_ex_lint(kn_ex *ex);

/* expand_source.c */
extern const kn_ex_source kn_ex_default_source;
/** As kn_template_closure and kn_template_examples, on any source. */
kn_status kn_ex_closure(const kn_ex_source *source, const char *name, kn_template_visit *visit, void *user);
kn_status kn_ex_load_closure(kn_ex *ex, const char *name);
kn_status kn_ex_check_name(const char *name);

#endif
