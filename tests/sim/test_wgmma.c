/* sim/wgmma.c: descriptors in all swizzle modes and both majornesses against tiles written as TMA or a thread would
 * write them, and the register fragments as the PTX manual draws them. */
#include "sim/tma.h"
#include "sim/wgmma.h"
#include "support/suite.h"

#include <string.h>

static uint8_t smem[65536];

static uint64_t desc_bits(uint32_t addr, uint32_t lbo, uint32_t sbo, uint32_t mode) {
    return (uint64_t)(addr >> 4) | (uint64_t)(lbo >> 4) << 16 | (uint64_t)(sbo >> 4) << 32 | (uint64_t)mode << 62;
}

/* Value of element (row, k): unique, a multiple of nothing special; as raw 16 or 32 bits. */
static uint32_t element(kn_tc_type type, uint32_t row, uint32_t k) {
    return type == KN_TC_TF32 ? (row << 6 | k) << 13 | 0x20000000u : 0x3000u + row * 16 + k;
}

static void put(kn_tc_type type, uint32_t addr, uint32_t v) {
    memcpy(smem + addr, &v, type == KN_TC_TF32 ? 4 : 2);
}

static void check(kn_tc_type type, uint64_t bits, bool mn_major, uint32_t rows) {
    static uint32_t addr[512];
    static uint8_t data[8192];
    static kn_tc_b b;
    kn_wgmma_desc d;
    ck_assert_ptr_null(kn_wgmma_decode(bits, &d));
    uint32_t n = kn_wgmma_chunks(type, rows), kn = type == KN_TC_TF32 ? 8 : 16;
    kn_wgmma_addresses(&d, type, mn_major, rows, addr);
    for (uint32_t i = 0; i < n; i++) memcpy(data + 16 * i, smem + addr[i], 16);
    kn_wgmma_load_b(type, mn_major, false, rows, data, &b);
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t k = 0; k < kn; k++) {
            float v;
            int16_t e;
            kn_tc_decode(type, element(type, row, k), &v, &e);
            ck_assert_msg(b.v[k][row] == v && b.e[k][row] == e, "mode %u mn %d rows %u: (%u, %u) is %a, wanted %a",
                          d.swizzle, mn_major, rows, row, k, (double)b.v[k][row], (double)v);
        }
    }
    if (rows != 64) return;
    static kn_tc_a a;
    for (uint32_t first = 0; first < 64; first += 16) {
        kn_wgmma_load_a(type, mn_major, true, first, data, &a);
        for (uint32_t row = 0; row < 16; row++)
            for (uint32_t k = 0; k < kn; k++)
                ck_assert(a.v[row][k] == -b.v[k][first + row] && a.e[row][k] == b.e[k][first + row]);
    }
}

/* A K-major tile as one TMA box {span, rows} with the swizzle lands; k16 step `step` inside the span. */
static void k_major(kn_tc_type type, uint8_t swizzle, uint32_t mode, uint32_t rows, uint32_t step) {
    uint32_t span = 16u << swizzle, size = type == KN_TC_TF32 ? 4 : 2, base = 4096;
    memset(smem, 0x55, sizeof smem);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t k = 0; k < 32 / size; k++)
            put(type, kn_tma_swizzle(swizzle, base + row * span + step * 32 + k * size), element(type, row, k));
    check(type, desc_bits(base + step * 32, 16, 8 * span, mode), false, rows);
}

START_TEST(k_major_swizzled) {
    for (uint32_t step = 0; step < 4; step++) k_major(KN_TC_BF16, 3, 1, 256, step);
    for (uint32_t step = 0; step < 4; step++) k_major(KN_TC_TF32, 3, 1, 64, step);
    for (uint32_t step = 0; step < 2; step++) k_major(KN_TC_F16, 2, 2, 64, step);
    k_major(KN_TC_BF16, 1, 3, 8, 0);
    k_major(KN_TC_TF32, 1, 3, 120, 0);
}
END_TEST

/* Boxes {span of mn, 64 k rows}, one behind the other; LBO = size of a box, SBO = 8 rows. */
static void mn_major(uint8_t swizzle, uint32_t mode, uint32_t rows, uint32_t step) {
    uint32_t span = 16u << swizzle, per = span / 2, box = 64 * span, base = 8192;
    memset(smem, 0x55, sizeof smem);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t k = 0; k < 16; k++)
            put(KN_TC_BF16, kn_tma_swizzle(swizzle, base + row / per * box + (step * 16 + k) * span + row % per * 2),
                element(KN_TC_BF16, row, k));
    check(KN_TC_BF16, desc_bits(base + step * 16 * span, box, 8 * span, mode), true, rows);
}

START_TEST(mn_major_swizzled) {
    for (uint32_t step = 0; step < 4; step++) mn_major(3, 1, 256, step);
    mn_major(3, 1, 64, 2);
    mn_major(2, 2, 96, 3);
    mn_major(1, 3, 48, 1);
}
END_TEST

START_TEST(no_swizzle) {
    /* K-major: 8x16-byte core matrices, LBO between the two in k, SBO between those in rows */
    memset(smem, 0x55, sizeof smem);
    for (uint32_t row = 0; row < 64; row++)
        for (uint32_t k = 0; k < 16; k++)
            put(KN_TC_BF16, 1024 + row / 8 * 128 + k / 8 * 1024 + row % 8 * 16 + k % 8 * 2,
                element(KN_TC_BF16, row, k));
    check(KN_TC_BF16, desc_bits(1024, 1024, 128, 0), false, 64);
    /* MN-major: core matrices of 8 k rows x 8 mn; LBO between those in k, SBO between those in mn */
    memset(smem, 0x55, sizeof smem);
    for (uint32_t row = 0; row < 64; row++)
        for (uint32_t k = 0; k < 16; k++)
            put(KN_TC_BF16, 1024 + row / 8 * 128 + k / 8 * 2048 + k % 8 * 16 + row % 8 * 2,
                element(KN_TC_BF16, row, k));
    check(KN_TC_BF16, desc_bits(1024, 2048, 128, 0), true, 64);
}
END_TEST

START_TEST(bad_descriptors) {
    kn_wgmma_desc d;
    ck_assert_ptr_nonnull(kn_wgmma_decode(1ull << 49, &d));
    ck_assert_ptr_nonnull(kn_wgmma_decode(1ull << 14, &d));
    ck_assert_ptr_null(kn_wgmma_decode(desc_bits(1024, 16, 1024, 1), &d));
    ck_assert(d.addr == 1024 && d.lbo == 16 && d.sbo == 1024 && d.swizzle == 3);
}
END_TEST

START_TEST(fragments) {
    static uint32_t reg[4][32];
    const uint32_t *regs[4] = {reg[0], reg[1], reg[2], reg[3]};
    static kn_tc_a a;
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t g = lane / 4, t = lane % 4;
        for (uint32_t i = 0; i < 8; i++) { /* a0..a7 of wgmma's A fragment */
            uint32_t row = i / 2 % 2 ? g + 8 : g, k = t * 2 + i % 2 + (i >= 4 ? 8 : 0);
            if (i % 2 == 0) reg[i / 2][lane] = 0;
            reg[i / 2][lane] |= element(KN_TC_BF16, row, k) << 16 * (i % 2);
        }
    }
    kn_wgmma_load_a_regs(KN_TC_BF16, false, regs, &a);
    for (uint32_t row = 0; row < 16; row++) {
        for (uint32_t k = 0; k < 16; k++) {
            float v;
            int16_t e;
            kn_tc_decode(KN_TC_BF16, element(KN_TC_BF16, row, k), &v, &e);
            ck_assert(a.v[row][k] == v);
        }
    }
    uint32_t row, col;
    kn_wgmma_d_place(0, 0, &row, &col);
    ck_assert(row == 0 && col == 0);
    kn_wgmma_d_place(5, 7, &row, &col);
    ck_assert(row == 9 && col == 11);
    kn_wgmma_d_place(31, 126, &row, &col);
    ck_assert(row == 15 && col == 254);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/wgmma");
    TCase *t = tcase_create("wgmma");
    tcase_add_test(t, k_major_swizzled);
    tcase_add_test(t, mn_major_swizzled);
    tcase_add_test(t, no_swizzle);
    tcase_add_test(t, bad_descriptors);
    tcase_add_test(t, fragments);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
