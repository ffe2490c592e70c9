/* Statements of a kernel: declarations, labels, scopes, instructions. */
#include "base/alloc.h"
#include "sim/isa.h"
#include "sim/ptx_parse.h"

#include <stdarg.h>
#include <stdio.h>

kn_status kn_insn_error(const kn_insn *i, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return kn_fail(KN_E_SIM, "%s: %s", i->text, text);
}

kn_status kn_p_none(kn_insn *i) {
    (void)i;
    return KN_OK;
}

static kn_status line_prefix(kn_ptx *p, kn_status st) {
    char where[192];
    if (st != KN_E_SIM && st != KN_E_INTERNAL) return st;
    if (p->origin)
        p->origin(p->origin_user, p->insn_line, where, sizeof where);
    else
        snprintf(where, sizeof where, "PTX line %u", p->insn_line);
    return kn_error_prefix(st, "%s: ", where);
}

/* The decoded form of a mnemonic; a kernel has few different ones. */
static kn_status find_form(kn_ptx *p, const char *text, uint32_t len, kn_insn *out) {
    uint32_t hash = kn_ptx_hash(text, len);
    uint32_t at = hash % KN_FORMS;
    for (; p->form[at].insn.text; at = (at + 1) % KN_FORMS) {
        const kn_form *f = &p->form[at];
        if (f->hash == hash && kn_ptx_word_is(text, len, f->insn.text)) {
            *out = f->insn;
            return KN_OK;
        }
    }
    char *copy = kn_ptx_copy(p, text, len);
    if (!copy) return kn_fail(KN_E_NOMEM, "out of memory for an instruction's name");
    KN_TRY(line_prefix(p, kn_isa_decode(copy, out)));
    if (p->n_forms + 1 < KN_FORMS) {
        p->form[at] = (kn_form){hash, *out};
        p->n_forms++;
    }
    return KN_OK;
}

static kn_status add_fixup(kn_ptx *p, kn_operand *o) {
    KN_TRY(kn_ptx_grow((void **)&p->fixup, &p->room_fixups, p->n_fixups, sizeof *p->fixup, "branches"));
    p->fixup[p->n_fixups++] = (kn_fixup){o, o->lanes, o->slot, p->insn_line, p->depth};
    o->slot = KN_NO_SLOT;
    o->lanes = NULL;
    return KN_OK;
}

/* Operands and their elements move from the parser's scratch to the module. */
static kn_status keep_operands(kn_ptx *p, kn_insn *i, const kn_operand *op, uint32_t n) {
    kn_operand *kept = kn_arena_alloc(&p->module->arena, (n + p->n_scratch) * sizeof *kept);
    if (!kept) return kn_fail(KN_E_NOMEM, "out of memory for operands");
    memcpy(kept, op, n * sizeof *kept);
    memcpy(kept + n, p->scratch, p->n_scratch * sizeof *kept);
    for (uint32_t k = 0; k < n + p->n_scratch; k++) {
        if (kept[k].elem) kept[k].elem = kept + n + (kept[k].elem - p->scratch);
        if (kept[k].kind == KN_O_LABEL) KN_TRY(add_fixup(p, &kept[k]));
    }
    i->op = kept;
    return KN_OK;
}

static kn_status guard(kn_ptx *p, uint8_t *kind, uint32_t *slot) {
    const char *text;
    uint32_t len;
    uint8_t bytes;
    if (!kn_ptx_take(p, '@')) return KN_OK;
    *kind = kn_ptx_take(p, '!') ? 2 : 1;
    if (!kn_ptx_word(p, false, &text, &len)) return kn_ptx_error(p, "a predicate was expected behind '@'");
    if (!kn_ptx_register(p, text, len, slot, &bytes) || bytes != 0)
        return kn_ptx_error(p, "%.*s is no predicate", (int)len, text);
    return KN_OK;
}

static kn_status append(kn_ptx *p, const kn_insn *i) {
    kn_entry *e = p->entry;
    if (e->n_code >= KN_PTX_MAX_CODE)
        return kn_ptx_error(p, "more than %d instructions in one kernel", KN_PTX_MAX_CODE);
    KN_TRY(kn_ptx_grow((void **)&e->code, &p->room_code, e->n_code, sizeof *e->code, "instructions"));
    e->code[e->n_code++] = *i;
    return KN_OK;
}

/* From the guard to the ';'. The mnemonic is given where the statement began with a word. */
static kn_status instruction(kn_ptx *p, const char *text, uint32_t len) {
    kn_insn i;
    uint8_t guard_kind = 0;
    uint32_t guard_slot = 0, n = 0;
    kn_operand op[KN_PTX_MAX_OPERANDS];
    if (!text) {
        KN_TRY(guard(p, &guard_kind, &guard_slot));
        if (!kn_ptx_word(p, true, &text, &len)) return kn_ptx_error(p, "an instruction was expected");
    }
    KN_TRY(find_form(p, text, len, &i));
    i.guard = guard_kind;
    i.guard_slot = guard_slot;
    i.line = p->insn_line;
    p->n_scratch = 0;
    if (!kn_ptx_take(p, ';')) {
        do {
            if (n == KN_PTX_MAX_OPERANDS) return kn_ptx_error(p, "more than %d operands", KN_PTX_MAX_OPERANDS);
            KN_TRY(kn_ptx_operand(p, &op[n++]));
        } while (kn_ptx_take(p, ','));
        KN_TRY(kn_ptx_expect(p, ';'));
    }
    KN_TRY(kn_ptx_fit(p, &i, op, n));
    KN_TRY(keep_operands(p, &i, op, n));
    KN_TRY(line_prefix(p, i.row->prep(&i)));
    if (i.flags & KN_I_SERIAL) p->entry->serial = true;
    return append(p, &i);
}

/* Branches whose label is declared in the scope that closes; the others wait for the scope around it. */
static kn_status resolve(kn_ptx *p, uint8_t depth) {
    uint32_t kept = 0;
    for (uint32_t k = 0; k < p->n_fixups; k++) {
        kn_fixup f = p->fixup[k];
        if (f.depth >= depth) {
            const kn_name *n = kn_ptx_find(p, f.text, f.len);
            if (n && n->kind == KN_N_LABEL && n->depth >= depth) {
                f.operand->slot = n->slot;
                continue;
            }
            if (depth <= 1) {
                p->insn_line = f.line;
                return kn_ptx_error(p, "the label %.*s is not declared", (int)f.len, f.text);
            }
            f.depth = (uint8_t)(depth - 1);
        }
        p->fixup[kept++] = f;
    }
    p->n_fixups = kept;
    return KN_OK;
}

static kn_status close_scope(kn_ptx *p) {
    KN_TRY(resolve(p, p->depth));
    kn_ptx_close_scope(p, (uint8_t)(p->depth - 1));
    return KN_OK;
}

static kn_status skip_to_line_end(kn_ptx *p) {
    while (p->at < p->end && *p->at != '\n') p->at++;
    return KN_OK;
}

static kn_status directive(kn_ptx *p, const char *text, uint32_t len) {
    if (kn_ptx_word_is(text, len, "reg")) return kn_ptx_registers(p);
    if (kn_ptx_word_is(text, len, "shared")) return kn_ptx_variable(p, KN_SPACE_SHARED, false);
    if (kn_ptx_word_is(text, len, "local")) return kn_ptx_variable(p, KN_SPACE_LOCAL, false);
    if (kn_ptx_word_is(text, len, "loc")) return skip_to_line_end(p);
    if (kn_ptx_word_is(text, len, "pragma")) {
        while (p->at < p->end && *p->at != ';') p->at++;
        return kn_ptx_expect(p, ';');
    }
    return kn_ptx_error(p, "unknown directive .%.*s in a kernel", (int)len, text);
}

static kn_status label(kn_ptx *p, const char *text, uint32_t len) {
    kn_name n = {.text = text, .len = len, .kind = KN_N_LABEL, .slot = p->entry->n_code};
    return kn_ptx_declare(p, &n);
}

static kn_status statement(kn_ptx *p) {
    const char *text;
    uint32_t len;
    if (kn_ptx_take(p, '{')) {
        if (p->depth == KN_PTX_MAX_DEPTH) return kn_ptx_error(p, "more than %d nested scopes", KN_PTX_MAX_DEPTH);
        p->depth++;
        return KN_OK;
    }
    if (kn_ptx_take(p, '}')) return close_scope(p);
    if (kn_ptx_take(p, ';')) return KN_OK;
    if (kn_ptx_directive(p, &text, &len)) return directive(p, text, len);
    if (kn_ptx_is(p, '@')) return instruction(p, NULL, 0);
    if (!kn_ptx_word(p, true, &text, &len)) return kn_ptx_error(p, "a statement was expected before '%c'", *p->at);
    if (kn_ptx_take(p, ':')) return label(p, text, len);
    return instruction(p, text, len);
}

/* Dynamic shared memory begins behind the static variables, which are all known now. */
static void place_dynamic(kn_ptx *p) {
    kn_entry *e = p->entry;
    uint32_t align = p->smem_align ? p->smem_align : 16;
    e->smem_dynamic = (KN_SMEM_RESERVED + e->smem_static + align - 1) / align * align;
    for (uint32_t k = 0; k < e->n_code; k++) {
        for (uint32_t o = 0; o < e->code[k].n_op; o++) {
            kn_operand *op = (kn_operand *)(uintptr_t)&e->code[k].op[o];
            bool symbol = op->kind == KN_O_SYMBOL || op->kind == KN_O_ADDR;
            if (symbol && op->space == KN_SPACE_SHARED && op->imm >= KN_PTX_DYNAMIC / 2)
                op->imm += (int64_t)e->smem_dynamic - KN_PTX_DYNAMIC;
        }
    }
}

kn_status kn_ptx_body(kn_ptx *p) {
    p->n_fixups = 0;
    while (p->depth > 0) {
        kn_ptx_skip(p);
        if (p->at >= p->end) return kn_ptx_error(p, "the text ends inside a kernel");
        p->insn_line = p->line;
        KN_TRY(statement(p));
        p->insn_line = 0;
    }
    place_dynamic(p);
    /* Running off the end is the same as ret. */
    kn_insn end;
    KN_TRY(kn_isa_decode("ret", &end));
    end.line = p->line;
    return append(p, &end);
}
