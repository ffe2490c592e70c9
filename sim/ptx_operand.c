/* Operands: their syntax, and their fit to the signature of the instruction's row. */
#include "sim/isa.h"
#include "sim/ptx_parse.h"

/* Until kn_ptx_fit gives an immediate its width, `space` holds the kn_literal it was written as, `negate` its sign. */

static const struct {
    const char *name;
    uint8_t id;
} specials[] = {
    {"%tid.x", KN_S_TID_X},
    {"%tid.y", KN_S_TID_Y},
    {"%tid.z", KN_S_TID_Z},
    {"%ntid.x", KN_S_NTID_X},
    {"%ntid.y", KN_S_NTID_Y},
    {"%ntid.z", KN_S_NTID_Z},
    {"%ctaid.x", KN_S_CTAID_X},
    {"%ctaid.y", KN_S_CTAID_Y},
    {"%ctaid.z", KN_S_CTAID_Z},
    {"%nctaid.x", KN_S_NCTAID_X},
    {"%nctaid.y", KN_S_NCTAID_Y},
    {"%nctaid.z", KN_S_NCTAID_Z},
    {"%laneid", KN_S_LANEID},
    {"%warpid", KN_S_WARPID},
    {"%nwarpid", KN_S_NWARPID},
    {"%smid", KN_S_SMID},
    {"%nsmid", KN_S_NSMID},
    {"%gridid", KN_S_GRIDID},
    {"%lanemask_eq", KN_S_LANEMASK_EQ},
    {"%lanemask_le", KN_S_LANEMASK_LE},
    {"%lanemask_lt", KN_S_LANEMASK_LT},
    {"%lanemask_ge", KN_S_LANEMASK_GE},
    {"%lanemask_gt", KN_S_LANEMASK_GT},
    {"%clusterid.x", KN_S_CLUSTERID_X},
    {"%clusterid.y", KN_S_CLUSTERID_Y},
    {"%clusterid.z", KN_S_CLUSTERID_Z},
    {"%nclusterid.x", KN_S_NCLUSTERID_X},
    {"%nclusterid.y", KN_S_NCLUSTERID_Y},
    {"%nclusterid.z", KN_S_NCLUSTERID_Z},
    {"%cluster_ctaid.x", KN_S_CLUSTER_CTAID_X},
    {"%cluster_ctaid.y", KN_S_CLUSTER_CTAID_Y},
    {"%cluster_ctaid.z", KN_S_CLUSTER_CTAID_Z},
    {"%cluster_nctaid.x", KN_S_CLUSTER_NCTAID_X},
    {"%cluster_nctaid.y", KN_S_CLUSTER_NCTAID_Y},
    {"%cluster_nctaid.z", KN_S_CLUSTER_NCTAID_Z},
    {"%cluster_ctarank", KN_S_CLUSTER_CTARANK},
    {"%cluster_nctarank", KN_S_CLUSTER_NCTARANK},
    {"%dynamic_smem_size", KN_S_DYNAMIC_SMEM},
    {"%total_smem_size", KN_S_TOTAL_SMEM},
    {"%aggr_smem_size", KN_S_AGGR_SMEM},
};
static const struct {
    const char *name;
    uint8_t id, bytes;
} clocks[] = {{"%clock", KN_CLOCK, 4},
              {"%clock_hi", KN_CLOCK_HI, 4},
              {"%clock64", KN_CLOCK64, 8},
              {"%globaltimer", KN_GLOBALTIMER, 8},
              {"%globaltimer_lo", KN_GLOBALTIMER_LO, 4},
              {"%globaltimer_hi", KN_GLOBALTIMER_HI, 4}};

/* Special registers look like registers that no instruction may write: `negate` marks them. */
static bool special_operand(kn_ptx *p, const char *text, uint32_t len, kn_operand *out) {
    for (size_t k = 0; k < sizeof specials / sizeof specials[0]; k++) {
        if (!kn_ptx_word_is(text, len, specials[k].name)) continue;
        uint32_t *slot = &p->entry->special_slot[specials[k].id];
        if (*slot == KN_NO_SLOT) *slot = p->entry->n_slots++;
        out->kind = KN_O_REG;
        out->bytes = 4;
        out->slot = *slot;
        out->negate = true;
        return true;
    }
    for (size_t k = 0; k < sizeof clocks / sizeof clocks[0]; k++) {
        if (!kn_ptx_word_is(text, len, clocks[k].name)) continue;
        out->kind = KN_O_CLOCK;
        out->bytes = clocks[k].bytes;
        out->imm = clocks[k].id;
        return true;
    }
    return false;
}

/* Register, special register, variable, or (else) the name of a label. */
static kn_status name_operand(kn_ptx *p, const char *text, uint32_t len, kn_operand *out) {
    uint32_t slot;
    uint8_t bytes;
    if (len == 1 && text[0] == '_') {
        out->kind = KN_O_SINK;
        return KN_OK;
    }
    if (kn_ptx_word_is(text, len, "WARP_SZ")) {
        out->kind = KN_O_IMM;
        out->imm = KN_LANES;
        return KN_OK;
    }
    if (kn_ptx_register(p, text, len, &slot, &bytes)) {
        out->kind = bytes ? KN_O_REG : KN_O_PRED;
        out->bytes = bytes;
        out->slot = slot;
        return KN_OK;
    }
    const kn_name *n = kn_ptx_find(p, text, len);
    if (n && n->kind == KN_N_VARIABLE) {
        out->kind = KN_O_SYMBOL;
        out->space = n->space;
        out->imm = n->address;
        return KN_OK;
    }
    if (special_operand(p, text, len, out)) return KN_OK;
    if (text[0] == '%')
        return kn_ptx_error(p, "%.*s is no declared register and no known special register", (int)len, text);
    out->kind = KN_O_LABEL; /* lanes: its name, until the scope closes */
    out->slot = len;
    out->lanes = text;
    return KN_OK;
}

/* "+ 16", "-8", "+-8", repeated. */
static kn_status displacement(kn_ptx *p, int64_t *sum) {
    while (kn_ptx_is(p, '+') || kn_ptx_is(p, '-')) {
        kn_literal kind;
        uint64_t bits;
        bool negative;
        kn_ptx_take(p, '+');
        KN_TRY(kn_ptx_number(p, &kind, &bits, &negative));
        if (kind != KN_LIT_INT) return kn_ptx_error(p, "a displacement must be an integer");
        *sum = (int64_t)((uint64_t)*sum + bits);
    }
    return KN_OK;
}

static kn_status number_operand(kn_ptx *p, kn_operand *out) {
    kn_literal kind;
    uint64_t bits;
    KN_TRY(kn_ptx_number(p, &kind, &bits, &out->negate));
    out->kind = KN_O_IMM;
    out->space = (uint8_t)kind;
    out->imm = (int64_t)bits;
    return KN_OK;
}

/* Room for elements; they stay where they are until the statement ends, then move to the arena. */
static kn_status elements(kn_ptx *p, uint32_t n, kn_operand **out) {
    if (p->n_scratch + n > sizeof p->scratch / sizeof p->scratch[0])
        return kn_ptx_error(p, "more than %d elements in one instruction", KN_PTX_MAX_ELEMENTS * 2);
    *out = &p->scratch[p->n_scratch];
    memset(*out, 0, n * sizeof **out);
    p->n_scratch += n;
    return KN_OK;
}

static kn_status simple_operand(kn_ptx *p, kn_operand *out) {
    const char *text;
    uint32_t len;
    if (kn_ptx_take(p, '!')) {
        KN_TRY(simple_operand(p, out));
        if (out->kind != KN_O_PRED || out->negate) return kn_ptx_error(p, "'!' needs a predicate behind it");
        out->negate = true;
        return KN_OK;
    }
    kn_ptx_skip(p);
    bool dots = p->at < p->end && *p->at == '%';
    if (!kn_ptx_word(p, dots, &text, &len)) return number_operand(p, out);
    KN_TRY(name_operand(p, text, len, out));
    if (out->kind == KN_O_SYMBOL) return displacement(p, &out->imm);
    return KN_OK;
}

static kn_status list_operand(kn_ptx *p, kn_operand *out) {
    kn_operand *first = NULL;
    uint32_t n = 0;
    do {
        kn_operand *e = NULL;
        if (n == KN_PTX_MAX_ELEMENTS) return kn_ptx_error(p, "a list of more than %d elements", KN_PTX_MAX_ELEMENTS);
        KN_TRY(elements(p, 1, &e));
        if (n++ == 0) first = e;
        KN_TRY(simple_operand(p, e));
    } while (kn_ptx_take(p, ','));
    KN_TRY(kn_ptx_expect(p, '}'));
    if (n > 255) return kn_ptx_error(p, "a list of more than 255 elements");
    out->kind = KN_O_VEC;
    out->n = (uint8_t)n;
    out->elem = first;
    return KN_OK;
}

static kn_status address_operand(kn_ptx *p, kn_operand *out) {
    kn_operand base = {0};
    KN_TRY(simple_operand(p, &base));
    out->kind = KN_O_ADDR;
    out->slot = KN_NO_SLOT;
    if (base.kind == KN_O_REG && (base.bytes == 4 || base.bytes == 8)) {
        out->slot = base.slot;
        out->bytes = base.bytes;
    } else if (base.kind == KN_O_SYMBOL) {
        out->space = base.space;
        out->imm = base.imm;
    } else if (base.kind == KN_O_IMM && base.space == KN_LIT_INT) {
        out->imm = base.imm;
    } else if (base.kind == KN_O_LABEL) {
        return kn_ptx_error(p, "unknown name %.*s", (int)base.slot, (const char *)base.lanes);
    } else {
        return kn_ptx_error(p, "an address must be a 32 or 64-bit register, a variable or an integer");
    }
    KN_TRY(displacement(p, &out->imm));
    if (kn_ptx_take(p, ',')) {
        kn_operand list = {0};
        KN_TRY(kn_ptx_expect(p, '{'));
        KN_TRY(list_operand(p, &list));
        out->n = list.n;
        out->elem = list.elem;
    }
    return kn_ptx_expect(p, ']');
}

kn_status kn_ptx_operand(kn_ptx *p, kn_operand *out) {
    memset(out, 0, sizeof *out);
    if (kn_ptx_take(p, '{')) return list_operand(p, out);
    if (kn_ptx_take(p, '[')) return address_operand(p, out);
    KN_TRY(simple_operand(p, out));
    if (!kn_ptx_take(p, '|')) return KN_OK;
    kn_operand *pair = NULL;
    KN_TRY(elements(p, 2, &pair));
    pair[0] = *out;
    KN_TRY(simple_operand(p, &pair[1]));
    memset(out, 0, sizeof *out);
    out->kind = KN_O_PAIR;
    out->n = 2;
    out->elem = pair;
    return KN_OK;
}

/* ---- the fit ------------------------------------------------------------------------------------------------ */

/* 32 copies of an immediate in the module's arena, shared by equal ones. */
static kn_status broadcast(kn_ptx *p, kn_operand *o, uint64_t bits, uint32_t bytes) {
    uint32_t width = bytes == 8 ? 8 : 4;
    kn_imm **bucket = &p->imm[(bits ^ bits >> 17 ^ bits >> 40 ^ width) % KN_IMM_BUCKETS];
    kn_imm *e = *bucket;
    while (e && (e->bits != bits || e->bytes != width)) e = e->next;
    if (!e) {
        e = kn_arena_alloc(&p->module->arena, sizeof *e);
        void *lanes = kn_arena_alloc(&p->module->arena, (size_t)width * KN_LANES);
        if (!e || !lanes) return kn_fail(KN_E_NOMEM, "out of memory for an immediate");
        *e = (kn_imm){*bucket, bits, width, lanes};
        *bucket = e;
        for (int l = 0; l < KN_LANES; l++) {
            if (width == 8)
                ((uint64_t *)lanes)[l] = bits;
            else
                ((uint32_t *)lanes)[l] = (uint32_t)bits;
        }
    }
    o->imm = (int64_t)bits;
    o->bytes = (uint8_t)bytes;
    o->lanes = e->lanes;
    return KN_OK;
}

/* The bits of an immediate as `type`. */
static kn_status fit_immediate(kn_ptx *p, kn_operand *o, kn_type type) {
    uint32_t bytes = kn_type_bytes[type];
    uint64_t bits = (uint64_t)o->imm;
    bool floating = kn_type_kind[type] == 'f';
    kn_literal literal = (kn_literal)o->space;
    bool negative = o->negate;
    if (o->lanes) return KN_OK; /* has been fitted: an operand that two elements share */
    o->space = 0;
    o->negate = false;
    if (bytes == 0 || bytes > 8) return kn_ptx_error(p, "no immediate is possible for .%s", kn_type_text(type));
    if (literal == KN_LIT_INT) {
        if (floating) return kn_ptx_error(p, "an integer where .%s wants a floating literal", kn_type_text(type));
        int64_t low = bytes == 8 ? INT64_MIN : -(INT64_C(1) << (8 * bytes - 1));
        uint64_t high = bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * bytes) - 1;
        if (negative ? o->imm < low : bits > high)
            return kn_ptx_error(p, "%s%llu does not fit .%s", negative ? "-" : "",
                                (unsigned long long)(negative ? 0 - bits : bits), kn_type_text(type));
        return broadcast(p, o, bits & high, bytes);
    }
    if (kn_type_kind[type] != 'b' && !floating)
        return kn_ptx_error(p, "a floating literal where .%s wants an integer", kn_type_text(type));
    if (literal == KN_LIT_F64 && bytes == 4) { /* rounded to nearest, as ptxas does */
        double wide;
        memcpy(&wide, &bits, sizeof wide);
        float narrow = (float)wide;
        uint32_t b32;
        memcpy(&b32, &narrow, sizeof b32);
        return broadcast(p, o, b32, 4);
    }
    if (literal == KN_LIT_F32 && bytes == 8) {
        uint32_t b32 = (uint32_t)bits;
        float narrow;
        memcpy(&narrow, &b32, sizeof narrow);
        double wide = (double)narrow;
        memcpy(&bits, &wide, sizeof bits);
        return broadcast(p, o, bits, 8);
    }
    if ((literal == KN_LIT_F32 && bytes != 4) || (literal == KN_LIT_F64 && bytes != 8))
        return kn_ptx_error(p, "a floating literal does not fit .%s", kn_type_text(type));
    return broadcast(p, o, bits, bytes);
}

static kn_status fit_register(kn_ptx *p, const kn_insn *i, kn_operand *o, kn_type type, bool written) {
    uint32_t want = kn_type_bytes[type];
    bool wider = (i->flags & KN_I_WIDER) != 0;
    if (written && o->kind == KN_O_SINK) return KN_OK;
    if (o->kind == KN_O_IMM && !written) return fit_immediate(p, o, type);
    if (o->kind == KN_O_SYMBOL && !written) {
        if (want < 4 || kn_type_kind[type] == 'f')
            return kn_ptx_error(p, "an address does not fit .%s", kn_type_text(type));
        o->bytes = (uint8_t)want;
        return KN_OK;
    }
    if (o->kind == KN_O_LABEL) return kn_ptx_error(p, "unknown name %.*s", (int)o->slot, (const char *)o->lanes);
    if (o->kind == KN_O_CLOCK && !written && o->bytes == want) return KN_OK;
    if (o->kind != KN_O_REG)
        return kn_ptx_error(p, "%s: an operand must be a register%s of .%s", i->text, written ? "" : " or value",
                            kn_type_text(type));
    if (written && o->negate) return kn_ptx_error(p, "%s: a special register cannot be written", i->text);
    if (o->bytes != want && !(wider && o->bytes > want))
        return kn_ptx_error(p, "%s: a %d-bit register where .%s is wanted", i->text, o->bytes * 8, kn_type_text(type));
    return KN_OK;
}

static kn_status fit_predicate(kn_ptx *p, const kn_insn *i, kn_operand *o, bool written) {
    if (written && o->kind == KN_O_SINK) return KN_OK;
    if (!written && o->kind == KN_O_IMM && o->space == KN_LIT_INT && !o->negate && (o->imm == 0 || o->imm == 1)) {
        o->bytes = 1; /* wgmma's scale-d may be a literal */
        return KN_OK;
    }
    if (o->kind != KN_O_PRED) return kn_ptx_error(p, "%s: a predicate is wanted", i->text);
    if (written && o->negate) return kn_ptx_error(p, "%s: a negated predicate cannot be written", i->text);
    return KN_OK;
}

/* A list for which only the row's prep knows the widths: registers of any width; immediates share the first type. */
static kn_status fit_any_list(kn_ptx *p, const kn_insn *i, kn_operand *o, bool written) {
    if (o->kind != KN_O_VEC) return fit_register(p, i, o, (kn_type)i->type[0], written);
    kn_operand *e = &p->scratch[o->elem - p->scratch];
    uint32_t share = kn_type_bytes[i->type[0]] / o->n;
    kn_type type = share == 1 ? KN_T_b8 : share == 2 ? KN_T_b16 : share == 4 ? KN_T_b32 : KN_T_none;
    for (uint32_t k = 0; k < o->n; k++) {
        if (written && (e[k].kind == KN_O_SINK || (e[k].kind == KN_O_REG && !e[k].negate))) continue;
        if (!written && e[k].kind == KN_O_REG) continue;
        if (!written && e[k].kind == KN_O_IMM)
            KN_TRY(fit_immediate(p, &e[k], type));
        else
            return kn_ptx_error(p, "%s: element %u of a list must be a register", i->text, k);
    }
    return KN_OK;
}

static kn_status fit_vector(kn_ptx *p, const kn_insn *i, kn_operand *o, kn_type type, bool written) {
    if (i->vec == 1) return fit_register(p, i, o, type, written);
    if (o->kind != KN_O_VEC || o->n != i->vec) return kn_ptx_error(p, "%s: a list of %d is wanted", i->text, i->vec);
    kn_operand *e = &p->scratch[o->elem - p->scratch];
    for (uint32_t k = 0; k < o->n; k++) KN_TRY(fit_register(p, i, &e[k], type, written));
    return KN_OK;
}

static kn_status fit_address(kn_ptx *p, const kn_insn *i, kn_operand *o, bool coordinates) {
    if (o->kind != KN_O_ADDR) return kn_ptx_error(p, "%s: an [address] is wanted", i->text);
    if (coordinates != (o->n > 0))
        return kn_ptx_error(p, "%s: an address with%s coordinates is wanted", i->text, coordinates ? "" : "out");
    for (uint32_t k = 0; k < o->n; k++)
        KN_TRY(fit_register(p, i, &p->scratch[o->elem - p->scratch + k], KN_T_s32, false));
    return KN_OK;
}

/* "0", "b32", ...: the type that an element of a signature names. */
static kn_type element_type(const kn_insn *i, const char *text, size_t len) {
    if (len == 1 && text[0] >= '0' && text[0] <= '3') return (kn_type)i->type[text[0] - '0'];
    return kn_type_find(text, len);
}

static kn_status fit_pair(kn_ptx *p, const kn_insn *i, kn_operand *o, const char *text, size_t bar, bool written) {
    kn_operand *first = o;
    if (o->kind == KN_O_PAIR) {
        kn_operand *e = &p->scratch[o->elem - p->scratch];
        KN_TRY(fit_predicate(p, i, &e[1], written));
        first = e;
    }
    if (text[0] == 'p') return fit_predicate(p, i, first, written);
    return fit_register(p, i, first, element_type(i, text, bar), written);
}

static kn_status fit_one(kn_ptx *p, const kn_insn *i, kn_operand *o, const char *text, size_t len, bool written) {
    const char *bar = memchr(text, '|', len);
    if (bar) return fit_pair(p, i, o, text, (size_t)(bar - text), written);
    if (o->kind == KN_O_PAIR) return kn_ptx_error(p, "%s: takes no a|b operand there", i->text);
    if (len == 1) {
        switch (text[0]) {
        case 'V': return fit_any_list(p, i, o, written);
        case 'D':
            return o->kind == KN_O_VEC ? fit_any_list(p, i, o, written) : fit_register(p, i, o, KN_T_b64, written);
        case 'p': return fit_predicate(p, i, o, written);
        case 'm': return fit_address(p, i, o, false);
        case 't': return fit_address(p, i, o, true);
        case 'h': return fit_register(p, i, o, KN_T_b64, false);
        case 'i':
            if (o->kind != KN_O_IMM) return kn_ptx_error(p, "%s: an immediate is wanted", i->text);
            return fit_immediate(p, o, KN_T_b32);
        case 'l':
            if (o->kind != KN_O_LABEL) return kn_ptx_error(p, "%s: a label is wanted", i->text);
            return KN_OK;
        default: break;
        }
    }
    if (len == 2 && text[0] == 'v') return fit_vector(p, i, o, element_type(i, text + 1, 1), written);
    kn_type type = element_type(i, text, len);
    if (type == KN_T_none) return kn_fail(KN_E_INTERNAL, "isa.def: signature of %s: %.*s", i->text, (int)len, text);
    if (type == KN_T_pred) return fit_predicate(p, i, o, written);
    return fit_register(p, i, o, type, written);
}

/* One element of a signature. */
typedef struct element {
    const char *text;
    size_t len;
    bool written, optional;
} element;

/* The next element that the instruction's form asks for; false at the end. */
static bool next_element(const kn_insn *i, const char **s, element *e) {
    for (;;) {
        while (**s == ' ') ++*s;
        size_t len = strcspn(*s, " ");
        if (len == 0) return false;
        e->written = **s == '=';
        e->text = *s + e->written;
        e->len = len - e->written;
        e->optional = e->text[e->len - 1] == '?';
        e->len -= e->optional;
        *s += len;
        if (e->len != 1 || e->text[0] != 'h' || i->m[KN_M_HINT]) return true;
    }
}

static uint32_t count_required(const kn_insn *i, const char *s) {
    element e;
    uint32_t n = 0;
    while (next_element(i, &s, &e)) n += !e.optional;
    return n;
}

kn_status kn_ptx_fit(kn_ptx *p, kn_insn *i, kn_operand *op, uint32_t n) {
    uint32_t at = 0;
    const char *s = i->row->operands;
    element e;
    while (next_element(i, &s, &e)) {
        if (e.optional && n - at <= count_required(i, s)) continue; /* the others need all that is left */
        if (at == n) return kn_ptx_error(p, "%s: too few operands (%u)", i->text, n);
        KN_TRY(fit_one(p, i, &op[at++], e.text, e.len, e.written));
    }
    if (at != n) return kn_ptx_error(p, "%s: too many operands (%u, %u are wanted)", i->text, n, at);
    i->n_op = (uint8_t)n;
    return KN_OK;
}
