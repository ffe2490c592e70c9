/* sim/tensorcore.c: the accumulation rule against cases seen on an H200 and against a plain 128-bit form of the rule,
 * the blocked form against the single dot, and the fragment layouts of mma.sync as the PTX manual writes them. */
#include "sim/tensorcore.h"
#include "support/suite.h"

#include <math.h>
#include <string.h>

static uint64_t state = 1;

static uint32_t rnd(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t to_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* A finite operand whose exponent lies within `spread` of 1.0. */
static uint32_t operand(kn_tc_type type, int spread) {
    int e = (int)(rnd() % (uint32_t)(2 * spread + 1)) - spread;
    if (type == KN_TC_F16) return (rnd() & 0x83ffu) | (uint32_t)(15 + (e > 15 ? 15 : e < -14 ? -14 : e)) << 10;
    uint32_t u = (rnd() << 1 & 0x80000000u) | (rnd() & 0x7fffffu) | (uint32_t)(127 + e) << 23;
    return type == KN_TC_BF16 ? u >> 16 : u;
}

/* The rule written out with 128-bit integers: addends as m * 2^x, |m| < 2^48, all exponents within 60 of each other. */
static float written_out(int k, const float *a, const int16_t *ae, const float *b, const int16_t *be, float c) {
    int top = c != 0 ? ilogbf(c) : -1000;
    for (int i = 0; i < k; i++)
        if (a[i] != 0 && b[i] != 0 && ae[i] + be[i] > top) top = ae[i] + be[i];
    if (top == -1000) return 0;
    __int128 sum = (__int128)trunc(ldexp((double)c, 25 - top));
    for (int i = 0; i < k; i++) sum += (__int128)trunc(ldexp((double)a[i] * (double)b[i], 25 - top));
    double exact = (double)sum; /* below 2^53 */
    int e;
    double frac = frexp(exact, &e);
    return (float)ldexp(ldexp(trunc(ldexp(frac, 24)), e - 24), top - 25);
}

static float dot_of(kn_tc_type type, int k, const uint32_t *a, const uint32_t *b, float c, float *expect) {
    float av[16], bv[16];
    int16_t ae[16], be[16];
    for (int i = 0; i < k; i++) {
        kn_tc_decode(type, a[i], &av[i], &ae[i]);
        kn_tc_decode(type, b[i], &bv[i], &be[i]);
    }
    if (expect) *expect = written_out(k, av, ae, bv, be, c);
    return kn_tc_dot(k, av, ae, bv, be, 1, c);
}

/* 16 products of (bf16) x and y on c: the cases measured on an H200. */
static float bf16_case(float x, int count, float c) {
    uint32_t a[16] = {0}, b[16] = {0};
    for (int i = 0; i < count; i++) {
        a[i] = to_bits(x) >> 16;
        b[i] = 0x3f80;
    }
    return dot_of(KN_TC_BF16, 16, a, b, c, NULL);
}

START_TEST(measured_cases) {
    float big = 0x1p24f;
    ck_assert(bf16_case(1, 1, big) == big);
    ck_assert(bf16_case(3, 1, big) == big + 2);
    ck_assert(bf16_case(0.5f, 16, big) == big + 8);
    ck_assert(bf16_case(0.25f, 16, big) == big);
    ck_assert(bf16_case(-0.5f, 16, -big) == -big - 8);
    ck_assert(bf16_case(2, 16, 1) == 33);
    ck_assert_uint_eq(to_bits(bf16_case(0, 16, 0)), 0);
}
END_TEST

START_TEST(random_dots) {
    for (int n = 0; n < 60000; n++) {
        kn_tc_type type = (kn_tc_type)(n % 3);
        int k = type == KN_TC_TF32 ? 8 : n % 2 ? 16 : 8, spread = n % 7 == 0 ? 14 : n % 5 == 0 ? 4 : 1;
        uint32_t a[16], b[16];
        for (int i = 0; i < k; i++) {
            a[i] = rnd() % 9 ? operand(type, spread) : 0;
            b[i] = operand(type, spread);
        }
        float c = rnd() % 4 ? from_bits(operand(KN_TC_TF32, 2 * spread)) : 0, expect;
        float got = dot_of(type, k, a, b, c, &expect);
        ck_assert_msg(to_bits(got) == to_bits(expect), "dot %d: %a, wanted %a", n, (double)got, (double)expect);
    }
}
END_TEST

START_TEST(specials) {
    const float inf = INFINITY;
    ck_assert(bf16_case(inf, 1, 1) == inf);
    ck_assert(bf16_case(-inf, 1, 1) == -inf);
    ck_assert_uint_eq(to_bits(bf16_case(-inf, 1, inf)), 0x7fffffff);
    ck_assert_uint_eq(to_bits(bf16_case(NAN, 1, 1)), 0x7fffffff);
    uint32_t a[16] = {0x7f80}, b[16] = {0};
    ck_assert_uint_eq(to_bits(dot_of(KN_TC_BF16, 16, a, b, 0, NULL)), 0x7fffffff);
    ck_assert_uint_eq(to_bits(bf16_case(0x1p-126f, 1, 0x1p-149f)), 0x00800001);
    ck_assert_uint_eq(to_bits(bf16_case(0, 1, 0x1p-149f)), 1);
}
END_TEST

/* All of fp32's range, so that the fast form must hand over; Inf, NaN, zeros and subnormals among them. */
static uint32_t wild(kn_tc_type type) {
    uint32_t kind = rnd() % 64, u = rnd() << 1 ^ rnd();
    if (kind == 0) return type == KN_TC_F16 ? 0x7c00 : type == KN_TC_BF16 ? 0x7f80 : 0x7f800000;
    if (kind == 1) return type == KN_TC_F16 ? 0x8001 : type == KN_TC_BF16 ? 0x8003 : 0x8003e000;
    if (kind < 8) return kind % 2 ? 0 : type == KN_TC_TF32 ? 0x80000000 : 0x8000;
    return type == KN_TC_TF32 ? u : u & 0xffff;
}

START_TEST(blocked_equals_dot) {
    static kn_tc_a a;
    static kn_tc_b b;
    static float d[KN_TC_M][KN_TC_N], c[KN_TC_M][KN_TC_N];
    for (int round = 0; round < 24; round++) {
        kn_tc_type type = (kn_tc_type)(round % 3);
        int k = type == KN_TC_TF32 ? 8 : 16, n = 8 * (1 + (int)(rnd() % 32)), zero = round % 5 == 0, mild = round % 2;
        for (int i = 0; i < KN_TC_M; i++)
            for (int kk = 0; kk < k; kk++)
                kn_tc_decode(type, mild ? operand(type, 2) : wild(type), &a.v[i][kk], &a.e[i][kk]);
        for (int j = 0; j < n; j++)
            for (int kk = 0; kk < k; kk++)
                kn_tc_decode(type, mild ? operand(type, 2) : wild(type), &b.v[kk][j], &b.e[kk][j]);
        for (int i = 0; i < KN_TC_M; i++)
            for (int j = 0; j < n; j++) c[i][j] = from_bits(mild ? operand(KN_TC_TF32, 4) : wild(KN_TC_TF32));
        memcpy(d, c, sizeof d);
        kn_tc_step(KN_TC_M, n, k, &a, &b, zero, d[0], KN_TC_N);
        for (int i = 0; i < KN_TC_M; i++) {
            for (int j = 0; j < n; j++) {
                float e = kn_tc_dot(k, a.v[i], a.e[i], &b.v[0][j], &b.e[0][j], KN_TC_N, zero ? 0 : c[i][j]);
                ck_assert_msg(to_bits(e) == to_bits(d[i][j]), "round %d [%d][%d]: %a, wanted %a", round, i, j,
                              (double)d[i][j], (double)e);
            }
        }
    }
}
END_TEST

/* Integers small enough to be exact: the layouts alone decide the result. */
static uint32_t small_int(kn_tc_type type, int v) {
    if (type == KN_TC_TF32) return to_bits((float)v);
    if (type == KN_TC_BF16) return to_bits((float)v) >> 16;
    static const uint16_t half[9] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
    return half[v];
}

static void layout_case(kn_tc_type type, int k) {
    int am[16][16], bm[16][8];
    uint32_t a[32][4] = {{0}}, b[32][2] = {{0}};
    float c[32][4], d[32][4];
    for (int i = 0; i < 16; i++)
        for (int kk = 0; kk < k; kk++) am[i][kk] = (int)(rnd() % 9);
    for (int kk = 0; kk < k; kk++)
        for (int j = 0; j < 8; j++) bm[kk][j] = (int)(rnd() % 9);
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < k / 2; i++) {
            /* PTX ISA: element a_i of the fragment; two elements a register for the 16-bit types */
            int row, col, reg, half;
            if (type == KN_TC_TF32) {
                row = i % 2 ? g + 8 : g;
                col = i < 2 ? t : t + 4;
                reg = i;
                half = 0;
            } else {
                row = (i / 2) % 2 ? g + 8 : g;
                col = t * 2 + (i & 1) + (i >= 4 ? 8 : 0);
                reg = i / 2;
                half = i & 1;
            }
            a[lane][reg] |= small_int(type, am[row][col]) << 16 * half;
        }
        for (int i = 0; i < k / 4; i++) {
            int row = type == KN_TC_TF32 ? t + 4 * i : t * 2 + (i & 1) + (i >= 2 ? 8 : 0);
            if (type == KN_TC_TF32)
                b[lane][i] = small_int(type, bm[row][g]);
            else
                b[lane][i / 2] |= small_int(type, bm[row][g]) << 16 * (i & 1);
        }
        for (int i = 0; i < 4; i++) c[lane][i] = (float)(lane * 4 + i);
    }
    kn_tc_mma_sync(type, k, a, b, c, d);
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 4; i++) {
            int row = lane / 4 + (i >= 2 ? 8 : 0), col = lane % 4 * 2 + (i & 1), want = lane * 4 + i;
            for (int kk = 0; kk < k; kk++) want += am[row][kk] * bm[kk][col];
            ck_assert_msg(d[lane][i] == (float)want, "type %d k%d lane %d c%d: %g, wanted %d", (int)type, k, lane, i,
                          (double)d[lane][i], want);
        }
    }
}

START_TEST(mma_sync_layouts) {
    layout_case(KN_TC_BF16, 16);
    layout_case(KN_TC_F16, 16);
    layout_case(KN_TC_BF16, 8);
    layout_case(KN_TC_F16, 8);
    layout_case(KN_TC_TF32, 8);
    layout_case(KN_TC_TF32, 4);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/tensorcore");
    TCase *t = tcase_create("tensorcore");
    tcase_add_test(t, measured_cases);
    tcase_add_test(t, random_dots);
    tcase_add_test(t, specials);
    tcase_add_test(t, blocked_equals_dot);
    tcase_add_test(t, mma_sync_layouts);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
