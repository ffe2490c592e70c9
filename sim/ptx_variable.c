/* Declarations: registers, variables of the state spaces, parameters of a kernel. */
#include "sim/isa.h"
#include "sim/ptx_parse.h"

static uint64_t round_up(uint64_t v, uint64_t align) {
    return (v + align - 1) / align * align;
}

static kn_status type_word(kn_ptx *p, kn_type *out) {
    const char *text;
    uint32_t len;
    if (!kn_ptx_directive(p, &text, &len)) return kn_ptx_error(p, "a type was expected");
    *out = kn_type_find(text, len);
    if (*out == KN_T_none || *out == KN_T_b128) return kn_ptx_error(p, "unknown type .%.*s", (int)len, text);
    return KN_OK;
}

kn_status kn_ptx_registers(kn_ptx *p) {
    kn_type type = KN_T_none;
    KN_TRY(type_word(p, &type));
    uint32_t width = kn_type_bytes[type] == 8 ? 2 : 1;
    do {
        kn_name n = {.kind = KN_N_REG, .bytes = kn_type_bytes[type], .count = 1};
        uint64_t count = 1;
        if (!kn_ptx_word(p, false, &n.text, &n.len)) return kn_ptx_error(p, ".reg needs a name");
        if (kn_ptx_take(p, '<')) {
            KN_TRY(kn_ptx_count(p, KN_PTX_MAX_SLOTS, "the number of registers", &count));
            KN_TRY(kn_ptx_expect(p, '>'));
            n.kind = KN_N_REG_RANGE;
            n.count = (uint32_t)count;
        }
        uint32_t *next = type == KN_T_pred ? &p->entry->n_preds : &p->entry->n_slots;
        n.slot = *next;
        if (*next + count * width > KN_PTX_MAX_SLOTS)
            return kn_ptx_error(p, "more than %d registers in one kernel", KN_PTX_MAX_SLOTS);
        *next += n.count * width;
        KN_TRY(kn_ptx_declare(p, &n));
    } while (kn_ptx_take(p, ','));
    return kn_ptx_expect(p, ';');
}

typedef struct variable {
    kn_name name;
    kn_type type;
    uint64_t align, bytes;
    bool unsized;
} variable;

/* ".align 16 .b8 name[128]" and ".u64 .ptr .global .align 16 name". */
static kn_status declarator(kn_ptx *p, variable *v) {
    const char *text;
    uint32_t len;
    bool aligned = false;
    while (kn_ptx_directive(p, &text, &len)) {
        if (kn_ptx_word_is(text, len, "align")) {
            KN_TRY(kn_ptx_count(p, 65536, ".align", &v->align));
            if (v->align == 0 || (v->align & (v->align - 1))) return kn_ptx_error(p, ".align must be a power of two");
            aligned = true;
        } else if (kn_type_find(text, len) != KN_T_none) {
            v->type = kn_type_find(text, len);
        } else if (!kn_ptx_word_is(text, len, "ptr") && !kn_ptx_word_is(text, len, "global") &&
                   !kn_ptx_word_is(text, len, "shared") && !kn_ptx_word_is(text, len, "const")) {
            return kn_ptx_error(p, "unknown word .%.*s in a declaration", (int)len, text);
        } else if (kn_ptx_word_is(text, len, "ptr")) {
            aligned = true; /* the .align that follows is of what it points to */
            v->align = kn_type_bytes[v->type];
            while (kn_ptx_directive(p, &text, &len)) {
                uint64_t unused;
                if (kn_ptx_word_is(text, len, "align")) KN_TRY(kn_ptx_count(p, 65536, ".align", &unused));
            }
        }
    }
    if (v->type == KN_T_none || v->type == KN_T_pred) return kn_ptx_error(p, "a declaration needs a type");
    if (!aligned) v->align = kn_type_bytes[v->type];
    if (!kn_ptx_word(p, false, &v->name.text, &v->name.len)) return kn_ptx_error(p, "a declaration needs a name");
    v->bytes = kn_type_bytes[v->type];
    v->name.kind = KN_N_VARIABLE;
    while (kn_ptx_take(p, '[')) {
        uint64_t count = 0;
        if (kn_ptx_take(p, ']')) {
            v->unsized = true;
            continue;
        }
        KN_TRY(kn_ptx_count(p, UINT32_MAX, "the length of an array", &count));
        KN_TRY(kn_ptx_expect(p, ']'));
        if (count > UINT32_MAX / (v->bytes ? v->bytes : 1)) return kn_ptx_error(p, "an array is too long");
        v->bytes *= count;
    }
    return KN_OK;
}

/* "= { 1, 2, {3} }" or "= 5" into the variable's memory. */
static kn_status initializer(kn_ptx *p, const variable *v, uint8_t *data) {
    uint64_t at = 0;
    int open = 0;
    do {
        kn_literal kind;
        uint64_t bits;
        bool negative;
        while (kn_ptx_take(p, '{')) open++;
        KN_TRY(kn_ptx_number(p, &kind, &bits, &negative));
        uint32_t item = kn_type_bytes[v->type];
        if (at + item > v->bytes) return kn_ptx_error(p, "more initial values than elements");
        if ((kind == KN_LIT_F32 && item != 4) || (kind == KN_LIT_F64 && item != 8))
            return kn_ptx_error(p, "an initial value does not fit .%s", kn_type_text(v->type));
        memcpy(data + at, &bits, item);
        at += item;
        while (open > 0 && kn_ptx_take(p, '}')) open--;
    } while (kn_ptx_take(p, ',') && open > 0);
    return open == 0 ? KN_OK : kn_ptx_error(p, "'}' was expected behind initial values");
}

static kn_status module_variable(kn_ptx *p, variable *v) {
    kn_sim_module *m = p->module;
    if (v->align < 16) v->align = 16;
    uint8_t *data = kn_arena_alloc(&m->arena, (size_t)(v->bytes + v->align));
    KN_TRY(kn_ptx_grow((void **)&m->variable, &p->room_variables, m->n_variables, sizeof *m->variable, "variables"));
    if (!data) return kn_fail(KN_E_NOMEM, "out of memory for a variable of %llu bytes", (unsigned long long)v->bytes);
    data = (uint8_t *)(uintptr_t)round_up((uint64_t)(uintptr_t)data, v->align);
    m->variable[m->n_variables++] = (kn_module_variable){data, v->bytes};
    v->name.address = (int64_t)(uintptr_t)data;
    if (kn_ptx_take(p, '=')) KN_TRY(initializer(p, v, data));
    return kn_ptx_declare(p, &v->name);
}

static kn_status shared_variable(kn_ptx *p, variable *v, bool external) {
    uint32_t *used = p->entry ? &p->entry->smem_static : &p->smem_module;
    if (external || v->unsized) {
        if (v->align > p->smem_align) p->smem_align = (uint32_t)v->align;
        v->name.address = KN_PTX_DYNAMIC; /* behind the static ones: known when the kernel is complete */
    } else {
        uint64_t at = round_up(KN_SMEM_RESERVED + *used, v->align);
        if (at + v->bytes > (1 << 20)) return kn_ptx_error(p, "static shared memory of over 1 MiB");
        v->name.address = (int64_t)at;
        *used = (uint32_t)(at + v->bytes - KN_SMEM_RESERVED);
    }
    return kn_ptx_declare(p, &v->name);
}

static kn_status local_variable(kn_ptx *p, variable *v) {
    if (!p->entry) return kn_ptx_error(p, ".local outside a kernel");
    uint64_t at = round_up(p->entry->local_bytes, v->align);
    if (at + v->bytes > (1 << 16)) return kn_ptx_error(p, "local memory of over 64 KiB a thread");
    v->name.address = (int64_t)at;
    p->entry->local_bytes = (uint32_t)(at + v->bytes);
    return kn_ptx_declare(p, &v->name);
}

kn_status kn_ptx_variable(kn_ptx *p, kn_space space, bool external) {
    do {
        variable v = {.name = {.space = (uint8_t)space}};
        KN_TRY(declarator(p, &v));
        if (v.unsized && space != KN_SPACE_SHARED) return kn_ptx_error(p, "an array without a length outside .shared");
        switch (space) {
        case KN_SPACE_SHARED: KN_TRY(shared_variable(p, &v, external)); break;
        case KN_SPACE_LOCAL: KN_TRY(local_variable(p, &v)); break;
        default:
            if (external)
                return kn_ptx_error(p, "%.*s: external variables cannot be linked", (int)v.name.len, v.name.text);
            KN_TRY(module_variable(p, &v));
        }
    } while (kn_ptx_take(p, ','));
    return kn_ptx_expect(p, ';');
}

kn_status kn_ptx_parameters(kn_ptx *p) {
    kn_entry *e = p->entry;
    uint32_t room = 0;
    if (kn_ptx_take(p, ')')) return KN_OK;
    do {
        const char *text;
        uint32_t len;
        variable v = {.name = {.space = KN_SPACE_PARAM}};
        if (!kn_ptx_directive(p, &text, &len) || !kn_ptx_word_is(text, len, "param"))
            return kn_ptx_error(p, ".param was expected");
        KN_TRY(declarator(p, &v));
        uint64_t at = round_up(e->params_bytes, v.align);
        if (at + v.bytes > 32764 || v.unsized) return kn_ptx_error(p, "parameters of over 32764 bytes");
        v.name.address = (int64_t)at;
        e->params_bytes = (uint32_t)(at + v.bytes);
        KN_TRY(kn_ptx_grow((void **)&e->param, &room, e->n_params, sizeof *e->param, "parameters"));
        char *name = kn_ptx_copy(p, v.name.text, v.name.len);
        if (!name) return kn_fail(KN_E_NOMEM, "out of memory for a parameter's name");
        e->param[e->n_params++] = (kn_entry_param){name, (uint32_t)at, (uint32_t)v.bytes};
        KN_TRY(kn_ptx_declare(p, &v.name));
    } while (kn_ptx_take(p, ','));
    return kn_ptx_expect(p, ')');
}
