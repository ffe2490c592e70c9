/* The simulator's arithmetic and layouts beside what an H200 did, bit by bit. kn_sim_hardware makes the tables; their
 * first lines, and h200_binary.txt for the binary ones, say on which GPU, with which driver, and when.
 *
 * h200_mma.bin: 96 tiles of mma.sync.m16n8k{16,8,4}: type (0 bf16, 1 fp16, 2 tf32), k, A [16][k], B [k][8], C, D
 * [16][8], all 32-bit words. Eight kinds of operands in turn: exponents within 1, 4, 14 of each other, the whole range,
 * tiny (subnormal operands, accumulators, results), zeros of both signs, huge (overflow), Inf and NaN. h200_wgmma.txt:
 * one wgmma a line on a 64 KB image of shared memory: type, N, transposes, descriptors of A and B relative to the
 * image, FNV-1a of the 64 x N fp32 result. All swizzles, K- and MN-major, canonical and odd strides. h200_reduce.bin:
 * cp.reduce.async.bulk: 2048 bytes of shared memory, of global memory before, and after, for f32 add, f16 and bf16
 * add.noftz, f16 min, bf16 max. */
#include "sim/tensorcore.h"
#include "sim/tma.h"
#include "sim/wgmma.h"

#include "h200_rows.h"
#include "module_run.h"

START_TEST(mma_tiles) {
    size_t len;
    char *data = run_read("h200_mma.bin", &len);
    uint32_t *at = (uint32_t *)(void *)data, *end = (uint32_t *)(void *)(data + len), tiles = 0;
    for (; at < end; tiles++) {
        kn_tc_type type = (kn_tc_type)at[0];
        uint32_t k = at[1], *a = at + 2, *b = a + 16 * k, *c = b + 8 * k, *d = c + 128;
        static kn_tc_a ta;
        static kn_tc_b tb;
        float acc[16][8];
        for (uint32_t i = 0; i < 16; i++)
            for (uint32_t kk = 0; kk < k; kk++) kn_tc_decode(type, a[i * k + kk], &ta.v[i][kk], &ta.e[i][kk]);
        for (uint32_t kk = 0; kk < k; kk++)
            for (uint32_t j = 0; j < 8; j++) kn_tc_decode(type, b[kk * 8 + j], &tb.v[kk][j], &tb.e[kk][j]);
        memcpy(acc, c, sizeof acc);
        kn_tc_step(16, 8, (int)k, &ta, &tb, 0, acc[0], 8);
        for (uint32_t i = 0; i < 128; i++) {
            uint32_t got;
            memcpy(&got, &acc[i / 8][i % 8], 4);
            ck_assert_msg(got == d[i], "tile %u (type %d, k %u), element %u: %08x, the H200 has %08x", tiles, (int)type,
                          k, i, got, d[i]);
        }
        at = d + 128;
    }
    ck_assert_uint_eq(tiles, 96);
    kn_free(data);
}
END_TEST

static uint64_t product_hash(kn_tc_type type, uint32_t n, bool ta, bool tb, const kn_wgmma_desc *da,
                             const kn_wgmma_desc *db, const uint8_t *image) {
    static uint32_t addr_a[512], addr_b[512];
    static uint8_t data_a[8192], data_b[8192];
    static kn_tc_a a;
    static kn_tc_b b;
    static float d[64][256];
    kn_wgmma_addresses(da, type, ta, 64, addr_a);
    kn_wgmma_addresses(db, type, tb, n, addr_b);
    for (uint32_t i = 0; i < kn_wgmma_chunks(type, 64); i++) memcpy(data_a + 16 * i, image + addr_a[i], 16);
    for (uint32_t i = 0; i < kn_wgmma_chunks(type, n); i++) memcpy(data_b + 16 * i, image + addr_b[i], 16);
    kn_wgmma_load_b(type, tb, false, n, data_b, &b);
    uint64_t hash = RUN_HASH_START;
    for (uint32_t first = 0; first < 64; first += 16) {
        kn_wgmma_load_a(type, ta, false, first, data_a, &a);
        kn_tc_step(16, (int)n, type == KN_TC_TF32 ? 8 : 16, &a, &b, 1, d[first], 256);
    }
    for (uint32_t row = 0; row < 64; row++) hash = run_hash(hash, d[row], n * 4);
    return hash;
}

START_TEST(wgmma_layouts) {
    static uint8_t image[H200_IMAGE];
    static h200_wgmma rows[H200_ROWS_MAX];
    char path[1024];
    uint32_t n;
    run_path(path, "h200_wgmma.txt");
    ck_assert_ok(h200_read(path, h200_parse_wgmma, rows, sizeof rows[0], &n));
    ck_assert_uint_eq(n, 332);
    for (uint32_t k = 0; k < n; k++) {
        const h200_wgmma *r = &rows[k];
        kn_tc_type type = h200_type(r->type);
        kn_wgmma_desc da, db;
        if (k == 0 || strcmp(r->type, r[-1].type) != 0) h200_fill_image(type, image);
        ck_assert_ptr_null(kn_wgmma_decode(r->a, &da));
        ck_assert_ptr_null(kn_wgmma_decode(r->b, &db));
        uint64_t got = product_hash(type, r->n, r->transpose_a, r->transpose_b, &da, &db, image);
        ck_assert_msg(got == r->hash, "row %u (%s, n %u, %u %u, %llx %llx): %016llx, the H200 has %016llx", k, r->type,
                      r->n, r->transpose_a, r->transpose_b, r->a, r->b, (unsigned long long)got, r->hash);
    }
}
END_TEST

START_TEST(bulk_reductions) {
    static const kn_tma_op op[5] = {KN_TMA_ADD, KN_TMA_ADD, KN_TMA_ADD, KN_TMA_MIN, KN_TMA_MAX};
    static const kn_tma_elem elem[5] = {KN_TMA_F32, KN_TMA_F16, KN_TMA_BF16, KN_TMA_F16, KN_TMA_BF16};
    size_t len;
    char *data = run_read("h200_reduce.bin", &len);
    ck_assert_uint_eq(len, 5 * 3 * 2048);
    for (int r = 0; r < 5; r++) {
        uint8_t *v = (uint8_t *)data + r * 6144, *acc = v + 2048, *want = acc + 2048;
        kn_tma_reduce(op[r], elem[r], acc, v, 2048);
        for (uint32_t i = 0; i < 2048; i++)
            ck_assert_msg(acc[i] == want[i], "reduction %d, byte %u: %02x, the H200 has %02x", r, i, acc[i], want[i]);
    }
    kn_free(data);
}
END_TEST

/* The binary tables are those that the text beside them speaks of. */
START_TEST(binary_tables) {
    static h200_binary rows[H200_ROWS_MAX];
    char path[1024];
    uint32_t n;
    run_path(path, "h200_binary.txt");
    ck_assert_ok(h200_read(path, h200_parse_binary, rows, sizeof rows[0], &n));
    ck_assert_uint_eq(n, 2);
    for (uint32_t k = 0; k < n; k++) {
        size_t len;
        char *data = run_read(rows[k].file, &len);
        ck_assert_uint_eq(run_hash(RUN_HASH_START, data, len), rows[k].hash);
        kn_free(data);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/h200");
    TCase *t = tcase_create("h200");
    tcase_add_test(t, mma_tiles);
    tcase_add_test(t, wgmma_layouts);
    tcase_add_test(t, bulk_reductions);
    tcase_add_test(t, binary_tables);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
