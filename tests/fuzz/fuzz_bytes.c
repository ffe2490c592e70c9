/* Mutations of any file: flip, overwrite, insert, delete, copy within, cut off. Numbers and words that programs stumble
 * over are among what is written. */
#include "fuzz/fuzz_replay.h"

#include <string.h>

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
static const uint64_t odd[] = {0, 1, 7, 8, 63, 64, 255, 65535, 65536, 0x7fffffff, 0xffffffff, UINT64_MAX};

static size_t edit(uint8_t *data, size_t size) {
    size_t at = kn_fuzz_draw(size), n = 1 + kn_fuzz_draw(8);
    const char *word = words[kn_fuzz_draw(sizeof words / sizeof *words)];
    const uint64_t *number = &odd[kn_fuzz_draw(sizeof odd / sizeof *odd)];
    if (n > size - at) n = size - at;
    switch (kn_fuzz_draw(8)) {
    case 0: data[at] ^= (uint8_t)(1u << kn_fuzz_draw(8)); return size;
    case 1: data[at] = (uint8_t)kn_fuzz_draw(256); return size;
    case 2: memcpy(data + at, number, n); return size;
    case 3: return kn_fuzz_replace(data, size, at, at, word, strlen(word));
    case 4: return kn_fuzz_replace(data, size, at, at, data + at, n);
    case 5: return kn_fuzz_replace(data, size, at, at + n, "", 0);
    case 6: memmove(data + kn_fuzz_draw(size - n + 1), data + at, n); return size;
    default: return kn_fuzz_draw(4) ? size : at;
    }
}

size_t kn_fuzz_mutate(uint8_t *data, size_t size) {
    for (uint64_t edits = 1 + kn_fuzz_draw(4); edits && size; edits--) size = edit(data, size);
    return size;
}
