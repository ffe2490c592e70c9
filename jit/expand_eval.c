/* jit/expand: the values of expressions. 64-bit integers whose overflow is an error, exact rationals for float
 * constants, texts (names of dtypes, registers, operands), and lists of registers. */
#include "jit/expand_internal.h"

#include <string.h>

enum { MIN, MAX, ABS, CEIL_DIV, LOG2, ALIGN, LEN, BYTES, IS, HEX, F32, F64, F16, BF16, F32BITS, F64BITS };

const struct kn_ex_builtin kn_ex_builtins[] = {
    [MIN] = {"min", 1, 16},  [MAX] = {"max", 1, 16},    [ABS] = {"abs", 1, 1},         [CEIL_DIV] = {"ceil_div", 2, 2},
    [LOG2] = {"log2", 1, 1}, [ALIGN] = {"align", 2, 2}, [LEN] = {"len", 1, 1},         [BYTES] = {"bytes", 1, 1},
    [IS] = {"is", 2, 16},    [HEX] = {"hex", 1, 1},     [F32] = {"f32", 1, 1},         [F64] = {"f64", 1, 1},
    [F16] = {"f16", 1, 1},   [BF16] = {"bf16", 1, 1},   [F32BITS] = {"f32bits", 1, 1}, [F64BITS] = {"f64bits", 1, 1},
};

int kn_ex_builtin_find(const char *s, size_t n) {
    for (size_t i = 0; i < sizeof kn_ex_builtins / sizeof kn_ex_builtins[0]; i++) {
        if (strlen(kn_ex_builtins[i].name) == n && memcmp(kn_ex_builtins[i].name, s, n) == 0) return (int)i;
    }
    return -1;
}

static const char *kind_of(const kn_ex_val *v) {
    static const char *const name[] = {"a whole number", "a fraction", "a text", "a list of registers"};
    return name[v->kind];
}

static kn_ex_val int_val(int64_t i) {
    return (kn_ex_val){.kind = KN_EX_INT, .i = i};
}

static kn_status fail_overflow(kn_ex *ex) {
    return kn_ex_fail(ex, "the result does not fit (64-bit integers, 126-bit fractions)");
}

kn_status kn_ex_eval_int(kn_ex *ex, const kn_ex_expr *e, const char *what, int64_t *out) {
    kn_ex_val v;
    KN_TRY(kn_ex_eval(ex, e, &v));
    if (v.kind != KN_EX_INT) {
        if (v.kind == KN_EX_TEXT)
            return kn_ex_fail(ex, "%s must be a whole number, not \"%.*s\"", what, (int)(v.len > 60 ? 60 : v.len),
                              v.text);
        return kn_ex_fail(ex, "%s must be a whole number, not %s", what, kind_of(&v));
    }
    *out = v.i;
    return KN_OK;
}

/* ---- names --------------------------------------------------------------------------------------------------- */

static kn_status eval_name(kn_ex *ex, kn_ex_sym *sym, kn_ex_val *out) {
    const kn_ex_var *var = kn_ex_lookup(ex, sym);
    if (var) {
        *out = var->val;
        return KN_OK;
    }
    if (sym == ex->smem_total || sym == ex->smem_align) {
        if (!ex->smem_read_line) ex->smem_read_line = ex->at_line;
        *out = int_val(sym == ex->smem_total ? ex->smem_bytes : ex->smem_max_align);
        return KN_OK;
    }
    if (!sym->dtype && !sym->choice) {
        return kn_ex_fail(ex, "%s is not declared here (a text is written \"%s\")", sym->text, sym->text);
    }
    *out = (kn_ex_val){.kind = KN_EX_TEXT, .text = sym->text, .len = sym->len};
    return KN_OK;
}

/* L@name belongs to the innermost #for or #macro that defines it, else to the top level. */
static kn_status eval_label(kn_ex *ex, kn_ex_sym *sym, kn_buf *out) {
    for (kn_ex_scope *s = ex->scope; s && s != &ex->global; s = s->up) {
        for (uint32_t i = 0; i < s->own->n_labels; i++) {
            if (s->own->label[i] != sym) continue;
            kn_buf_add(out, "L$");
            kn_buf_add_n(out, sym->text, sym->len);
            kn_buf_add_char(out, '$');
            kn_buf_add_u64(out, kn_ex_scope_id(ex, s));
            return KN_OK;
        }
    }
    if (!sym->bra) sym->bra = ex->at;
    kn_buf_add(out, "L$");
    kn_buf_add_n(out, sym->text, sym->len);
    return KN_OK;
}

/* ---- operators ----------------------------------------------------------------------------------------------- */

static kn_status int_op(kn_ex *ex, int tok, int64_t a, int64_t b, int64_t *out) {
    bool wrapped = false;
    switch (tok) {
    case '+': wrapped = __builtin_add_overflow(a, b, out); break;
    case '-': wrapped = __builtin_sub_overflow(a, b, out); break;
    case '*': wrapped = __builtin_mul_overflow(a, b, out); break;
    case '/':
    case '%':
        if (b == 0) return kn_ex_fail(ex, "division by zero");
        if (b == -1) { /* INT64_MIN / -1 */
            wrapped = tok == '/' && __builtin_sub_overflow((int64_t)0, a, out);
            if (tok == '%') *out = 0;
        } else {
            *out = tok == '/' ? a / b : a % b;
        }
        break;
    case KN_TOK_SHL:
    case KN_TOK_SHR:
        if (b < 0 || b > 63) return kn_ex_fail(ex, "a shift by %lld: it must be 0 to 63", (long long)b);
        if (tok == KN_TOK_SHR) {
            *out = a >> b;
        } else {
            *out = (int64_t)((uint64_t)a << b);
            wrapped = *out >> b != a;
        }
        break;
    case '&': *out = a & b; break;
    case '|': *out = a | b; break;
    case '^': *out = a ^ b; break;
    default: return kn_ex_fail(ex, "unknown operator %d", tok);
    }
    return wrapped ? fail_overflow(ex) : KN_OK;
}

static bool is_number(const kn_ex_val *v) {
    return v->kind == KN_EX_INT || v->kind == KN_EX_RAT;
}

static kn_ex_rat as_rat(const kn_ex_val *v) {
    return v->kind == KN_EX_RAT ? *v->rat : (kn_ex_rat){v->i, 1};
}

static bool same_text(const kn_ex_val *a, const kn_ex_val *b) {
    return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static kn_status compare(kn_ex *ex, int tok, const kn_ex_val *a, const kn_ex_val *b, kn_ex_val *out) {
    int order = 0;
    if (a->kind == KN_EX_TEXT && b->kind == KN_EX_TEXT && (tok == KN_TOK_EQ || tok == KN_TOK_NE)) {
        order = !same_text(a, b);
    } else if (a->kind == KN_EX_INT && b->kind == KN_EX_INT) {
        order = a->i < b->i ? -1 : a->i > b->i;
    } else if (is_number(a) && is_number(b)) {
        kn_ex_rat x = as_rat(a), y = as_rat(b);
        if (!kn_ex_rat_compare(&x, &y, &order)) return fail_overflow(ex);
    } else {
        return kn_ex_fail(ex, "%s and %s cannot be compared so", kind_of(a), kind_of(b));
    }
    bool yes = false;
    switch (tok) {
    case KN_TOK_EQ: yes = order == 0; break;
    case KN_TOK_NE: yes = order != 0; break;
    case '<': yes = order < 0; break;
    case '>': yes = order > 0; break;
    case KN_TOK_LE: yes = order <= 0; break;
    default: yes = order >= 0; break;
    }
    *out = int_val(yes);
    return KN_OK;
}

static kn_status rat_val(kn_ex *ex, const kn_ex_rat *r, kn_ex_val *out) {
    kn_ex_rat *copy = NULL;
    KN_TRY(KN_EX_NEW(ex, &copy));
    *copy = *r;
    *out = (kn_ex_val){.kind = KN_EX_RAT, .rat = copy};
    return KN_OK;
}

static kn_status eval_binary(kn_ex *ex, const kn_ex_expr *e, kn_ex_val *out) {
    kn_ex_val a, b;
    if (e->token == KN_TOK_AND || e->token == KN_TOK_OR) {
        const char *what = e->token == KN_TOK_AND ? "an operand of &&" : "an operand of ||";
        int64_t x = 0;
        KN_TRY(kn_ex_eval_int(ex, e->a, what, &x));
        if ((x != 0) == (e->token == KN_TOK_AND)) KN_TRY(kn_ex_eval_int(ex, e->b, what, &x));
        *out = int_val(x != 0);
        return KN_OK;
    }
    KN_TRY(kn_ex_eval(ex, e->a, &a));
    KN_TRY(kn_ex_eval(ex, e->b, &b));
    switch (e->token) {
    case KN_TOK_EQ:
    case KN_TOK_NE:
    case KN_TOK_LE:
    case KN_TOK_GE:
    case '<':
    case '>': return compare(ex, e->token, &a, &b, out);
    default: break;
    }
    if (a.kind == KN_EX_INT && b.kind == KN_EX_INT) {
        *out = int_val(0);
        return int_op(ex, e->token, a.i, b.i, &out->i);
    }
    bool arithmetic = e->token == '+' || e->token == '-' || e->token == '*' || e->token == '/';
    if (!arithmetic || !is_number(&a) || !is_number(&b)) {
        return kn_ex_fail(ex, "%s and %s do not go with this operator", kind_of(&a), kind_of(&b));
    }
    kn_ex_rat x = as_rat(&a), y = as_rat(&b), r;
    if (e->token == '/' && y.n == 0) return kn_ex_fail(ex, "division by zero");
    if (!kn_ex_rat_op(e->token, &x, &y, &r)) return fail_overflow(ex);
    return rat_val(ex, &r, out);
}

static kn_status eval_unary(kn_ex *ex, const kn_ex_expr *e, kn_ex_val *out) {
    kn_ex_val a;
    KN_TRY(kn_ex_eval(ex, e->a, &a));
    if (e->token == '-' && a.kind == KN_EX_RAT) {
        kn_ex_rat r = {-a.rat->n, a.rat->d};
        return rat_val(ex, &r, out);
    }
    if (a.kind != KN_EX_INT) return kn_ex_fail(ex, "%s does not go with the operator %c", kind_of(&a), e->token);
    *out = int_val(e->token == '!' ? !a.i : ~a.i);
    if (e->token == '-' && __builtin_sub_overflow((int64_t)0, a.i, &out->i)) return fail_overflow(ex);
    return KN_OK;
}

/* ---- functions ----------------------------------------------------------------------------------------------- */

static kn_status eval_minmax(kn_ex *ex, const kn_ex_expr *e, kn_ex_val *out) {
    const char *name = kn_ex_builtins[e->fn].name;
    int64_t best = 0, v = 0;
    for (const kn_ex_expr *a = e->a; a; a = a->next) {
        KN_TRY(kn_ex_eval_int(ex, a, name, &v));
        if (a == e->a || (e->fn == MIN ? v < best : v > best)) best = v;
    }
    *out = int_val(best);
    return KN_OK;
}

static kn_status eval_is(kn_ex *ex, const kn_ex_expr *e, kn_ex_val *out) {
    kn_ex_val a, b;
    KN_TRY(kn_ex_eval(ex, e->a, &a));
    *out = int_val(0);
    for (const kn_ex_expr *x = e->a->next; x; x = x->next) {
        KN_TRY(kn_ex_eval(ex, x, &b));
        if (a.kind != KN_EX_TEXT || b.kind != KN_EX_TEXT) return kn_ex_fail(ex, "is() compares names");
        if (same_text(&a, &b)) out->i = 1;
    }
    return KN_OK;
}

static kn_status eval_bytes(kn_ex *ex, const kn_ex_val *a, kn_ex_val *out) {
    static const struct {
        const char *name;
        int bytes;
    } size[] = {{"b8", 1},  {"u8", 1},  {"s8", 1},   {"e4m3", 1},  {"e5m2", 1},   {"b16", 2},
                {"u16", 2}, {"s16", 2}, {"f16", 2},  {"bf16", 2},  {"b32", 4},    {"u32", 4},
                {"s32", 4}, {"f32", 4}, {"tf32", 4}, {"f16x2", 4}, {"bf16x2", 4}, {"b64", 8},
                {"u64", 8}, {"s64", 8}, {"f64", 8},  {"b128", 16}};
    if (a->kind != KN_EX_TEXT) return kn_ex_fail(ex, "bytes() takes a dtype, not %s", kind_of(a));
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        if (strlen(size[i].name) == a->len && memcmp(size[i].name, a->text, a->len) == 0) {
            *out = int_val(size[i].bytes);
            return KN_OK;
        }
    }
    return kn_ex_fail(ex, "bytes(): \"%.*s\" is no dtype", (int)(a->len > 60 ? 60 : a->len), a->text);
}

/* PREFIX and `digits` upper-case hexadecimal digits, as a text. */
static kn_status hex_text(kn_ex *ex, const char *prefix, uint64_t bits, int digits, kn_ex_val *out) {
    char text[24];
    size_t n = strlen(prefix);
    memcpy(text, prefix, n);
    for (int i = digits - 1; i >= 0; i--) text[n++] = "0123456789ABCDEF"[bits >> (4 * i) & 15];
    *out = (kn_ex_val){.kind = KN_EX_TEXT, .len = (uint32_t)n};
    return kn_ex_strndup(ex, text, n, &out->text);
}

static kn_status eval_float(kn_ex *ex, int fn, const kn_ex_val *a, kn_ex_val *out) {
    const char *name = kn_ex_builtins[fn].name;
    if (!is_number(a)) return kn_ex_fail(ex, "%s() takes a number, not %s", name, kind_of(a));
    static const int exp_bits[] = {[F32] = 8, [F64] = 11, [F16] = 5, [BF16] = 8};
    static const int man_bits[] = {[F32] = 23, [F64] = 52, [F16] = 10, [BF16] = 7};
    kn_ex_rat r = as_rat(a);
    uint64_t bits = 0;
    if (!kn_ex_rat_round(&r, exp_bits[fn], man_bits[fn], &bits))
        return kn_ex_fail(ex, "%s(): the number is too large for that format", name);
    if (fn == F32) return hex_text(ex, "0f", bits, 8, out);
    if (fn == F64) return hex_text(ex, "0d", bits, 16, out);
    *out = int_val((int64_t)bits);
    return KN_OK;
}

/* Functions of one or two whole numbers. */
static kn_status eval_int_fn(kn_ex *ex, const kn_ex_expr *e, kn_ex_val *out) {
    const char *name = kn_ex_builtins[e->fn].name;
    int64_t a = 0, b = 1, r = 0;
    KN_TRY(kn_ex_eval_int(ex, e->a, name, &a));
    if (e->a->next) KN_TRY(kn_ex_eval_int(ex, e->a->next, name, &b));
    switch (e->fn) {
    case ABS:
        if (a < 0 && __builtin_sub_overflow((int64_t)0, a, &a)) return fail_overflow(ex);
        r = a;
        break;
    case LOG2:
        if (a < 1 || (a & (a - 1))) return kn_ex_fail(ex, "log2(%lld): not a power of two", (long long)a);
        while (a >> r != 1) r++;
        break;
    case CEIL_DIV:
    case ALIGN:
        if (a < 0 || b < 1) {
            return kn_ex_fail(ex, "%s(%lld, %lld): the first must be at least 0, the second at least 1", name,
                              (long long)a, (long long)b);
        }
        r = a / b + (a % b != 0);
        if (e->fn == ALIGN && __builtin_mul_overflow(r, b, &r)) return fail_overflow(ex);
        break;
    case HEX:
        for (r = 1; r < 16 && (uint64_t)a >> (4 * r); r++) continue;
        return hex_text(ex, "0x", (uint64_t)a, (int)r, out);
    case F32BITS:
        if (a < 0 || a > UINT32_MAX) return kn_ex_fail(ex, "f32bits(%lld): not 32 bits", (long long)a);
        return hex_text(ex, "0f", (uint64_t)a, 8, out);
    default: return hex_text(ex, "0d", (uint64_t)a, 16, out); /* F64BITS */
    }
    *out = int_val(r);
    return KN_OK;
}

static kn_status eval_call(kn_ex *ex, const kn_ex_expr *e, kn_ex_val *out) {
    kn_ex_val a;
    switch (e->fn) {
    case MIN:
    case MAX: return eval_minmax(ex, e, out);
    case IS: return eval_is(ex, e, out);
    case LEN:
        KN_TRY(kn_ex_eval(ex, e->a, &a));
        if (a.kind != KN_EX_REGS) return kn_ex_fail(ex, "len() takes a register array, not %s", kind_of(&a));
        *out = int_val(a.count);
        return KN_OK;
    case BYTES: KN_TRY(kn_ex_eval(ex, e->a, &a)); return eval_bytes(ex, &a, out);
    case F32:
    case F64:
    case F16:
    case BF16: KN_TRY(kn_ex_eval(ex, e->a, &a)); return eval_float(ex, e->fn, &a, out);
    default: return eval_int_fn(ex, e, out);
    }
}

/* a[i], a[lo .. hi], a[*] */
static kn_status eval_element(kn_ex *ex, const kn_ex_expr *e, kn_ex_val *out) {
    kn_ex_val a;
    int64_t lo = 0, hi = 0, step = 1;
    KN_TRY(kn_ex_eval(ex, e->a, &a));
    if (a.kind != KN_EX_REGS) return kn_ex_fail(ex, "only a register array has [...], not %s", kind_of(&a));
    if (e->op == KN_EX_ALL) {
        *out = a;
        out->style = KN_EX_BRACED;
        return KN_OK;
    }
    KN_TRY(kn_ex_eval_int(ex, e->b, "an index", &lo));
    if (e->op == KN_EX_INDEX) return kn_ex_index(ex, &a, lo, out);
    KN_TRY(kn_ex_eval_int(ex, e->c, "the end of a slice", &hi));
    if (e->d) KN_TRY(kn_ex_eval_int(ex, e->d, "the step of a slice", &step));
    return kn_ex_slice(ex, &a, lo, hi, step, out);
}

kn_status kn_ex_eval(kn_ex *ex, const kn_ex_expr *e, kn_ex_val *out) {
    switch (e->op) {
    case KN_EX_CONST: *out = e->val; return KN_OK;
    case KN_EX_NAME: return eval_name(ex, e->sym, out);
    case KN_EX_STRING: return kn_ex_eval_text(ex, e->text, out);
    case KN_EX_CALL: return eval_call(ex, e, out);
    case KN_EX_INDEX:
    case KN_EX_SLICE:
    case KN_EX_ALL: return eval_element(ex, e, out);
    case KN_EX_UNARY: return eval_unary(ex, e, out);
    case KN_EX_BINARY: return eval_binary(ex, e, out);
    case KN_EX_COND: {
        int64_t c = 0;
        KN_TRY(kn_ex_eval_int(ex, e->a, "the condition of ?:", &c));
        return kn_ex_eval(ex, c ? e->b : e->c, out);
    }
    default: break;
    }
    kn_buf text; /* KN_EX_LABEL */
    kn_buf_init(&text, KN_EX_MAX_TEXT);
    kn_status st = eval_label(ex, e->sym, &text);
    if (st == KN_OK) st = kn_buf_status(&text);
    *out = (kn_ex_val){.kind = KN_EX_TEXT, .len = (uint32_t)text.len};
    if (st == KN_OK) st = kn_ex_strndup(ex, text.data, text.len, &out->text);
    kn_buf_free(&text);
    return st;
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

/* Write a value as ${...} does. */
static kn_status put_value(kn_ex *ex, const kn_ex_val *v, kn_buf *out) {
    switch (v->kind) {
    case KN_EX_INT: kn_buf_add_i64(out, v->i); return KN_OK;
    case KN_EX_TEXT: kn_buf_add_n(out, v->text, v->len); return KN_OK;
    case KN_EX_REGS: return kn_ex_put_regs(ex, v, out);
    default: return kn_ex_fail(ex, "a fraction is written with f32(), f64(), f16() or bf16()");
    }
}

kn_status kn_ex_put_text(kn_ex *ex, const kn_ex_text *t, kn_buf *out) {
    for (uint32_t i = 0; i < t->n; i++) {
        const kn_ex_seg *s = &t->seg[i];
        if (!s->expr) {
            kn_buf_add_n(out, s->lit, s->len);
        } else if (s->expr->op == KN_EX_LABEL) {
            KN_TRY(eval_label(ex, s->expr->sym, out));
        } else {
            kn_ex_val v;
            KN_TRY(kn_ex_eval(ex, s->expr, &v));
            KN_TRY(put_value(ex, &v, out));
        }
    }
    return KN_OK;
}

kn_status kn_ex_eval_text(kn_ex *ex, const kn_ex_text *t, kn_ex_val *out) {
    *out = (kn_ex_val){.kind = KN_EX_TEXT, .text = ""};
    if (t->n == 0) return KN_OK;
    if (t->n == 1 && !t->seg[0].expr) {
        out->text = t->seg[0].lit;
        out->len = t->seg[0].len;
        return KN_OK;
    }
    kn_buf text;
    kn_buf_init(&text, KN_EX_MAX_TEXT);
    kn_status st = kn_ex_put_text(ex, t, &text);
    if (st == KN_OK && text.status == KN_E_ARG) st = kn_ex_fail(ex, "a text of more than %d bytes", KN_EX_MAX_TEXT);
    if (st == KN_OK) st = kn_buf_status(&text);
    if (st == KN_OK) st = kn_ex_strndup(ex, text.data, text.len, &out->text);
    out->len = (uint32_t)text.len;
    kn_buf_free(&text);
    return st;
}
