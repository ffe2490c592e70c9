/* wgmma: see the header. */
#include "sim/wgmma.h"

#include "sim/tma.h"

#include <string.h>

const char *kn_wgmma_decode(uint64_t bits, kn_wgmma_desc *out) {
    static const uint8_t swizzle_of[4] = {0, 3, 2, 1};
    const uint64_t fields = 0xc00e3fff3fff3fffull;
    if (bits & ~fields) return "a matrix descriptor has bits set outside its fields";
    if (bits >> 49 & 7)
        return "a matrix descriptor with a base offset is not modelled: align tiles to the swizzle's repeat";
    out->addr = (uint32_t)(bits & 0x3fff) << 4;
    out->lbo = (uint32_t)(bits >> 16 & 0x3fff) << 4;
    out->sbo = (uint32_t)(bits >> 32 & 0x3fff) << 4;
    out->swizzle = swizzle_of[bits >> 62];
    return NULL;
}

uint32_t kn_wgmma_chunks(kn_tc_type type, uint32_t rows) {
    (void)type; /* 16 values of 2 bytes and 8 of 4 are two chunks alike */
    return rows * 2;
}

static uint32_t k_major(const kn_wgmma_desc *d, uint32_t row, uint32_t c) {
    uint32_t w = 16u << d->swizzle;
    return row % 8 * w + row / 8 * d->sbo + c * (d->swizzle ? 16 : d->lbo);
}

static uint32_t mn_major_at(const kn_wgmma_desc *d, uint32_t c, uint32_t k) {
    uint32_t w = 1u << d->swizzle;
    if (!d->swizzle) return c * d->sbo + k % 8 * 16 + k / 8 * d->lbo;
    return c % w * 16 + c / w * d->lbo + k % 8 * w * 16 + k / 8 * d->sbo;
}

/* K-major: chunk 2 * row + c. MN-major (16-bit types): chunk k * (rows / 8) + c. */
void kn_wgmma_addresses(const kn_wgmma_desc *d, kn_tc_type type, bool mn_major, uint32_t rows, uint32_t *addr) {
    uint32_t n = kn_wgmma_chunks(type, rows), wide = rows / 8;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t offset = mn_major ? mn_major_at(d, i % wide, i / wide) : k_major(d, i / 2, i % 2);
        addr[i] = kn_tma_swizzle(d->swizzle, d->addr + offset);
    }
}

static uint32_t value_bits(kn_tc_type type, const uint8_t *data, uint32_t index) {
    uint32_t v = 0;
    if (type == KN_TC_TF32)
        memcpy(&v, data + 4 * index, 4);
    else
        memcpy(&v, data + 2 * index, 2);
    return v;
}

/* Index of value (row, k) among the chunks' values. */
static uint32_t value_index(kn_tc_type type, bool mn_major, uint32_t rows, uint32_t row, uint32_t k) {
    if (mn_major) return k * rows + row;
    return row * (type == KN_TC_TF32 ? 8 : 16) + k;
}

void kn_wgmma_load_a(kn_tc_type type, bool mn_major, bool negate, uint32_t first, const uint8_t *data, kn_tc_a *a) {
    uint32_t kn = type == KN_TC_TF32 ? 8 : 16;
    for (uint32_t row = 0; row < 16; row++) {
        for (uint32_t k = 0; k < kn; k++) {
            kn_tc_decode(type, value_bits(type, data, value_index(type, mn_major, 64, first + row, k)), &a->v[row][k],
                         &a->e[row][k]);
            if (negate) a->v[row][k] = -a->v[row][k];
        }
    }
}

void kn_wgmma_load_b(kn_tc_type type, bool mn_major, bool negate, uint32_t rows, const uint8_t *data, kn_tc_b *b) {
    uint32_t kn = type == KN_TC_TF32 ? 8 : 16;
    for (uint32_t k = 0; k < kn; k++) {
        for (uint32_t row = 0; row < rows; row++) {
            kn_tc_decode(type, value_bits(type, data, value_index(type, mn_major, rows, row, k)), &b->v[k][row],
                         &b->e[k][row]);
            if (negate) b->v[k][row] = -b->v[k][row];
        }
    }
}

void kn_wgmma_load_a_regs(kn_tc_type type, bool negate, const uint32_t *const reg[4], kn_tc_a *a) {
    uint32_t per = type == KN_TC_TF32 ? 1 : 2;
    for (uint32_t r = 0; r < 4; r++) {
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t row = (lane >> 2) + 8 * (r & 1);
            for (uint32_t h = 0; h < per; h++) {
                uint32_t k = (r >> 1) * 4 * per + (lane & 3) * per + h;
                kn_tc_decode(type, reg[r][lane] >> 16 * h, &a->v[row][k], &a->e[row][k]);
                if (negate) a->v[row][k] = -a->v[row][k];
            }
        }
    }
}
