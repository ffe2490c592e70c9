/* fuzz_X CORPUS-FOLDER MUTATIONS [FIRST]: see fuzz_replay.h. A failure aborts and names the mutation that makes it
 * again. */
#include "fuzz/fuzz_replay.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

kn_fuzz_file kn_fuzz_corpus[KN_FUZZ_FILES];
size_t kn_fuzz_files;

static char at_work[320] = "nothing yet\n"; /* what the handler prints */

static void on_signal(int number) {
    ssize_t ignored = write(2, at_work, strlen(at_work));
    (void)ignored;
    signal(number, SIG_DFL);
    raise(number);
}

/* xorshift64*: good enough, and the same everywhere. */
static uint64_t state;
uint64_t kn_fuzz_draw(uint64_t n) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 2685821657736338717u >> 11) % (n ? n : 1);
}

size_t kn_fuzz_replace(uint8_t *data, size_t size, size_t from, size_t to, const void *with, size_t n) {
    uint8_t copy[256];
    if (n > sizeof copy) n = sizeof copy;
    if (size - (to - from) + n > KN_FUZZ_BYTES) return size;
    memcpy(copy, with, n);
    memmove(data + from + n, data + to, size - to);
    memcpy(data + from, copy, n);
    return size - (to - from) + n;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const kn_fuzz_file *)a)->name, ((const kn_fuzz_file *)b)->name);
}

static int load(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) return -1;
    for (struct dirent *e; (e = readdir(dir)) && kn_fuzz_files < KN_FUZZ_FILES;) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!f) continue;
        kn_fuzz_file *file = &kn_fuzz_corpus[kn_fuzz_files++];
        file->data = malloc(KN_FUZZ_BYTES);
        if (!file->data) abort();
        file->size = fread(file->data, 1, KN_FUZZ_BYTES, f);
        snprintf(file->name, sizeof file->name, "%s", e->d_name);
        fclose(f);
    }
    closedir(dir);
    qsort(kn_fuzz_corpus, kn_fuzz_files, sizeof *kn_fuzz_corpus, by_name);
    return kn_fuzz_files ? 0 : -1;
}

static void run_one(const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size ? size : 1); /* a sanitizer sees every byte read behind the end */
    if (!exact) abort();
    memcpy(exact, data, size);
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
    for (size_t i = 0; i < kn_fuzz_files; i++) {
        snprintf(at_work, sizeof at_work, "failed on corpus file %s\n", kn_fuzz_corpus[i].name);
        run_one(kn_fuzz_corpus[i].data, kn_fuzz_corpus[i].size);
    }
    static uint8_t data[KN_FUZZ_BYTES];
    uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 1, count = strtoull(argv[2], NULL, 10);
    for (uint64_t seed = first; seed < first + count; seed++) {
        state = seed * 0x9E3779B97F4A7C15u;
        const kn_fuzz_file *file = &kn_fuzz_corpus[kn_fuzz_draw(kn_fuzz_files)];
        snprintf(at_work, sizeof at_work, "failed on mutation %" PRIu64 " of corpus file %s\n", seed, file->name);
        memcpy(data, file->data, file->size);
        run_one(data, kn_fuzz_mutate(data, file->size));
    }
    printf("%zu files, %" PRIu64 " mutations\n", kn_fuzz_files, count);
    for (size_t i = 0; i < kn_fuzz_files; i++) free(kn_fuzz_corpus[i].data);
    return 0;
}
