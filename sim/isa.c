/* isa.def compiled in, and the match of an instruction's modifiers against the rows' patterns. */
#include "sim/isa.h"

const uint8_t kn_type_bytes[KN_T_COUNT] = {0,
#define KN_TYPE_BYTES(id, text, bytes, kind) bytes,
                                           KN_TYPES(KN_TYPE_BYTES)
#undef KN_TYPE_BYTES
};
const char kn_type_kind[KN_T_COUNT] = {0,
#define KN_TYPE_KIND(id, text, bytes, kind) kind,
                                       KN_TYPES(KN_TYPE_KIND)
#undef KN_TYPE_KIND
};
static const char *const type_text[KN_T_COUNT] = {"",
#define KN_TYPE_TEXT(id, text, bytes, kind) text,
                                                  KN_TYPES(KN_TYPE_TEXT)
#undef KN_TYPE_TEXT
};

static const struct {
    const char *text;
    kn_mod_class cls;
} tokens[KN_TOK_COUNT] = {
    {"", KN_M_WORD},
#define KN_TOKEN(id, text, cls) {text, cls},
#include "sim/tokens.def"
#undef KN_TOKEN
};

/* Every executor and preparer that the table names. */
#define KN_ISA(op, pattern, operands, exec, prep, flags)                                                               \
    kn_exec kn_x_##exec;                                                                                               \
    kn_prep kn_p_##prep;
#include "sim/isa.def"
#undef KN_ISA

static const kn_isa_row rows[] = {
#define KN_ISA(op, pattern, operands, exec, prep, flags) {op, pattern, operands, kn_x_##exec, kn_p_##prep, (flags)},
#include "sim/isa.def"
#undef KN_ISA
};

static const struct {
    const char *name, *alternatives;
} sets[] = {
    {"RND", "rn|rz|rm|rp"},
    {"INT", "u16|u32|u64|s16|s32|s64"},
    {"INT32", "u32|s32"},
    {"INT64", "u64|s64"},
    {"BITS", "b16|b32|b64"},
    {"ANY", "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f16|f32|f64|bf16|f16x2|bf16x2"},
    {"CMP", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"},
    {"BOOL", "and|or|xor"},
    {"SCOPE", "cta|cluster|gpu|sys"},
    {"HALF", "f16|bf16|f16x2|bf16x2"},
    {"PLAIN", "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"},
    {"MEM", "global|shared|shared::cta|shared::cluster|local|param|const"},
    {"CACHE", "ca|cg|cs|lu|cv|wb|wt|L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|"
              "L1::no_allocate"},
    {"L2EVICT", "L2::evict_normal|L2::evict_first|L2::evict_last"},
    {"PREFETCH", "L2::64B|L2::128B|L2::256B"},
};

uint32_t kn_isa_count(void) {
    return (uint32_t)(sizeof rows / sizeof rows[0]);
}
const kn_isa_row *kn_isa_at(uint32_t index) {
    return &rows[index];
}

static bool equals(const char *text, const char *part, size_t len) {
    return strncmp(text, part, len) == 0 && text[len] == 0;
}

const char *kn_isa_set(const char *name, size_t len) {
    for (size_t k = 0; k < sizeof sets / sizeof sets[0]; k++)
        if (equals(sets[k].name, name, len)) return sets[k].alternatives;
    return NULL;
}

kn_token kn_token_find(const char *text, size_t len) {
    for (int t = 1; t < KN_TOK_COUNT; t++)
        if (equals(tokens[t].text, text, len)) return (kn_token)t;
    return KN_TOK_NONE;
}
kn_type kn_type_find(const char *text, size_t len) {
    for (int t = 1; t < KN_T_COUNT; t++)
        if (equals(type_text[t], text, len)) return (kn_type)t;
    return KN_T_none;
}
const char *kn_type_text(kn_type type) {
    return type_text[type];
}

bool kn_space_find(const char *text, size_t len, kn_space *out) {
    static const struct {
        const char *text;
        kn_space space;
    } names[] = {{"global", KN_SPACE_GLOBAL},      {"shared", KN_SPACE_SHARED},
                 {"shared::cta", KN_SPACE_SHARED}, {"shared::cluster", KN_SPACE_SHARED_CLUSTER},
                 {"param", KN_SPACE_PARAM},        {"local", KN_SPACE_LOCAL},
                 {"const", KN_SPACE_CONST}};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        if (!equals(names[k].text, text, len)) continue;
        *out = names[k].space;
        return true;
    }
    return false;
}

/* "m64n128k16" -> 64, 128, 16; "m8n8" -> 8, 8, 0. */
static bool parse_shape(const char *text, size_t len, uint16_t shape[3]) {
    static const char letter[3] = {'m', 'n', 'k'};
    size_t at = 0;
    uint16_t out[3] = {0, 0, 0};
    for (int k = 0; k < 3 && at < len; k++) {
        if (text[at++] != letter[k]) return false;
        size_t digits = 0;
        unsigned v = 0;
        for (; at < len && text[at] >= '0' && text[at] <= '9' && digits < 4; at++, digits++)
            v = v * 10 + (unsigned)(text[at] - '0');
        if (digits == 0) return false;
        out[k] = (uint16_t)v;
    }
    if (at != len || out[1] == 0) return false;
    memcpy(shape, out, sizeof out);
    return true;
}

typedef struct part {
    const char *text;
    size_t len;
} part;

/* Is the modifier one of the alternatives "a|b|SET"? A set's own alternatives are plain. */
static bool fits(const part *mod, const char *alternatives, size_t len) {
    uint16_t shape[3];
    for (const char *at = alternatives, *end = at + len; at < end;) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        size_t n = (size_t)((bar ? bar : end) - at);
        const char *set = at[0] >= 'A' && at[0] <= 'Z' ? kn_isa_set(at, n) : NULL;
        if (set && fits(mod, set, strlen(set))) return true;
        if (n == mod->len && memcmp(at, mod->text, n) == 0) return true;
        if (equals("SHAPE", at, n) && parse_shape(mod->text, mod->len, shape)) return true;
        at += n + 1;
    }
    return false;
}

/* The next element of a pattern; false at its end. */
static bool next_element(const char **pattern, part *element, bool *optional) {
    while (**pattern == ' ') ++*pattern;
    if (!**pattern) return false;
    element->text = *pattern;
    while (**pattern && **pattern != ' ') ++*pattern;
    element->len = (size_t)(*pattern - element->text);
    *optional = element->text[element->len - 1] == '?';
    if (*optional) element->len--;
    return true;
}

static bool match(const char *pattern, const part *mods, int n) {
    part element;
    bool optional;
    int at = 0;
    while (next_element(&pattern, &element, &optional)) {
        if (at < n && fits(&mods[at], element.text, element.len))
            at++;
        else if (!optional)
            return false;
    }
    return at == n;
}

/* Record what a modifier says; words that only name the form leave no trace. */
static void take(kn_insn *i, const part *mod, int *types, int *spaces) {
    kn_type type = kn_type_find(mod->text, mod->len);
    kn_space space;
    if (type != KN_T_none) {
        if (*types < 4) i->type[(*types)++] = (uint8_t)type;
    } else if (kn_space_find(mod->text, mod->len, &space)) {
        if (*spaces < 2) i->space[(*spaces)++] = (uint8_t)space;
    } else if (!parse_shape(mod->text, mod->len, i->shape)) {
        kn_token tok = kn_token_find(mod->text, mod->len);
        i->m[tokens[tok].cls] = (uint8_t)tok;
    }
}
_Static_assert(KN_TOK_COUNT <= 256, "a token fits a byte");

kn_status kn_isa_decode(const char *text, kn_insn *out) {
    enum { MODS = 24 };
    part mods[MODS];
    int n = 0;
    size_t op_len = strcspn(text, ".");
    for (const char *at = text + op_len; *at;) {
        if (n == MODS) return kn_fail(KN_E_SIM, "%.200s: more than %d modifiers", text, MODS);
        mods[n].text = ++at;
        mods[n].len = strcspn(at, ".");
        at += mods[n++].len;
    }
    bool known = false;
    for (uint32_t r = 0; r < kn_isa_count(); r++) {
        if (!equals(rows[r].op, text, op_len)) continue;
        known = true;
        if (!match(rows[r].pattern, mods, n)) continue;
        memset(out, 0, sizeof *out);
        int types = 0, spaces = 0;
        for (int k = 0; k < n; k++) take(out, &mods[k], &types, &spaces);
        out->text = text;
        out->row = &rows[r];
        out->exec = rows[r].exec;
        out->flags = rows[r].flags;
        out->vec = out->m[KN_M_VEC] == KN_TOK_v2   ? 2
                   : out->m[KN_M_VEC] == KN_TOK_v4 ? 4
                   : out->m[KN_M_VEC] == KN_TOK_v8 ? 8
                                                   : 1;
        return KN_OK;
    }
    if (known) return kn_fail(KN_E_SIM, "unknown form %.200s: no row of sim/isa.def has these modifiers", text);
    return kn_fail(KN_E_SIM, "unknown instruction %.200s", text);
}
