/* Fuzz targets without a fuzzing engine: every file of a corpus, then a number of mutations of them from fixed seeds.
 * A program is fuzz_replay.c, a file that defines LLVMFuzzerTestOneInput, and one that mutates: fuzz_text.c for lines
 * and words, fuzz_bytes.c for everything else. With libFuzzer the target is linked alone. */
#ifndef KN_TESTS_FUZZ_REPLAY_H
#define KN_TESTS_FUZZ_REPLAY_H

#include <stddef.h>
#include <stdint.h>

enum { KN_FUZZ_FILES = 256, KN_FUZZ_BYTES = 1 << 16 };

typedef struct kn_fuzz_file {
    uint8_t *data;
    size_t size;
    char name[256];
} kn_fuzz_file;

/* The corpus, by name: the same mutations whatever readdir's order. */
extern kn_fuzz_file kn_fuzz_corpus[KN_FUZZ_FILES];
extern size_t kn_fuzz_files;

uint64_t kn_fuzz_draw(uint64_t n); /* [0, n); 0 if n is 0 */
/** Replace [from, to) of `data` by n bytes, which may be a part of it (256 at most), if there is room; the new size. */
size_t kn_fuzz_replace(uint8_t *data, size_t size, size_t from, size_t to, const void *with, size_t n);

/** The mutator: change `data`, which has room for KN_FUZZ_BYTES, and return the new size. */
size_t kn_fuzz_mutate(uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
