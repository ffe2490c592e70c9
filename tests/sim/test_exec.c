/* Scalar instructions: values written out from the PTX specification; rows marked "as the H200 does" differ from it or
 * fill a gap in it. test_hardware.c compares the same forms with an H200 on 1024 operand tuples each. */
#include "support/sim_run.h"
#include "support/suite.h"

#include <string.h>

typedef struct row {
    const char *text;
    char result;
    uint64_t a, b, c, e, want;
} row;

static void check_rows(const row *rows, size_t n) {
    for (size_t k = 0; k < n; k++) {
        uint64_t got = 0;
        const row *r = &rows[k];
        kn_status st = kn_simtest_eval(r->text, r->result, r->a, r->b, r->c, r->e, &got);
        ck_assert_msg(st == KN_OK, "%s: %s", r->text, kn_error_message());
        ck_assert_msg(got == r->want, "%s a=%llx b=%llx c=%llx: got %llx, wanted %llx", r->text,
                      (unsigned long long)r->a, (unsigned long long)r->b, (unsigned long long)r->c,
                      (unsigned long long)got, (unsigned long long)r->want);
    }
}
#define CHECK(rows) check_rows(rows, sizeof rows / sizeof rows[0])
#define N(v) ((uint64_t)(uint32_t)(v))

START_TEST(integers) {
    static const row rows[] = {
        {"add.u32 %rz, %ra, %rb;", 'r', 0xffffffff, 2, 0, 0, 1},
        {"add.sat.s32 %rz, %ra, %rb;", 'r', 0x7fffffff, 2, 0, 0, 0x7fffffff},
        {"add.sat.s32 %rz, %ra, %rb;", 'r', 0x80000000, 0xffffffff, 0, 0, 0x80000000},
        {"add.s64 %dz, %da, %db;", 'd', UINT64_MAX, 2, 0, 0, 1},
        {"add.u16 %hz, %ha, %hb;", 'h', 0xffff, 2, 0, 0, 1},
        {"add.u16x2 %rz, %ra, %rb;", 'r', 0x0001ffff, 0x00020002, 0, 0, 0x00030001},
        {"sub.s32 %rz, %ra, 5;", 'r', 3, 0, 0, 0, 0xfffffffe},
        {"sub.sat.s32 %rz, %ra, %rb;", 'r', 0x80000000, 1, 0, 0, 0x80000000},
        {"mul.lo.u32 %rz, %ra, %rb;", 'r', 0x10001, 0x10001, 0, 0, 0x20001},
        {"mul.hi.u32 %rz, %ra, %rb;", 'r', 0x80000000, 6, 0, 0, 3},
        {"mul.hi.s32 %rz, %ra, %rb;", 'r', 0x80000000, 6, 0, 0, 0xfffffffd},
        {"mul.wide.s32 %dz, %ra, %rb;", 'd', 0xffffffff, 3, 0, 0, (uint64_t)-3},
        {"mul.wide.u32 %dz, %ra, %rb;", 'd', 0xffffffff, 3, 0, 0, 0x2fffffffd},
        {"mul.wide.s16 %rz, %ha, %hb;", 'r', 0xffff, 3, 0, 0, 0xfffffffd},
        {"mul.hi.u64 %dz, %da, %db;", 'd', UINT64_C(1) << 63, 6, 0, 0, 3},
        {"mul.hi.s64 %dz, %da, %db;", 'd', UINT64_C(1) << 63, 6, 0, 0, (uint64_t)-3},
        {"mad.lo.s32 %rz, %ra, %rb, %rc;", 'r', 7, 6, 0xffffffff, 0, 41},
        {"mad.hi.s32 %rz, %ra, %rb, %rc;", 'r', 0x80000000, 6, 10, 0, 7},
        {"mad.wide.s32 %dz, %ra, %rb, %dc;", 'd', 0xffffffff, 3, 1, 0, (uint64_t)-2},
        {"mad.wide.u16 %rz, %ha, %hb, %rc;", 'r', 0xffff, 0xffff, 1, 0, 0xfffe0002},
        {"div.s32 %rz, %ra, %rb;", 'r', 0xfffffff9, 2, 0, 0, 0xfffffffd}, /* -7 / 2 = -3 */
        {"div.u32 %rz, %ra, %rb;", 'r', 0xfffffff9, 2, 0, 0, 0x7ffffffc},
        {"div.s32 %rz, %ra, %rb;", 'r', 0x80000000, 0xffffffff, 0, 0, 0x80000000},
        {"rem.s32 %rz, %ra, %rb;", 'r', 0xfffffff9, 2, 0, 0, 0xffffffff}, /* -7 % 2 = -1 */
        {"rem.s32 %rz, %ra, %rb;", 'r', 7, 0, 0, 0, 0xffffffff},          /* as the H200 does */
        {"rem.u64 %dz, %da, %db;", 'd', 1000000007ull * 12345 + 77, 1000000007, 0, 0, 77},
        {"div.s16 %hz, %ha, %hb;", 'h', 0xfff9, 2, 0, 0, 0xfffd},
        {"neg.s32 %rz, %ra;", 'r', 5, 0, 0, 0, 0xfffffffb},
        {"abs.s32 %rz, %ra;", 'r', 0xfffffffb, 0, 0, 0, 5},
        {"abs.s16 %hz, %ha;", 'h', 0xfffb, 0, 0, 0, 5},
        {"min.s32 %rz, %ra, %rb;", 'r', 0xffffffff, 1, 0, 0, 0xffffffff},
        {"min.u32 %rz, %ra, %rb;", 'r', 0xffffffff, 1, 0, 0, 1},
        {"max.s64 %dz, %da, %db;", 'd', UINT64_MAX, 1, 0, 0, 1},
        {"min.s16x2 %rz, %ra, %rb;", 'r', 0xffff0001, 0x0001fffe, 0, 0, 0xfffffffe},
        {"max.relu.s32 %rz, %ra, %rb;", 'r', 0xffffffff, 0xfffffffe, 0, 0, 0},
    };
    CHECK(rows);
}
END_TEST

START_TEST(bits) {
    static const row rows[] = {
        {"and.b32 %rz, %ra, %rb;", 'r', 0xf0f0, 0xff00, 0, 0, 0xf000},
        {"xor.b64 %dz, %da, %db;", 'd', UINT64_MAX, 1, 0, 0, UINT64_MAX - 1},
        {"not.b16 %hz, %ha;", 'h', 0x00ff, 0, 0, 0, 0xff00},
        {"xor.pred %pz, %pa, %pb;", 'p', 1, 0, 0, 0, 1},
        {"not.pred %pz, %pa;", 'p', 1, 0, 0, 0, 0},
        {"shl.b32 %rz, %ra, 32;", 'r', 1, 0, 0, 0, 0},
        {"shl.b32 %rz, %ra, %rb;", 'r', 1, 31, 0, 0, 0x80000000},
        {"shl.b64 %dz, %da, 63;", 'd', 3, 0, 0, 0, UINT64_C(1) << 63},
        {"shr.u32 %rz, %ra, %rb;", 'r', 0x80000000, 40, 0, 0, 0},
        {"shr.s32 %rz, %ra, %rb;", 'r', 0x80000000, 40, 0, 0, 0xffffffff},
        {"shr.s16 %hz, %ha, 4;", 'h', 0x8000, 0, 0, 0, 0xf800},
        {"shr.s64 %dz, %da, 4;", 'd', UINT64_C(1) << 63, 0, 0, 0, UINT64_C(0xf8) << 56},
        {"shf.l.wrap.b32 %rz, %ra, %rb, %rc;", 'r', 0x80000000, 1, 33, 0, 3},
        {"shf.l.clamp.b32 %rz, %ra, %rb, %rc;", 'r', 0x80000001, 1, 33, 0, 0x80000001},
        {"shf.r.wrap.b32 %rz, %ra, %rb, %rc;", 'r', 2, 1, 1, 0, 0x80000001},
        {"shf.r.clamp.b32 %rz, %ra, %rb, %rc;", 'r', 2, 7, 99, 0, 7},
        {"bfe.u32 %rz, %ra, 4, 8;", 'r', 0x12345678, 0, 0, 0, 0x67},
        {"bfe.s32 %rz, %ra, 4, 4;", 'r', 0x80, 0, 0, 0, 0xfffffff8},
        {"bfe.u32 %rz, %ra, 28, 8;", 'r', 0xf2345678, 0, 0, 0, 0xf},
        {"bfe.s32 %rz, %ra, 40, 8;", 'r', 0x80000000, 0, 0, 0, 0xffffffff},
        {"bfe.s32 %rz, %ra, 3, 0;", 'r', 0xffffffff, 0, 0, 0, 0},
        {"bfe.s64 %dz, %da, 60, 8;", 'd', UINT64_C(9) << 60, 0, 0, 0, (uint64_t)-7},
        {"bfi.b32 %rz, %ra, %rb, 8, 4;", 'r', 0xabc, 0x11111111, 0, 0, 0x11111c11},
        {"bfi.b32 %rz, %ra, %rb, 28, 8;", 'r', 0xff, 0, 0, 0, 0xf0000000},
        {"bfi.b64 %dz, %da, %db, 32, 32;", 'd', 0x12345678, 7, 0, 0, UINT64_C(0x1234567800000007)},
        {"prmt.b32 %rz, %ra, %rb, 0x7531;", 'r', 0x33221100, 0x77665544, 0, 0, 0x77553311},
        {"prmt.b32 %rz, %ra, %rb, 0x8c40;", 'r', 0x332211ff, 0x77665580, 0, 0, 0xffff80ff},
        {"prmt.b32.f4e %rz, %ra, %rb, 1;", 'r', 0x33221100, 0x77665544, 0, 0, 0x44332211},
        {"prmt.b32.b4e %rz, %ra, %rb, 1;", 'r', 0x33221100, 0x77665544, 0, 0, 0x66770011},
        {"prmt.b32.rc8 %rz, %ra, %rb, 2;", 'r', 0x33221100, 0x77665544, 0, 0, 0x22222222},
        {"prmt.b32.rc16 %rz, %ra, %rb, 1;", 'r', 0x33221100, 0x77665544, 0, 0, 0x33223322},
        {"lop3.b32 %rz, %ra, %rb, %rc, 0xe8;", 'r', 0xff00ff00, 0xf0f0f0f0, 0xcccccccc, 0, 0xfcc0fcc0}, /* majority */
        {"lop3.b32 %rz, %ra, %rb, %rc, 0x96;", 'r', 0xff00ff00, 0xf0f0f0f0, 0xcccccccc, 0, 0xc33cc33c}, /* a ^ b ^ c */
        {"popc.b64 %rz, %da;", 'r', UINT64_MAX, 0, 0, 0, 64},
        {"clz.b32 %rz, %ra;", 'r', 0, 0, 0, 0, 32},
        {"clz.b64 %rz, %da;", 'r', 1, 0, 0, 0, 63},
        {"brev.b32 %rz, %ra;", 'r', 0x80000001, 0, 0, 0, 0x80000001},
        {"brev.b32 %rz, %ra;", 'r', 0x00000006, 0, 0, 0, 0x60000000},
        {"brev.b64 %dz, %da;", 'd', 1, 0, 0, 0, UINT64_C(1) << 63},
        {"bfind.u32 %rz, %ra;", 'r', 0x00010000, 0, 0, 0, 16},
        {"bfind.s32 %rz, %ra;", 'r', 0xfffffff0, 0, 0, 0, 3},
        {"bfind.s32 %rz, %ra;", 'r', 0xffffffff, 0, 0, 0, 0xffffffff},
        {"bfind.shiftamt.u32 %rz, %ra;", 'r', 0x00010000, 0, 0, 0, 15},
    };
    CHECK(rows);
}
END_TEST

START_TEST(floats) {
    static const row rows[] = {
        {"add.rn.f32 %rz, %ra, %rb;", 'r', 0x3f800000, 0x33800000, 0, 0, 0x3f800000}, /* 1 + 2^-24: tie to even */
        {"add.rp.f32 %rz, %ra, %rb;", 'r', 0x3f800000, 0x33800000, 0, 0, 0x3f800001},
        {"add.rz.f32 %rz, %ra, %rb;", 'r', 0x3f800000, 0x33ffffff, 0, 0, 0x3f800000},
        {"add.rm.f32 %rz, %ra, %rb;", 'r', 0x3f800000, 0xbf800000, 0, 0, 0x80000000}, /* 1 - 1 = -0 rounding down */
        {"add.rn.f32 %rz, %ra, %rb;", 'r', 0x7f800000, 0xff800000, 0, 0, 0x7fffffff},
        {"add.rn.ftz.f32 %rz, %ra, %rb;", 'r', 0x00000001, 0x80000000, 0, 0, 0},
        {"add.rn.sat.f32 %rz, %ra, %rb;", 'r', 0x40000000, 0x3f800000, 0, 0, 0x3f800000},
        {"add.rn.sat.f32 %rz, %ra, %rb;", 'r', 0x7fc00000, 0x3f800000, 0, 0, 0},
        {"add.rz.f32 %rz, %ra, %rb;", 'r', 0x7f7fffff, 0x7f7fffff, 0, 0, 0x7f7fffff},
        {"mul.rn.f32 %rz, %ra, %rb;", 'r', 0x3f800001, 0x3f800001, 0, 0, 0x3f800002},
        {"mul.rp.f32 %rz, %ra, %rb;", 'r', 0x3f800001, 0x3f800001, 0, 0, 0x3f800003},
        {"mul.rp.f32 %rz, %ra, %rb;", 'r', 0x00000001, 0x3f000000, 0, 0, 0x00000001}, /* half the least subnormal */
        {"mul.rz.f32 %rz, %ra, %rb;", 'r', 0x00000001, 0x3f000000, 0, 0, 0},
        /* (1 + 2^-23)^2 - (1 + 2^-22) = 2^-46 */
        {"fma.rn.f32 %rz, %ra, %rb, %rc;", 'r', 0x3f800001, 0x3f800001, 0xbf800002, 0, 0x28800000},
        /* a product just over a tie: 1 + 2^-24 + 2^-47, which double rounding would lose */
        {"fma.rn.f32 %rz, %ra, %rb, %rc;", 'r', 0x3f800001, 0x33800000, 0x3f800000, 0, 0x3f800001},
        /* 2^-24 + 2^-60 on 1: double loses the last bit and sees a tie */
        {"fma.rn.f32 %rz, %ra, %rb, %rc;", 'r', 0x3f800800, 0x337ff001, 0x3f800000, 0, 0x3f800001},
        {"fma.rz.f32 %rz, %ra, %rb, %rc;", 'r', 0x3f800001, 0x33800000, 0x3f800000, 0, 0x3f800000},
        {"fma.rn.f32 %rz, %ra, %rb, %rc;", 'r', 0x00800000, 0x3f000000, 0x00000001, 0, 0x00400001},
        {"div.rn.f32 %rz, %ra, %rb;", 'r', 0x3f800000, 0x40400000, 0, 0, 0x3eaaaaab},
        {"div.rz.f32 %rz, %ra, %rb;", 'r', 0x3f800000, 0x40400000, 0, 0, 0x3eaaaaaa},
        {"div.full.f32 %rz, %ra, %rb;", 'r', 0x3f800000, 0, 0, 0, 0x7f800000},
        {"rcp.rn.f32 %rz, %ra;", 'r', 0x40400000, 0, 0, 0, 0x3eaaaaab},
        {"sqrt.rn.f32 %rz, %ra;", 'r', 0x40000000, 0, 0, 0, 0x3fb504f3},
        {"sqrt.rp.f32 %rz, %ra;", 'r', 0x40000000, 0, 0, 0, 0x3fb504f4},
        {"sqrt.rn.f32 %rz, %ra;", 'r', 0xbf800000, 0, 0, 0, 0x7fffffff},
        {"neg.f32 %rz, %ra;", 'r', 0, 0, 0, 0, 0x80000000},
        {"neg.f32 %rz, %ra;", 'r', 0x7f800001, 0, 0, 0, 0x7fffffff},
        {"abs.f32 %rz, %ra;", 'r', 0xbf800000, 0, 0, 0, 0x3f800000},
        {"min.f32 %rz, %ra, %rb;", 'r', 0x7fc00000, 0x3f800000, 0, 0, 0x3f800000},
        {"min.NaN.f32 %rz, %ra, %rb;", 'r', 0x7fc00000, 0x3f800000, 0, 0, 0x7fffffff},
        {"min.f32 %rz, %ra, %rb;", 'r', 0, 0x80000000, 0, 0, 0x80000000},
        {"max.f32 %rz, %ra, %rb;", 'r', 0x80000000, 0, 0, 0, 0},
        {"copysign.f32 %rz, %ra, %rb;", 'r', 0x80000000, 0x3f800000, 0, 0, 0xbf800000},
        {"ex2.approx.f32 %rz, %ra;", 'r', 0x40400000, 0, 0, 0, 0x41000000},
        {"ex2.approx.ftz.f32 %rz, %ra;", 'r', 0xff800000, 0, 0, 0, 0},
        {"lg2.approx.f32 %rz, %ra;", 'r', 0x41000000, 0, 0, 0, 0x40400000},
        {"lg2.approx.f32 %rz, %ra;", 'r', 0, 0, 0, 0, 0xff800000},
        {"rsqrt.approx.f32 %rz, %ra;", 'r', 0x40800000, 0, 0, 0, 0x3f000000},
        {"tanh.approx.f32 %rz, %ra;", 'r', 0x7f800000, 0, 0, 0, 0x3f800000},
        {"add.rn.f64 %dz, %da, %db;", 'd', 0x3ff0000000000000, 0x3ca0000000000000, 0, 0, 0x3ff0000000000000},
        {"add.rp.f64 %dz, %da, %db;", 'd', 0x3ff0000000000000, 0x3ca0000000000000, 0, 0, 0x3ff0000000000001},
        {"mul.rz.f64 %dz, %da, %db;", 'd', 0x3ff0000000000001, 0x3ff0000000000001, 0, 0, 0x3ff0000000000002},
        {"mul.rp.f64 %dz, %da, %db;", 'd', 0x3ff0000000000001, 0x3ff0000000000001, 0, 0, 0x3ff0000000000003},
        {"fma.rn.f64 %dz, %da, %db, %dc;", 'd', 0x4000000000000000, 0x4008000000000000, 0x3ff0000000000000, 0,
         0x401c000000000000},
        {"div.rm.f64 %dz, %da, %db;", 'd', 0x3ff0000000000000, 0x4008000000000000, 0, 0, 0x3fd5555555555555},
        {"div.rp.f64 %dz, %da, %db;", 'd', 0x3ff0000000000000, 0x4008000000000000, 0, 0, 0x3fd5555555555556},
        {"sqrt.rn.f64 %dz, %da;", 'd', 0x4000000000000000, 0, 0, 0, 0x3ff6a09e667f3bcd},
    };
    CHECK(rows);
}
END_TEST

START_TEST(halves) {
    static const row rows[] = {
        {"add.rn.f16 %hz, %ha, %hb;", 'h', 0x3c00, 0x1000, 0, 0, 0x3c00}, /* 1 + 2^-11: tie to even */
        {"add.rn.f16 %hz, %ha, %hb;", 'h', 0x3c01, 0x1000, 0, 0, 0x3c02},
        {"add.rn.f16x2 %rz, %ra, %rb;", 'r', 0x3c004000, 0x40003c00, 0, 0, 0x42004200},
        {"mul.rn.bf16 %hz, %ha, %hb;", 'h', 0x3f81, 0x3f81, 0, 0, 0x3f82},
        {"fma.rn.bf16x2 %rz, %ra, %rb, %rc;", 'r', 0x3f814000, 0x3f814040, 0xbf823f80, 0, 0x388040e0}, /* 2^-14; 7 */
        {"fma.rn.f16 %hz, %ha, %hb, %hc;", 'h', 0x3c01, 0x3c01, 0xbc02, 0, 0x0010}, /* 2^-20 is 16 subnormal units */
        {"fma.rn.relu.f16 %hz, %ha, %hb, %hc;", 'h', 0x3c00, 0xbc00, 0, 0, 0},
        {"sub.rn.f16 %hz, %ha, %hb;", 'h', 0x7bff, 0xfbff, 0, 0, 0x7c00},
        {"min.bf16 %hz, %ha, %hb;", 'h', 0x7fc0, 0x3f80, 0, 0, 0x3f80},
        {"min.NaN.bf16 %hz, %ha, %hb;", 'h', 0x7fc0, 0x3f80, 0, 0, 0x7fff},
        {"max.f16x2 %rz, %ra, %rb;", 'r', 0x80003c00, 0x0000bc00, 0, 0, 0x00003c00},
        {"neg.bf16x2 %rz, %ra;", 'r', 0x3f800000, 0, 0, 0, 0xbf808000},
        {"abs.f16 %hz, %ha;", 'h', 0xbc00, 0, 0, 0, 0x3c00},
        {"tanh.approx.bf16 %hz, %ha;", 'h', 0, 0, 0, 0, 0},
        {"ex2.approx.ftz.bf16 %hz, %ha;", 'h', 0x4040, 0, 0, 0, 0x4100},
    };
    CHECK(rows);
}
END_TEST

START_TEST(conversions) {
    static const row rows[] = {
        {"cvt.rn.bf16.f32 %hz, %ra;", 'h', 0x3f808000, 0, 0, 0, 0x3f80}, /* tie to even */
        {"cvt.rn.bf16.f32 %hz, %ra;", 'h', 0x3f818000, 0, 0, 0, 0x3f82},
        {"cvt.rz.bf16.f32 %hz, %ra;", 'h', 0x3f81ffff, 0, 0, 0, 0x3f81},
        {"cvt.rn.relu.bf16.f32 %hz, %ra;", 'h', 0xbf800000, 0, 0, 0, 0},
        {"cvt.rn.bf16.f32 %hz, %ra;", 'h', 0x7f800001, 0, 0, 0, 0x7fff},
        {"cvt.rn.bf16x2.f32 %rz, %ra, %rb;", 'r', 0x3f800000, 0x40000000, 0, 0, 0x3f804000},
        {"cvt.rn.relu.bf16x2.f32 %rz, %ra, %rb;", 'r', 0xbf800000, 0x40000000, 0, 0, 0x00004000},
        {"cvt.rn.f16x2.f32 %rz, %ra, %rb;", 'r', 0x477ff000, 0x33000000, 0, 0, 0x7c000000}, /* 65520; 2^-25 */
        {"cvt.rn.satfinite.f16.f32 %hz, %ra;", 'h', 0x7f000000, 0, 0, 0, 0x7bff},
        {"cvt.rn.f16.f32 %hz, %ra;", 'h', 0x387fffff, 0, 0, 0, 0x0400}, /* rounds up to the least normal */
        {"cvt.rn.f16.f32 %hz, %ra;", 'h', 0xb3000001, 0, 0, 0, 0x8001},
        {"cvt.f32.f16 %rz, %ha;", 'r', 0x0001, 0, 0, 0, 0x33800000},
        {"cvt.f32.bf16 %rz, %ha;", 'r', 0xc040, 0, 0, 0, 0xc0400000},
        {"cvt.rna.tf32.f32 %rz, %ra;", 'r', 0x3f801000, 0, 0, 0, 0x3f802000}, /* tie away from zero */
        {"cvt.rn.tf32.f32 %rz, %ra;", 'r', 0x3f801000, 0, 0, 0, 0x3f800000},
        {"cvt.rzi.s32.f32 %rz, %ra;", 'r', 0xbfc00000, 0, 0, 0, 0xffffffff},
        {"cvt.rni.s32.f32 %rz, %ra;", 'r', 0x40200000, 0, 0, 0, 2}, /* 2.5 */
        {"cvt.rmi.s32.f32 %rz, %ra;", 'r', 0xbfc00000, 0, 0, 0, 0xfffffffe},
        {"cvt.rpi.s32.f32 %rz, %ra;", 'r', 0x3f800001, 0, 0, 0, 2},
        {"cvt.rzi.s32.f32 %rz, %ra;", 'r', 0x4f000000, 0, 0, 0, 0x7fffffff}, /* clamped */
        {"cvt.rzi.u32.f32 %rz, %ra;", 'r', 0xbf800000, 0, 0, 0, 0},
        {"cvt.rzi.s32.f32 %rz, %ra;", 'r', 0x7fc00000, 0, 0, 0, 0},
        {"cvt.rzi.u64.f32 %dz, %ra;", 'd', 0x5f800000, 0, 0, 0, UINT64_MAX},
        {"cvt.rzi.s64.f64 %dz, %da;", 'd', 0xc3e0000000000000, 0, 0, 0, UINT64_C(1) << 63},
        {"cvt.rn.f32.u32 %rz, %ra;", 'r', 0xffffffff, 0, 0, 0, 0x4f800000},
        {"cvt.rz.f32.u32 %rz, %ra;", 'r', 0xffffffff, 0, 0, 0, 0x4f7fffff},
        {"cvt.rn.f32.s32 %rz, %ra;", 'r', 0xffffffff, 0, 0, 0, 0xbf800000},
        {"cvt.rn.f32.u64 %rz, %da;", 'r', UINT64_C(0x8000008000000001), 0, 0, 0, 0x5f000001}, /* over a tie */
        {"cvt.rn.f32.s64 %rz, %da;", 'r', UINT64_MAX, 0, 0, 0, 0xbf800000},
        {"cvt.rn.f64.s32 %dz, %ra;", 'd', 0xffffffff, 0, 0, 0, 0xbff0000000000000},
        {"cvt.f64.f32 %dz, %ra;", 'd', 0x3fc00000, 0, 0, 0, 0x3ff8000000000000},
        {"cvt.rn.f32.f64 %rz, %da;", 'r', 0x3ff8000000000000, 0, 0, 0, 0x3fc00000},
        {"cvt.rni.f32.f32 %rz, %ra;", 'r', 0x40200000, 0, 0, 0, 0x40000000},
        {"cvt.sat.f32.f32 %rz, %ra;", 'r', 0x40200000, 0, 0, 0, 0x3f800000},
        {"cvt.s32.s8 %rz, %ra;", 'r', 0x80, 0, 0, 0, 0xffffff80},
        {"cvt.u32.u8 %rz, %ra;", 'r', 0x1ff, 0, 0, 0, 0xff},
        {"cvt.sat.s8.s32 %rz, %ra;", 'r', 0xffffff00, 0, 0, 0, 0xffffff80},
        {"cvt.sat.u8.s32 %rz, %ra;", 'r', 0xffffff00, 0, 0, 0, 0},
        {"cvt.sat.u16.u32 %hz, %ra;", 'h', 0x12345, 0, 0, 0, 0xffff},
        {"cvt.s64.s32 %dz, %ra;", 'd', 0x80000000, 0, 0, 0, UINT64_C(0xffffffff80000000)},
        {"cvt.u64.s32 %dz, %ra;", 'd', 0x80000000, 0, 0, 0, UINT64_C(0xffffffff80000000)},
        {"cvt.u64.u32 %dz, %ra;", 'd', 0x80000000, 0, 0, 0, 0x80000000},
        {"cvt.u32.u64 %rz, %da;", 'r', UINT64_C(0x1234567890), 0, 0, 0, 0x34567890},
    };
    CHECK(rows);
}
END_TEST

START_TEST(choices) {
    static const row rows[] = {
        {"setp.lt.s32 %pz, %ra, %rb;", 'p', 0xffffffff, 0, 0, 0, 1},
        {"setp.lt.u32 %pz, %ra, %rb;", 'p', 0xffffffff, 0, 0, 0, 0},
        {"setp.hs.u32 %pz, %ra, %rb;", 'p', 5, 5, 0, 0, 1},
        {"setp.eq.f32 %pz, %ra, %rb;", 'p', 0, 0x80000000, 0, 0, 1},
        {"setp.ne.f32 %pz, %ra, %rb;", 'p', 0x7fc00000, 0, 0, 0, 0},
        {"setp.neu.f32 %pz, %ra, %rb;", 'p', 0x7fc00000, 0, 0, 0, 1},
        {"setp.nan.f32 %pz, %ra, %rb;", 'p', 0x7fc00000, 0, 0, 0, 1},
        {"setp.num.f32 %pz, %ra, %rb;", 'p', 0x3f800000, 0, 0, 0, 1},
        {"setp.gt.ftz.f32 %pz, %ra, %rb;", 'p', 1, 0, 0, 0, 0},
        {"setp.lt.and.s32 %pz, %ra, %rb, %pc;", 'p', 1, 2, 0, 0, 0},
        {"setp.lt.and.s32 %pz, %ra, %rb, !%pc;", 'p', 1, 2, 0, 0, 1},
        {"setp.lt.or.s32 %py|%pz, %ra, %rb, %pc;", 'p', 1, 2, 0, 0, 0}, /* q: !(1 < 2) or c */
        {"setp.gt.f16x2 %py|%pz, %ra, %rb;", 'p', 0x40000000, 0x3c003c00, 0, 0, 1},
        {"setp.gt.f16x2 %pz|%py, %ra, %rb;", 'p', 0x40000000, 0x3c003c00, 0, 0, 0},
        {"setp.lt.s64 %pz, %da, %db;", 'p', UINT64_MAX, 0, 0, 0, 1},
        {"setp.lt.s16 %pz, %ha, %hb;", 'p', 0xffff, 0, 0, 0, 1},
        {"setp.gt.bf16 %pz, %ha, %hb;", 'p', 0x4000, 0x3f80, 0, 0, 1},
        {"set.lt.u32.s32 %rz, %ra, %rb;", 'r', 0xffffffff, 0, 0, 0, 0xffffffff},
        {"selp.b32 %rz, %ra, %rb, %pc;", 'r', 7, 9, 1, 0, 7},
        {"selp.b64 %dz, %da, %db, !%pc;", 'd', 7, 9, 1, 0, 9},
        {"slct.u32.s32 %rz, %ra, %rb, %rc;", 'r', 7, 9, 0x80000000, 0, 9},
        {"slct.f32.f32 %rz, %ra, %rb, %rc;", 'r', 7, 9, 0x80000000, 0, 7}, /* -0 >= 0 */
        {"testp.normal.f32 %pz, %ra;", 'p', 0x80000000, 0, 0, 0, 1},
        {"testp.subnormal.f32 %pz, %ra;", 'p', 1, 0, 0, 0, 1},
        {"testp.notanumber.f32 %pz, %ra;", 'p', 0x7f800001, 0, 0, 0, 1},
        {"testp.infinite.f64 %pz, %da;", 'p', 0x7ff0000000000000, 0, 0, 0, 1},
        {"mov.b64 %dz, {%ra, %rb};", 'd', 1, 2, 0, 0, UINT64_C(0x200000001)},
        {"mov.b64 {%ry, %rz}, %da;", 'r', UINT64_C(0x200000001), 0, 0, 0, 2},
        {"mov.b32 %rz, {%ha, %hb};", 'r', 1, 2, 0, 0, 0x20001},
        {"mov.b32 {%hz, _}, %ra;", 'h', 0x20001, 0, 0, 0, 1},
        {"mov.b32 %rz, 0f3f800000;", 'r', 0, 0, 0, 0, 0x3f800000},
        {"mov.f32 %rz, 1.5;", 'r', 0, 0, 0, 0, 0x3fc00000},
        {"mov.f64 %dz, 0d3ff8000000000000;", 'd', 0, 0, 0, 0, 0x3ff8000000000000},
        {"mov.u32 %rz, -1;", 'r', 0, 0, 0, 0, 0xffffffff},
        {"mov.u32 %rz, WARP_SZ;", 'r', 0, 0, 0, 0, 32},
        {"createpolicy.fractional.L2::evict_last.b64 %dz, 1.0;", 'd', 0, 0, 0, 0, 0x14F0000000000000},
        {"mov.pred %pz, %pa;", 'p', 1, 0, 0, 0, 1},
    };
    CHECK(rows);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/exec");
    TCase *t = tcase_create("exec");
    tcase_add_test(t, integers);
    tcase_add_test(t, bits);
    tcase_add_test(t, floats);
    tcase_add_test(t, halves);
    tcase_add_test(t, conversions);
    tcase_add_test(t, choices);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
