/* sim/tma.c, sim/tma_reduce.c: tensor maps, swizzles, boxes that leave the tensor, reductions. Expected values are
 * written out from the PTX manual's definitions: element (i, j) of the box is tensor element (x + i, y + j) or zero, at
 * byte offset of the packed box with address bits 4..6 exclusive-ored with bits 7..9 (128 B; fewer for the others). */
#include "sim/tma.h"
#include "support/suite.h"

#include <string.h>

static uint16_t tensor[40][64];

static kn_sim_tensor_map map_2d(uint8_t swizzle, uint32_t w, uint32_t h) {
    return (kn_sim_tensor_map){.dtype = 9,
                               .rank = 2,
                               .swizzle = swizzle,
                               .base = tensor,
                               .dim = {50, 37},
                               .stride = {sizeof tensor[0]},
                               .box = {w, h}};
}

typedef struct landing {
    uint8_t smem[65536];
    uint32_t total;
} landing;

static kn_status land(void *user, const kn_tma_piece *p) {
    landing *l = user;
    memset(l->smem + p->smem, 0, p->len);
    if (p->valid) memcpy(l->smem + p->smem + p->skip, (const void *)(uintptr_t)p->global, p->valid);
    l->total += p->len;
    return KN_OK;
}

static void check_box(uint8_t swizzle, uint32_t w, uint32_t h, int32_t x, int32_t y) {
    static const uint32_t mask[4] = {0, 1, 3, 7};
    static landing l;
    kn_sim_tensor_map t = map_2d(swizzle, w, h);
    uint8_t bytes[128];
    kn_tma_map m;
    ck_assert_ok(kn_sim_encode_tensor_map(&t, bytes));
    ck_assert_ptr_null(kn_tma_decode(bytes, &m));
    ck_assert_uint_eq(m.box_bytes, w * h * 2);
    memset(&l, 0xee, sizeof l);
    l.total = 0;
    uint32_t at = 5 * 1024 + 128;
    ck_assert_ok(kn_tma_walk(&m, (int32_t[5]){x, y}, at, land, &l));
    ck_assert_uint_eq(l.total, m.box_bytes);
    for (uint32_t j = 0; j < h; j++) {
        for (uint32_t i = 0; i < w; i++) {
            uint32_t addr = at + (j * w + i) * 2;
            addr ^= (addr / 128 & mask[swizzle]) * 16;
            int32_t tx = x + (int32_t)i, ty = y + (int32_t)j;
            uint16_t want = tx >= 0 && tx < 50 && ty >= 0 && ty < 37 ? tensor[ty][tx] : 0, got;
            memcpy(&got, l.smem + addr, 2);
            ck_assert_msg(got == want, "swizzle %u box %ux%u at %d,%d: element %u,%u is %04x, wanted %04x", swizzle, w,
                          h, x, y, i, j, got, want);
        }
    }
}

START_TEST(boxes) {
    for (int j = 0; j < 40; j++)
        for (int i = 0; i < 64; i++) tensor[j][i] = (uint16_t)(j * 64 + i + 1);
    check_box(0, 8, 4, 0, 0);
    check_box(0, 24, 7, 5, 9);
    check_box(0, 256, 3, -3, -1);
    check_box(1, 16, 20, 40, 30);
    check_box(2, 32, 16, -17, 35);
    check_box(3, 64, 32, 0, 0);
    check_box(3, 64, 32, 3, 20);
    check_box(3, 64, 8, 60, 0);
    check_box(3, 64, 8, -64, 0);
    check_box(3, 64, 8, 0, 37);
}
END_TEST

static kn_status count_valid(void *user, const kn_tma_piece *p) {
    *(uint32_t *)user += p->valid;
    return KN_OK;
}

START_TEST(five_dimensions) {
    static float data[2 * 3 * 2 * 3 * 4];
    kn_sim_tensor_map t = {.dtype = 7,
                           .rank = 5,
                           .base = data,
                           .dim = {4, 3, 2, 3, 2},
                           .stride = {16, 48, 96, 288},
                           .box = {4, 2, 2, 2, 2}};
    uint8_t bytes[128];
    kn_tma_map m;
    static landing l;
    for (int i = 0; i < 144; i++) data[i] = (float)i;
    ck_assert_ok(kn_sim_encode_tensor_map(&t, bytes));
    ck_assert_ptr_null(kn_tma_decode(bytes, &m));
    ck_assert_uint_eq(m.box_bytes, 4 * 4 * 16);
    ck_assert_ok(kn_tma_walk(&m, (int32_t[5]){0, 1, 0, 1, 0}, 0, land, &l));
    uint32_t valid = 0;
    ck_assert_ok(kn_tma_walk(&m, (int32_t[5]){0, 2, 1, 2, 1}, 0, count_valid, &valid));
    ck_assert_uint_eq(valid, 16);
    for (uint32_t n = 0; n < 64; n++) {
        uint32_t c[5] = {n & 3, n >> 2 & 1, n >> 3 & 1, n >> 4 & 1, n >> 5 & 1};
        float got, want = data[c[0] + 4 * (c[1] + 1) + 12 * c[2] + 24 * (c[3] + 1) + 72 * c[4]];
        memcpy(&got, l.smem + 4 * n, 4);
        ck_assert_msg(got == want, "element %u: %g, wanted %g", n, (double)got, (double)want);
    }
}
END_TEST

#define REFUSE(code, part, ...)                                                                                        \
    do {                                                                                                               \
        kn_sim_tensor_map t = map_2d(3, 64, 8);                                                                        \
        uint8_t bytes[128];                                                                                            \
        __VA_ARGS__;                                                                                                   \
        ck_assert_fails(kn_sim_encode_tensor_map(&t, bytes), code, part);                                              \
    } while (0)

START_TEST(bad_maps) {
    REFUSE(KN_E_ARG, "rank 6", t.rank = 6);
    REFUSE(KN_E_ARG, "data type 13", t.dtype = 13);
    REFUSE(KN_E_ALIGN, "multiple of 16", t.base = (char *)tensor + 8);
    REFUSE(KN_E_ALIGN, "stride of dimension 1 is 100", t.stride[0] = 100);
    REFUSE(KN_E_SHAPE, "box[1] is 257", t.box[1] = 257);
    REFUSE(KN_E_SHAPE, "box[1] is 0", t.box[1] = 0);
    REFUSE(KN_E_SHAPE, "multiple of 16", t.box[0] = 12);
    REFUSE(KN_E_SHAPE, "at most the swizzle's 128", t.box[0] = 128);
    REFUSE(KN_E_UNSUPPORTED, "narrower than the swizzle", t.box[0] = 32);
    REFUSE(KN_E_SHAPE, "dimension 0 has 0", t.dim[0] = 0);
    uint8_t junk[128] = {1};
    kn_tma_map m;
    ck_assert_ptr_nonnull(kn_tma_decode(junk, &m));
}
END_TEST

START_TEST(reductions) {
    float f[2] = {1.5f, 0x1p-127f}, g[2] = {2.25f, 0x1p-127f};
    kn_tma_reduce(KN_TMA_ADD, KN_TMA_F32, (uint8_t *)f, (const uint8_t *)g, 8);
    ck_assert(f[0] == 3.75f && f[1] == 0x1p-126f);
    /* 1 + 2^-8 lies halfway between 1 and 1 + 2^-7 in bf16: to even */
    uint16_t a[4] = {0x3f80, 0x3f81, 0x7f7f, 0x0001}, b[4] = {0x3b80, 0x3b80, 0x7f7f, 0x0001};
    kn_tma_reduce(KN_TMA_ADD, KN_TMA_BF16, (uint8_t *)a, (const uint8_t *)b, 8);
    ck_assert(a[0] == 0x3f80 && a[1] == 0x3f82 && a[2] == 0x7f80 && a[3] == 0x0002);
    /* fp16: 2048 + 1 ties to 2048, 2050 + 1 to 2052, 65504 + 16 ties up to Inf, smallest subnormals add */
    uint16_t c[4] = {0x6800, 0x6801, 0x7bff, 0x0001}, d[4] = {0x3c00, 0x3c00, 0x4c00, 0x03ff};
    kn_tma_reduce(KN_TMA_ADD, KN_TMA_F16, (uint8_t *)c, (const uint8_t *)d, 8);
    ck_assert_uint_eq(c[0], 0x6800);
    ck_assert_uint_eq(c[1], 0x6802);
    ck_assert_uint_eq(c[2], 0x7c00);
    ck_assert_uint_eq(c[3], 0x0400);
    int32_t s[2] = {-5, 7}, t[2] = {3, 9};
    kn_tma_reduce(KN_TMA_MIN, KN_TMA_S32, (uint8_t *)s, (const uint8_t *)t, 8);
    ck_assert(s[0] == -5 && s[1] == 7);
    uint32_t u[2] = {3, 7}, v[2] = {7, 7};
    kn_tma_reduce(KN_TMA_INC, KN_TMA_U32, (uint8_t *)u, (const uint8_t *)v, 8);
    ck_assert(u[0] == 4 && u[1] == 0);
    kn_tma_reduce(KN_TMA_DEC, KN_TMA_U32, (uint8_t *)u, (const uint8_t *)v, 8);
    ck_assert(u[0] == 3 && u[1] == 7);
    ck_assert_uint_eq(kn_tma_reduce_bytes(KN_TMA_MIN, KN_TMA_F32), 0);
    ck_assert_uint_eq(kn_tma_reduce_bytes(KN_TMA_ADD, KN_TMA_BF16), 2);
    kn_tma_elem e;
    ck_assert(kn_tma_map_elem(9, &e) && e == KN_TMA_BF16);
    ck_assert(!kn_tma_map_elem(0, &e));
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/tma");
    TCase *t = tcase_create("tma");
    tcase_add_test(t, boxes);
    tcase_add_test(t, five_dimensions);
    tcase_add_test(t, bad_maps);
    tcase_add_test(t, reductions);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
