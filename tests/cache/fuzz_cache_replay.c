/* Runs a fuzz target without a fuzzer: every file of a corpus directory, then a fixed number of mutations of each,
 * always the same ones. usage: fuzz_... CORPUS-DIRECTORY [MUTATIONS] */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 16 };
static unsigned state = 1;

static unsigned draw(unsigned below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % (below ? below : 1);
}

/* Flip, set, cut, insert or copy; returns the new size. */
static size_t mutate(uint8_t *p, size_t n) {
    static const uint64_t odd[] = {0, 1, 7, 8, 63, 64, 255, 65535, 65536, 0x7fffffff, 0xffffffff, UINT64_MAX};
    unsigned at = draw((unsigned)n), len = draw(9);
    switch (draw(6)) {
    case 0: p[at] ^= (uint8_t)(1u << draw(8)); break;
    case 1: p[at] = (uint8_t)draw(256); break;
    case 2:
        if (n > at + 8) memcpy(p + at, &odd[draw(12)], 8);
        break;
    case 3: return at;
    case 4:
        if (n + len < MOST) {
            memmove(p + at + len, p + at, n - at);
            return n + len;
        }
        break;
    default:
        if (n > at + len) memmove(p + draw((unsigned)n - len), p + at, len);
    }
    return n;
}

static void replay(const uint8_t *seed, size_t size, int mutations) {
    static uint8_t bytes[MOST + 16];
    LLVMFuzzerTestOneInput(seed, size);
    for (int i = 0; i < mutations; i++) {
        size_t n = size;
        memcpy(bytes, seed, size);
        for (unsigned k = 1 + draw(4); k > 0 && n > 0; k--) n = mutate(bytes, n);
        uint8_t *exact = malloc(n ? n : 1); /* its end is where a sanitizer looks */
        if (!exact) abort();
        memcpy(exact, bytes, n);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
    }
}

int main(int argc, char **argv) {
    static uint8_t seed[MOST];
    int files = 0, mutations = argc > 2 ? atoi(argv[2]) : 0;
    DIR *d = argc > 1 ? opendir(argv[1]) : NULL;
    if (!d) {
        fprintf(stderr, "usage: %s CORPUS-DIRECTORY [MUTATIONS]\n", argv[0]);
        return 2;
    }
    for (struct dirent *e; (e = readdir(d));) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!f) continue;
        size_t n = fread(seed, 1, sizeof seed, f);
        fclose(f);
        replay(seed, n, mutations);
        files++;
    }
    closedir(d);
    printf("%d files, %d mutations of each\n", files, mutations);
    return files > 0 ? 0 : 1;
}
