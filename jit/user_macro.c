/* jit/user_function: PTX of one small kernel, as NVRTC writes it, into a macro of the template language. The kernel has
 * the parameters g, u, dh and a pointer to which it stores h, dg and du. Line by line: loads of the first three and
 * stores become moves, registers and labels become the macro's own. Everything else that a macro cannot hold (calls,
 * memory, threads) is refused, with the line that has it. */
#include "jit/user_function.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 512, MAX_POINTERS = 8 };

typedef struct macro {
    kn_buf *out;
    char pointer[MAX_POINTERS][32]; /* registers that hold the kernel's pointer */
    int n_pointers;
    int early_returns; /* branches to the end */
} macro;

static const char *const inputs[] = {"g", "u", "dh"}, *const outputs[] = {"h", "dg", "du"};

static kn_status refuse(const char *line, const char *why) {
    return kn_fail(KN_E_UNSUPPORTED, "activation.source: %s: \"%s\"", why, line);
}

static bool starts(const char *s, const char *with) {
    return strncmp(s, with, strlen(with)) == 0;
}

static bool is_pointer(const macro *m, const char *name, size_t len) {
    for (int i = 0; i < m->n_pointers; i++)
        if (strlen(m->pointer[i]) == len && memcmp(m->pointer[i], name, len) == 0) return true;
    return false;
}

/* The word at *s, a register or a label: its length, *s moves behind it and the comma or blanks that follow. */
static size_t take_word(const char **s, const char **word) {
    *word = *s;
    size_t n = strcspn(*s, " \t,;[]{}");
    *s += n;
    *s += strspn(*s, " \t,");
    return n;
}

static kn_status add_pointer(macro *m, const char *line, const char *name, size_t len) {
    if (m->n_pointers == MAX_POINTERS || len >= sizeof m->pointer[0])
        return refuse(line, "its results take more pointers than were expected");
    memcpy(m->pointer[m->n_pointers], name, len);
    m->pointer[m->n_pointers++][len] = '\0';
    return KN_OK;
}

/* "%f12" -> "${user_f[12]}": registers of the macro's own arrays. */
static kn_status put_register(macro *m, const char *line, const char **s) {
    const char *name = *s + 1;
    size_t letters = 0, digits = 0;
    while (islower((unsigned char)name[letters])) letters++;
    while (isdigit((unsigned char)name[letters + digits])) digits++;
    char next = name[letters + digits];
    if (letters == 0 || digits == 0 || isalnum((unsigned char)next) || next == '_' || next == '.')
        return refuse(line, "it may use neither threads nor memory");
    kn_buf_addf(m->out, "${user_%.*s[%.*s]}", (int)letters, name, (int)digits, name + letters);
    *s = name + letters + digits;
    return KN_OK;
}

/* "$L__BB0_2" -> "L@user_BB0_2". */
static void put_label(macro *m, const char **s) {
    const char *name = *s + 1;
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || name[n] == '_') n++;
    kn_buf_addf(m->out, "L@user_%.*s", (int)n, name);
    *s = name + n;
}

/* [text, end) as it is, but for registers and labels. `line` is for errors. */
static kn_status put_text(macro *m, const char *line, const char *text, const char *end) {
    bool opcode = true;
    while (text < end) {
        bool fresh = text == line || strchr(" \t,[{", text[-1]);
        if (*text == '%') {
            KN_TRY(put_register(m, line, &text));
        } else if (*text == '$') {
            put_label(m, &text);
        } else if (fresh && (isalpha((unsigned char)*text) || *text == '_')) {
            if (!opcode) return refuse(line, "it may use neither threads nor memory");
            opcode = false;
            while (text < end && *text != ' ' && *text != '\t') kn_buf_add_char(m->out, *text++);
        } else {
            kn_buf_add_char(m->out, *text++);
        }
    }
    return KN_OK;
}

static kn_status put_line(macro *m, const char *line) {
    kn_buf_add(m->out, line[0] == '$' ? "" : "    ");
    KN_TRY(put_text(m, line, line, line + strlen(line)));
    kn_buf_add_char(m->out, '\n');
    return KN_OK;
}

/* ".reg .f32 %f<59>;" */
static kn_status put_declaration(macro *m, const char *line) {
    char type[16], name[16];
    int count;
    if (sscanf(line, ".reg .%15[a-z0-9] %%%15[a-z]<%d>;", type, name, &count) != 3)
        return refuse(line, "it needs memory of its own");
    kn_buf_addf(m->out, "    #regs .%s user_%s[%d]\n", type, name, count);
    return KN_OK;
}

/* "ld.param.f32 %f5, [kiln_user_param_0];" */
static kn_status put_parameter(macro *m, const char *line, const char *operands) {
    const char *dst;
    size_t n = take_word(&operands, &dst);
    int index;
    if (sscanf(operands, "[kiln_user_param_%d];", &index) != 1 || index < 0 || index > 3)
        return refuse(line, "its parameters are not those of f(g, u, dh, &h, &dg, &du)");
    if (index == 3) return add_pointer(m, line, dst, n);
    kn_buf_add(m->out, "    mov.b32 ");
    KN_TRY(put_register(m, line, &dst));
    kn_buf_addf(m->out, ", ${%s};\n", inputs[index]);
    return KN_OK;
}

/* "st.global.f32 [%rd2+4], %f57;" */
static kn_status put_result(macro *m, const char *line, const char *operands) {
    const char *base, *p = operands + 1;
    size_t n = take_word(&p, &base);
    size_t name = strcspn(base, "+");
    if (name > n) name = n;
    long offset = name < n ? strtol(base + name, NULL, 10) : 0;
    if (*operands != '[' || !is_pointer(m, base, name) || offset < 0 || offset > 8 || offset % 4 != 0)
        return refuse(line, "it may write nothing but *h, *dg and *du");
    p = strchr(p, ']');
    if (!p) return refuse(line, "it may write nothing but *h, *dg and *du");
    p++;
    p += strspn(p, " \t,");
    /* A constant says by its form what it is. */
    kn_buf_addf(m->out, "    mov.%s ${%s}, ", starts(p, "0f") ? "f32" : "b32", outputs[offset / 4]);
    if (*p == '%') KN_TRY(put_register(m, line, &p));
    kn_buf_add(m->out, p);
    kn_buf_add_char(m->out, '\n');
    return KN_OK;
}

/* "ret;" in the middle: a branch to the end. */
static kn_status put_return(macro *m, const char *line, const char *op) {
    m->early_returns++;
    kn_buf_add(m->out, "    ");
    KN_TRY(put_text(m, line, line, op));
    kn_buf_add(m->out, "bra L@user_done;\n");
    return KN_OK;
}

static bool touches_memory(const char *op) {
    static const char *const names[] = {"ld.",  "ldu.",     "st.",  "atom.", "red.",
                                        "bar.", "barrier.", "cvta", "tex.",  "prefetch"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (starts(op, names[i])) return true;
    return false;
}

/* "cvta.to.global.u64 %rd2, %rd1;" */
static kn_status put_pointer(macro *m, const char *line, const char *operands) {
    const char *dst, *src;
    size_t n = take_word(&operands, &dst), k = take_word(&operands, &src);
    if (!is_pointer(m, src, k)) return refuse(line, "it may use neither threads nor memory");
    return add_pointer(m, line, dst, n);
}

/* One line of the kernel's body, without blanks around it. `last`: nothing but the closing brace follows. */
static kn_status put_statement(macro *m, const char *line, bool last) {
    size_t len = strlen(line);
    if (starts(line, ".reg")) return put_declaration(m, line);
    if (starts(line, ".pragma")) return KN_OK;
    if (line[0] == '.') return refuse(line, "it needs memory of its own");
    if (line[0] == '$' && line[len - 1] == ':') return put_line(m, line);
    if (line[0] == '{') return refuse(line, "a function in it was not inlined; mark it __forceinline__");
    if (line[len - 1] != ';') return refuse(line, "it contains what Kiln cannot take apart");
    const char *op = line;
    if (*op == '@') op += strcspn(op, " \t");
    op += strspn(op, " \t");
    const char *operands = op + strcspn(op, " \t;");
    operands += strspn(operands, " \t");
    if (starts(op, "ret;")) return last && op == line ? KN_OK : put_return(m, line, op);
    if (op == line && starts(op, "ld.param.")) return put_parameter(m, line, operands);
    if (op == line && starts(op, "cvta.to.global.")) return put_pointer(m, line, operands);
    if (op == line && starts(op, "st.global.") && strchr(op, '[') == operands) return put_result(m, line, operands);
    if (touches_memory(op)) return refuse(line, "it may use neither threads nor memory");
    return put_line(m, line);
}

/* The next line of *text without blanks around it and without comment, in `line`. false at the end. */
static bool next_line(const char **text, char line[MAX_LINE], bool *too_long) {
    if (**text == '\0') return false;
    const char *from = *text, *end = from + strcspn(from, "\n");
    *text = *end ? end + 1 : end;
    for (const char *c = from; c + 1 < end; c++)
        if (c[0] == '/' && c[1] == '/') end = c;
    while (from < end && isspace((unsigned char)*from)) from++;
    while (end > from && isspace((unsigned char)end[-1])) end--;
    *too_long = end - from >= MAX_LINE;
    size_t n = *too_long ? MAX_LINE - 1 : (size_t)(end - from);
    memcpy(line, from, n);
    line[n] = '\0';
    return true;
}

static bool is_last(const char *text) {
    char line[MAX_LINE] = "";
    bool too_long = false;
    while (next_line(&text, line, &too_long) && !line[0]) {
    }
    return strcmp(line, "}") == 0;
}

kn_status kn_user_function_macro(const char *ptx, kn_buf *out) {
    macro m = {.out = out};
    char line[MAX_LINE];
    bool too_long = false;
    const char *text = strstr(ptx, ".entry kiln_user(");
    text = text ? strstr(text, "\n{") : NULL;
    KN_REQUIRE(text, KN_E_ASSEMBLE, "NVRTC's PTX of activation.source has no kernel kiln_user");
    text += 2;
    kn_buf_add(out, "#// A function of the caller's, as NVRTC compiled it.\n"
                    "#macro user_function(g, u, dh, h, dg, du)\n");
    while (next_line(&text, line, &too_long) && strcmp(line, "}") != 0) {
        if (too_long) return refuse(line, "it contains what Kiln cannot take apart");
        if (line[0]) KN_TRY(put_statement(&m, line, is_last(text)));
    }
    if (m.early_returns) kn_buf_add(out, "L@user_done:\n");
    kn_buf_add(out, "#end\n");
    return kn_buf_status(out);
}
