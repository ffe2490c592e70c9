/* Runs the expander's fuzz target without a fuzzing engine: every file of the corpus, then mutations of them by line
 * and by word, drawn from a fixed seed: random bytes would rarely get past the first line of a template. `fuzz_expand
 * CORPUS-FOLDER MUTATIONS [FIRST]`; a failure aborts and names the mutation that makes it again. */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_FILES = 64, MAX_BYTES = 1 << 14 };

typedef struct sample {
    char text[MAX_BYTES];
    size_t size;
    char name[256];
} sample;

static sample corpus[MAX_FILES];
static size_t n_files;
static char at_work[320] = "nothing yet\n";
static uint64_t state;

static void on_signal(int number) {
    ssize_t ignored = write(2, at_work, strlen(at_work));
    (void)ignored;
    signal(number, SIG_DFL);
    raise(number);
}

static uint64_t draw(uint64_t n) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 2685821657736338717u >> 11) % (n ? n : 1);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const sample *)a)->name, ((const sample *)b)->name);
}

static int load(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) return -1;
    for (struct dirent *e; (e = readdir(dir)) && n_files < MAX_FILES;) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!f) continue;
        corpus[n_files].size = fread(corpus[n_files].text, 1, MAX_BYTES, f);
        snprintf(corpus[n_files].name, sizeof corpus[n_files].name, "%s", e->d_name);
        n_files++;
        fclose(f);
    }
    closedir(dir);
    qsort(corpus, n_files, sizeof corpus[0], by_name); /* the same mutations whatever readdir's order */
    return n_files ? 0 : -1;
}

/* A line of the text: [*from, *to) with its newline. */
static void pick_line(const char *text, size_t size, size_t *from, size_t *to) {
    *from = draw(size);
    while (*from > 0 && text[*from - 1] != '\n') --*from;
    const char *nl = memchr(text + *from, '\n', size - *from);
    *to = nl ? (size_t)(nl - text) + 1 : size;
}

/* Replace [from, to) by n bytes, if there is room. */
static size_t replace(char *text, size_t size, size_t from, size_t to, const char *with, size_t n) {
    if (size - (to - from) + n > MAX_BYTES) return size;
    char copy[256];
    if (n > sizeof copy) n = sizeof copy;
    memcpy(copy, with, n); /* it may be a part of the text itself */
    memmove(text + from + n, text + to, size - to);
    memcpy(text + from, copy, n);
    return size - (to - from) + n;
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

static size_t mutate(char *text, size_t size) {
    for (uint64_t edits = 1 + draw(4); edits && size; edits--) {
        size_t from, to, at = draw(size);
        const char *word = words[draw(sizeof words / sizeof *words)];
        switch (draw(7)) {
        case 0: size = replace(text, size, at, at, word, strlen(word)); break;
        case 1: /* a word for another */
            for (from = at; from > 0 && text[from - 1] > ' '; from--) continue;
            for (to = at; to < size && text[to] > ' '; to++) continue;
            size = replace(text, size, from, to, word, strlen(word));
            break;
        case 2: /* a line goes */
            pick_line(text, size, &from, &to);
            size = replace(text, size, from, to, "", 0);
            break;
        case 3: /* a line comes twice, or elsewhere */
            pick_line(text, size, &from, &to);
            for (at = draw(size + 1); at > 0 && text[at - 1] != '\n'; at--) continue;
            size = replace(text, size, at, at, text + from, to - from > 256 ? 256 : to - from);
            break;
        case 4: { /* a line of another file */
            size_t other = draw(n_files);
            if (!corpus[other].size) break;
            pick_line(corpus[other].text, corpus[other].size, &from, &to);
            for (at = draw(size + 1); at > 0 && text[at - 1] != '\n'; at--) continue;
            size = replace(text, size, at, at, corpus[other].text + from, to - from > 256 ? 256 : to - from);
            break;
        }
        case 5: size = replace(text, size, at, at + 1, "", 0); break;
        default: text[at] = (char)(' ' + draw(95)); break;
        }
    }
    return size;
}

static void run_one(const char *text, size_t size) {
    uint8_t *exact = malloc(size ? size : 1); /* a sanitizer sees every byte read behind the end */
    if (!exact) abort();
    memcpy(exact, text, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

int main(int argc, char **argv) {
    if (argc < 3 || load(argv[1]) != 0) {
        fprintf(stderr, "usage: %s CORPUS-FOLDER MUTATIONS [FIRST] (the folder must hold files)\n", argv[0]);
        return 2;
    }
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    for (size_t i = 0; i < n_files; i++) {
        snprintf(at_work, sizeof at_work, "failed on corpus file %.200s\n", corpus[i].name);
        run_one(corpus[i].text, corpus[i].size);
    }
    static char text[MAX_BYTES];
    uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 1, count = strtoull(argv[2], NULL, 10);
    for (uint64_t seed = first; seed < first + count; seed++) {
        state = seed * 0x9E3779B97F4A7C15u;
        size_t i = draw(n_files);
        snprintf(at_work, sizeof at_work, "failed on mutation %" PRIu64 " of corpus file %.200s\n", seed,
                 corpus[i].name);
        memcpy(text, corpus[i].text, corpus[i].size);
        run_one(text, mutate(text, corpus[i].size));
    }
    printf("%zu files, %" PRIu64 " mutations\n", n_files, count);
    return 0;
}
