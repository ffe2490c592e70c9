/* Runs a fuzz target without a fuzzing engine: every file of a corpus, then a fixed number of mutations of them drawn
 * from a fixed seed. `fuzz_X CORPUS-FOLDER MUTATIONS`; a failure aborts and names the seed that makes it again.
 * Link it with a file that defines LLVMFuzzerTestOneInput. */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_FILES = 256, MAX_BYTES = 1 << 16, ROOM = 256 };

static struct {
    uint8_t *data;
    size_t size;
    char name[256];
} corpus[MAX_FILES];
static size_t n_files;

static char at_work[320] = "nothing yet\n"; /* what the handler prints */

static void on_abort(int signal_number) {
    ssize_t ignored = write(2, at_work, strlen(at_work));
    (void)ignored;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* xorshift64*: good enough, and the same everywhere. */
static uint64_t state;
static uint64_t draw(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717u;
}

static void run_one(const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size ? size : 1); /* a sanitizer sees every byte read behind the end */
    if (!exact) abort();
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static int load(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) return -1;
    for (struct dirent *e; (e = readdir(dir)) && n_files < MAX_FILES;) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!f) continue;
        corpus[n_files].data = malloc(MAX_BYTES);
        if (!corpus[n_files].data) abort();
        corpus[n_files].size = fread(corpus[n_files].data, 1, MAX_BYTES, f);
        snprintf(corpus[n_files].name, sizeof corpus[n_files].name, "%s", e->d_name);
        n_files++;
        fclose(f);
    }
    closedir(dir);
    return n_files ? 0 : -1;
}

/* Flip, overwrite, insert, delete or copy within; numbers that programs stumble over are among the bytes written. */
static size_t mutate(uint8_t *data, size_t size) {
    static const char *const words[] = {"-1",
                                        "0",
                                        "18446744073709551615",
                                        "9223372036854775807",
                                        "[]",
                                        "{}",
                                        "\"",
                                        ",",
                                        "1e9",
                                        "null",
                                        "__metadata__",
                                        "\\u0000",
                                        "BF16",
                                        "data_offsets"};
    for (uint64_t edits = 1 + draw() % 4; edits; edits--) {
        size_t at = size ? draw() % size : 0;
        size_t n = 1 + draw() % 8;
        const char *word = words[draw() % (sizeof words / sizeof *words)];
        switch (draw() % 5) {
        case 0:
            if (size) data[at] ^= (uint8_t)(1u << draw() % 8);
            break;
        case 1:
            if (size) data[at] = (uint8_t)draw();
            break;
        case 2:
            n = strlen(word);
            memmove(data + at + n, data + at, size - at);
            memcpy(data + at, word, n);
            size += n;
            break;
        case 3:
            if (n > size - at) n = size - at;
            memmove(data + at, data + at + n, size - at - n);
            size -= n;
            break;
        default:
            if (n > size - at) n = size - at;
            if (size) memmove(data + draw() % (size - n + 1), data + at, n);
        }
    }
    return size;
}

int main(int argc, char **argv) {
    if (argc != 3 || load(argv[1]) != 0) {
        fprintf(stderr, "usage: %s CORPUS-FOLDER MUTATIONS (the folder must hold files)\n", argv[0]);
        return 2;
    }
    signal(SIGABRT, on_abort);
    signal(SIGSEGV, on_abort);
    for (size_t i = 0; i < n_files; i++) {
        snprintf(at_work, sizeof at_work, "failed on corpus file %s\n", corpus[i].name);
        run_one(corpus[i].data, corpus[i].size);
    }
    uint64_t mutations = strtoull(argv[2], NULL, 10);
    uint8_t *data = malloc(MAX_BYTES + ROOM);
    if (!data) abort();
    for (uint64_t seed = 1; seed <= mutations; seed++) {
        state = seed * 0x9E3779B97F4A7C15u;
        size_t i = draw() % n_files;
        snprintf(at_work, sizeof at_work, "failed on mutation %" PRIu64 " of corpus file %s\n", seed, corpus[i].name);
        memcpy(data, corpus[i].data, corpus[i].size);
        run_one(data, mutate(data, corpus[i].size));
    }
    printf("%zu files, %" PRIu64 " mutations\n", n_files, mutations);
    for (size_t i = 0; i < n_files; i++) free(corpus[i].data);
    free(data);
    return 0;
}
