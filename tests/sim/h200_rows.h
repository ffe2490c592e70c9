/* The text tables of tests/data/sim that an H200 filled: read by the tests, read and written anew by kn_sim_hardware.
 * Lines that begin with '#' say which machine and when. */
#ifndef KN_TESTS_SIM_H200_ROWS_H
#define KN_TESTS_SIM_H200_ROWS_H

#include "base/alloc.h"
#include "base/file.h"
#include "numbers.h"
#include "sim/tensorcore.h"

#include <stdio.h>

enum { H200_ROWS_MAX = 512, H200_IMAGE = 65536 };

/* h200_gemm.txt: FNV-1a of D of one test kernel, on the data of gemm_data.h. */
typedef struct h200_gemm {
    char file[32];
    uint32_t m, n, k, ctas;
    bool integers;
    unsigned long long hash;
} h200_gemm;

/* h200_wgmma.txt: one wgmma on an image of shared memory; descriptors relative to the image. */
typedef struct h200_wgmma {
    char type[8]; /* bf16, f16, tf32 */
    uint32_t n, transpose_a, transpose_b;
    unsigned long long a, b, hash; /* of the 64 x n fp32 result */
} h200_wgmma;

/* h200_binary.txt: FNV-1a of the binary tables, beside the line that says where they are from. */
typedef struct h200_binary {
    char file[32];
    unsigned long long hash;
} h200_binary;

static inline bool h200_parse_binary(const char *line, void *row) {
    h200_binary *r = row;
    return sscanf(line, "%31s %llx", r->file, &r->hash) == 2;
}

static inline bool h200_parse_gemm(const char *line, void *row) {
    h200_gemm *r = row;
    char data[16];
    if (sscanf(line, "%31s %u %u %u %u %15s %llx", r->file, &r->m, &r->n, &r->k, &r->ctas, data, &r->hash) != 7)
        return false;
    r->integers = strcmp(data, "integers") == 0;
    return r->integers || strcmp(data, "normal") == 0;
}

static inline bool h200_parse_wgmma(const char *line, void *row) {
    h200_wgmma *r = row;
    return sscanf(line, "%7s %u %u %u %llx %llx %llx", r->type, &r->n, &r->transpose_a, &r->transpose_b, &r->a, &r->b,
                  &r->hash) == 7;
}

/** Rows of `size` bytes into rows[H200_ROWS_MAX]. */
static inline kn_status h200_read(const char *path, bool (*parse)(const char *, void *), void *rows, size_t size,
                                  uint32_t *n) {
    char *text = NULL;
    size_t len;
    kn_status st = KN_OK;
    *n = 0;
    KN_TRY(kn_file_read(path, 1 << 22, &text, &len));
    for (char *line = text; st == KN_OK && *line;) {
        size_t length = strcspn(line, "\n");
        bool last = line[length] == 0;
        line[length] = 0;
        if (line[0] && line[0] != '#') {
            if (*n == H200_ROWS_MAX || !parse(line, (char *)rows + *n * size))
                st = kn_fail(KN_E_FORMAT, "%s: \"%s\" is no row, or one too many", path, line);
            ++*n;
        }
        line += length + !last;
    }
    kn_free(text);
    return st;
}

static inline kn_tc_type h200_type(const char *name) {
    return strcmp(name, "bf16") == 0 ? KN_TC_BF16 : strcmp(name, "f16") == 0 ? KN_TC_F16 : KN_TC_TF32;
}

/** The image that the wgmmas of a type read: normal numbers, for f16 -4..4. */
static inline void h200_fill_image(kn_tc_type type, uint8_t image[H200_IMAGE]) {
    uint64_t s = 77 + (uint64_t)(type == KN_TC_BF16 ? 0 : type == KN_TC_F16 ? 1 : 2);
    for (uint32_t i = 0; i < H200_IMAGE / (type == KN_TC_TF32 ? 4u : 2u); i++) {
        static const uint16_t half[9] = {0xc400, 0xc200, 0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200, 0x4400};
        float v = run_normal(&s);
        uint16_t h = type == KN_TC_BF16 ? run_bf16(v) : type == KN_TC_F16 ? half[(run_random(&s) >> 40) % 9] : 0;
        if (type == KN_TC_TF32)
            memcpy(image + 4 * i, &v, 4);
        else
            memcpy(image + 2 * i, &h, 2);
    }
}

/* h200_mma.bin: tiles of mma.sync.m16n8k{16,8,4}, 32-bit words: type, k, A [16][k], B [k][8], C [16][8], D [16][8].
 * h200_reduce.bin: for each reduction 2048 bytes of shared memory, of global memory before, and after. */
enum { H200_REDUCE_BYTES = 2048, H200_REDUCTIONS = 5 };

#endif
