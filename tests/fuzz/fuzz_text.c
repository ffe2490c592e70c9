/* Mutations of texts, by line and by word: random bytes would rarely get past the first line of a template or of PTX.
 */
#include "fuzz/fuzz_replay.h"

#include <string.h>

/* A line of the text: [*from, *to) with its newline. */
static void pick_line(const uint8_t *text, size_t size, size_t *from, size_t *to) {
    *from = kn_fuzz_draw(size);
    while (*from > 0 && text[*from - 1] != '\n') --*from;
    const uint8_t *nl = memchr(text + *from, '\n', size - *from);
    *to = nl ? (size_t)(nl - text) + 1 : size;
}

/* The start of some line. */
static size_t pick_start(const uint8_t *text, size_t size) {
    size_t at = kn_fuzz_draw(size + 1);
    while (at > 0 && text[at - 1] != '\n') at--;
    return at;
}

static const char *const words[] = {"#if",
                                    "#for i in 0 .. 9",
                                    "#end\n",
                                    "#else\n",
                                    "#macro m(a)\n",
                                    "#use m(1)\n",
                                    "#let a = 1\n",
                                    "#regs .b32 r[4]\n",
                                    "#smem s 64\n",
                                    "#include \"lib/a.ptxi\"\n",
                                    "#assert 1 \"x\"\n",
                                    "#param A in 1 .. 4 = 2 // a\n",
                                    "${",
                                    "}",
                                    "L@a",
                                    "L@a:\n",
                                    "-1",
                                    "0",
                                    "9223372036854775807",
                                    "1e-30",
                                    "0.5",
                                    "[*]",
                                    "[0 .. 2]",
                                    "\"",
                                    "(",
                                    ")",
                                    ",",
                                    "a",
                                    "T",
                                    "bf16",
                                    " + ",
                                    " << ",
                                    " / ",
                                    "f32(",
                                    "len(",
                                    ".entry",
                                    ".param .u64 a",
                                    "{",
                                    "//",
                                    "\\\n",
                                    "=== lib/a.ptxi\n",
                                    " ? ",
                                    " : ",
                                    "%r",
                                    "\xff"};

static size_t edit(uint8_t *text, size_t size) {
    size_t from, to, at = kn_fuzz_draw(size);
    const char *word = words[kn_fuzz_draw(sizeof words / sizeof *words)];
    const kn_fuzz_file *other = &kn_fuzz_corpus[kn_fuzz_draw(kn_fuzz_files)];
    switch (kn_fuzz_draw(7)) {
    case 0: return kn_fuzz_replace(text, size, at, at, word, strlen(word));
    case 1: /* a word for another */
        for (from = at; from > 0 && text[from - 1] > ' '; from--) continue;
        for (to = at; to < size && text[to] > ' '; to++) continue;
        return kn_fuzz_replace(text, size, from, to, word, strlen(word));
    case 2: /* a line goes */ pick_line(text, size, &from, &to); return kn_fuzz_replace(text, size, from, to, "", 0);
    case 3: /* a line comes twice, or elsewhere */
        pick_line(text, size, &from, &to);
        at = pick_start(text, size);
        return kn_fuzz_replace(text, size, at, at, text + from, to - from);
    case 4: /* a line of another file */
        if (!other->size) return size;
        pick_line(other->data, other->size, &from, &to);
        at = pick_start(text, size);
        return kn_fuzz_replace(text, size, at, at, other->data + from, to - from);
    case 5: return kn_fuzz_replace(text, size, at, at + 1, "", 0);
    default: text[at] = (uint8_t)(' ' + kn_fuzz_draw(95)); return size;
    }
}

size_t kn_fuzz_mutate(uint8_t *text, size_t size) {
    for (uint64_t edits = 1 + kn_fuzz_draw(4); edits && size; edits--) size = edit(text, size);
    return size;
}
