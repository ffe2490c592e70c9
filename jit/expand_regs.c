/* jit/expand: register declarations, their lists, and the layout of dynamic shared memory. */
#include "jit/expand_internal.h"

#include <string.h>

bool kn_ex_is_type(const char *s, size_t n) {
    static const char *const types[] = {"pred", "b8",  "b16", "b32", "b64", "b128", "u8",  "u16",   "u32",  "u64",
                                        "s8",   "s16", "s32", "s64", "f16", "f32",  "f64", "f16x2", "bf16", "bf16x2"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strlen(types[i]) == n && memcmp(types[i], s, n) == 0) return true;
    }
    return false;
}

/* An array acc has registers %acc0, %acc1...: a register %acc1 of another declaration would be one of them. Only the
 * top level can clash so: inside #for and #macro every name carries the scope's number behind a '$'. */
static kn_status check_clash(kn_ex *ex, const kn_ex_sym *sym) {
    uint32_t stem = sym->len;
    while (stem > 0 && sym->text[stem - 1] >= '0' && sym->text[stem - 1] <= '9') stem--;
    if (stem == sym->len) return KN_OK;
    for (uint32_t n = stem; n < sym->len; n++) { /* "a12": the arrays a and a1 */
        kn_ex_sym *array = NULL;
        KN_TRY(kn_ex_intern(ex, sym->text, n, &array));
        if (array->global && array->global->val.kind == KN_EX_REGS) {
            return kn_ex_fail(ex, "register %s has the same name as an element of the array %s", sym->text,
                              array->text);
        }
    }
    return KN_OK;
}

static kn_status check_array_clash(kn_ex *ex, const kn_ex_sym *sym) {
    for (const kn_ex_var *v = ex->global.vars; v; v = v->next) {
        const kn_ex_sym *s = v->sym;
        bool reg = v->val.kind == KN_EX_REGS || (v->val.kind == KN_EX_TEXT && v->val.text[0] == '%');
        if (!reg || s->len <= sym->len || memcmp(s->text, sym->text, sym->len) != 0) continue;
        uint32_t i = sym->len;
        while (i < s->len && s->text[i] >= '0' && s->text[i] <= '9') i++;
        if (i == s->len) {
            return kn_ex_fail(ex, "register %s has the same name as an element of the array %s", s->text, sym->text);
        }
    }
    return KN_OK;
}

/* Append decimal digits at text[n]; returns the new n. */
static size_t write_number(char *text, size_t n, uint64_t v) {
    char digits[24];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    memcpy(text + n, digits + at, sizeof digits - at);
    return n + sizeof digits - at;
}

/* "%acc", or "%acc$7" in the scope numbered 7; an array's prefix ends in '_' there: "%acc$7_0". */
static kn_status register_name(kn_ex *ex, const kn_ex_sym *sym, bool array, const char **out, uint32_t *len) {
    char text[160] = "%";
    size_t n = 1;
    if (sym->len > 100) return kn_ex_fail(ex, "a register name of more than 100 letters");
    memcpy(text + n, sym->text, sym->len);
    n += sym->len;
    if (ex->scope != &ex->global) {
        text[n++] = '$';
        n = write_number(text, n, kn_ex_scope_id(ex, ex->scope));
        if (array) text[n++] = '_';
    }
    *len = (uint32_t)n;
    return kn_ex_strndup(ex, text, n, out);
}

static kn_status declare_array(kn_ex *ex, const kn_ex_item *item, kn_ex_val *v) {
    int64_t count = 0;
    KN_TRY(kn_ex_eval_int(ex, item->expr, "the size of a register array", &count));
    if (count < 0 || count > KN_EX_MAX_REGS) {
        return kn_ex_fail(ex, "%s has %lld registers: it may have 0 to %d", item->sym->text, (long long)count,
                          KN_EX_MAX_REGS);
    }
    kn_ex_array *a = NULL;
    KN_TRY(KN_EX_NEW(ex, &a));
    a->count = count;
    KN_TRY(register_name(ex, item->sym, true, &a->prefix, &a->prefix_len));
    *v = (kn_ex_val){.kind = KN_EX_REGS, .style = KN_EX_WHOLE, .array = a, .count = count, .step = 1};
    return ex->scope == &ex->global ? check_array_clash(ex, item->sym) : KN_OK;
}

/* #regs .f32 acc[8], x  ->  .reg .f32 %acc<8>, %x; */
kn_status kn_ex_run_regs(kn_ex *ex, const kn_ex_node *n) {
    kn_ex_val type = {.text = n->type, .len = n->type_len};
    if (n->expr) KN_TRY(kn_ex_eval(ex, n->expr, &type));
    if (n->expr && (type.kind != KN_EX_TEXT || !kn_ex_is_type(type.text, type.len)))
        return kn_ex_fail(ex, "#regs: the type in ${...} is not a register type such as f32");
    bool any = false;
    for (const kn_ex_item *item = n->item; item; item = item->next) {
        kn_ex_val v;
        if (ex->scope == &ex->global) KN_TRY(check_clash(ex, item->sym));
        if (item->expr) {
            KN_TRY(declare_array(ex, item, &v));
        } else {
            v = (kn_ex_val){.kind = KN_EX_TEXT};
            KN_TRY(register_name(ex, item->sym, false, &v.text, &v.len));
        }
        KN_TRY(kn_ex_declare(ex, item->sym, &v));
        if (item->expr && v.count == 0) continue; /* nothing to declare */
        if (!any) {
            kn_buf_add_n(&ex->out, n->indent, n->indent_len);
            kn_buf_add(&ex->out, ".reg .");
            kn_buf_add_n(&ex->out, type.text, type.len);
        }
        kn_buf_add(&ex->out, any ? ", " : " ");
        any = true;
        if (item->expr) {
            kn_buf_add_n(&ex->out, v.array->prefix, v.array->prefix_len);
            kn_buf_add_char(&ex->out, '<');
            kn_buf_add_i64(&ex->out, v.count);
            kn_buf_add_char(&ex->out, '>');
        } else {
            kn_buf_add_n(&ex->out, v.text, v.len);
        }
    }
    if (!any) return KN_OK;
    kn_buf_add_char(&ex->out, ';');
    return kn_ex_add_line(ex);
}

kn_status kn_ex_index(kn_ex *ex, const kn_ex_val *regs, int64_t i, kn_ex_val *out) {
    if (i < 0 || i >= regs->count) {
        return kn_ex_fail(ex, "index %lld of %.*s, which has %lld registers", (long long)i,
                          (int)regs->array->prefix_len, regs->array->prefix, (long long)regs->count);
    }
    char text[176];
    size_t n = regs->array->prefix_len;
    memcpy(text, regs->array->prefix, n);
    n = write_number(text, n, (uint64_t)(regs->lo + i * regs->step));
    *out = (kn_ex_val){.kind = KN_EX_TEXT, .len = (uint32_t)n};
    return kn_ex_strndup(ex, text, n, &out->text);
}

kn_status kn_ex_slice(kn_ex *ex, const kn_ex_val *regs, int64_t lo, int64_t hi, int64_t step, kn_ex_val *out) {
    if (lo < 0 || hi < lo || hi > regs->count || step < 1 || step > KN_EX_MAX_REGS) {
        return kn_ex_fail(ex, "slice %lld .. %lld step %lld of %.*s, which has %lld registers", (long long)lo,
                          (long long)hi, (long long)step, (int)regs->array->prefix_len, regs->array->prefix,
                          (long long)regs->count);
    }
    *out = *regs;
    out->style = KN_EX_BODY;
    out->lo = regs->lo + lo * regs->step;
    out->step = regs->step * step;
    out->count = (hi - lo) / step + ((hi - lo) % step != 0);
    if (out->count <= 1) out->step = 1; /* so that slices of slices never grow it beyond the array */
    return KN_OK;
}

kn_status kn_ex_put_regs(kn_ex *ex, const kn_ex_val *v, kn_buf *out) {
    const kn_ex_array *a = v->array;
    if (v->style == KN_EX_WHOLE) {
        return kn_ex_fail(ex, "%.*s is an array of %lld registers: write [i], [lo .. hi] or [*] behind it",
                          (int)a->prefix_len, a->prefix, (long long)v->count);
    }
    if (v->count == 0) return kn_ex_fail(ex, "an empty list of registers");
    /* Put together in pieces of its own: a wgmma kernel has tens of thousands of these names. */
    char text[1024];
    size_t n = 0;
    if (v->style == KN_EX_BRACED) text[n++] = '{';
    for (int64_t i = 0; i < v->count; i++) {
        if (n + a->prefix_len + 32 > sizeof text) {
            kn_buf_add_n(out, text, n);
            n = 0;
        }
        if (i) {
            text[n++] = ',';
            text[n++] = ' ';
        }
        memcpy(text + n, a->prefix, a->prefix_len);
        n = write_number(text, n + a->prefix_len, (uint64_t)(v->lo + i * v->step));
    }
    if (v->style == KN_EX_BRACED) text[n++] = '}';
    kn_buf_add_n(out, text, n);
    return KN_OK;
}

/* #smem NAME BYTES [align A] [at OFFSET]: NAME becomes the buffer's byte offset in dynamic shared memory. */
kn_status kn_ex_run_smem(kn_ex *ex, const kn_ex_node *n) {
    int64_t bytes = 0, align = 16, at = 0;
    if (ex->smem_read_line) {
        return kn_ex_fail(ex, "#smem behind line %u, which used smem_total or smem_align already", ex->smem_read_line);
    }
    KN_TRY(kn_ex_eval_int(ex, n->expr, "the size of a buffer", &bytes));
    if (n->step) KN_TRY(kn_ex_eval_int(ex, n->step, "an alignment", &align));
    if (bytes < 0 || bytes > 1 << 24)
        return kn_ex_fail(ex, "%s has %lld bytes: 0 to 2^24", n->sym->text, (long long)bytes);
    if (align < 1 || align > 4096 || (align & (align - 1)))
        return kn_ex_fail(ex, "align %lld: a power of two up to 4096", (long long)align);
    if (n->lo) {
        KN_TRY(kn_ex_eval_int(ex, n->lo, "the offset behind at", &at));
        if (at < 0 || at > 1 << 28 || at % align)
            return kn_ex_fail(ex, "%s at %lld: not a multiple of its alignment %lld", n->sym->text, (long long)at,
                              (long long)align);
    } else {
        at = (ex->smem_bytes + align - 1) / align * align;
        if (at > 1 << 28) return kn_ex_fail(ex, "more than 2^28 bytes of shared memory");
    }
    if (at + bytes > ex->smem_bytes) ex->smem_bytes = at + bytes;
    if (align > ex->smem_max_align) ex->smem_max_align = align;
    kn_ex_val v = {.kind = KN_EX_INT, .i = at};
    return kn_ex_declare(ex, n->sym, &v);
}
