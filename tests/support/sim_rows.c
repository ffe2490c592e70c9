/* See sim_rows.h. */
#include "support/sim_rows.h"
#include "base/alloc.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

kn_status kn_sim_rows_read(const char *path, kn_sim_rows *out) {
    size_t len;
    memset(out, 0, sizeof *out);
    KN_TRY(kn_file_read(path, 1 << 22, &out->text, &len));
    for (char *line = out->text; *line;) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        if (line[0] && line[0] != '#') {
            char *kind = NULL;
            KN_REQUIRE(out->n < KN_ROWS_MAX, KN_E_FORMAT, "%s: too many rows", path);
            out->hash[out->n] = strtoull(line, &kind, 16);
            KN_REQUIRE(kind[0] == ' ' && kind[1] && kind[2] == ' ', KN_E_FORMAT, "%s: \"%s\" is no row", path, line);
            out->kind[out->n] = kind[1];
            out->statements[out->n++] = kind + 3;
        }
        line = end ? end + 1 : line + strlen(line);
    }
    return KN_OK;
}

void kn_sim_rows_free(kn_sim_rows *r) {
    kn_free(r->text);
    memset(r, 0, sizeof *r);
}

kn_status kn_sim_rows_ptx(const kn_sim_rows *r, kn_buf *out) {
    kn_buf_add(out, ".version 8.3\n.target sm_90a\n.address_size 64\n"
                    ".visible .entry rows(.param .u64 in, .param .u64 out) .reqntid 1024, 1, 1 {\n"
                    ".reg .b16 %ha, %hb, %hc, %he;\n.reg .b32 %ra, %rb, %rc, %re, %t;\n"
                    ".reg .b64 %da, %db, %dc, %de, %in, %out;\n.reg .pred %pa, %pb, %pc, %pe;\n"
                    "mov.u32 %t, %tid.x;\nld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n"
                    "mad.wide.u32 %in, %t, 32, %in;\nmad.wide.u32 %out, %t, 8, %out;\n");
    for (const char *k = "abce"; *k; k++)
        kn_buf_addf(out,
                    "ld.global.b64 %%d%c, [%%in+%d];\ncvt.u32.u64 %%r%c, %%d%c;\ncvt.u16.u64 %%h%c, %%d%c;\n"
                    "and.b32 %%t, %%r%c, 1;\nsetp.ne.u32 %%p%c, %%t, 0;\n",
                    *k, *k == 'e' ? 24 : (*k - 'a') * 8, *k, *k, *k, *k, *k, *k);
    for (uint32_t k = 0; k < r->n; k++) {
        kn_buf_addf(
            out,
            "{ .reg .b16 %%hz, %%hy; .reg .b32 %%rz, %%ry, %%rx; .reg .b64 %%dz, %%dy; .reg .pred %%pz, %%py;\n%s\n",
            r->statements[k]);
        if (r->kind[k] == 'r') kn_buf_add(out, "cvt.u64.u32 %dz, %rz;\n");
        if (r->kind[k] == 'h') kn_buf_add(out, "cvt.u64.u16 %dz, %hz;\n");
        if (r->kind[k] == 'p') kn_buf_add(out, "selp.b64 %dz, 1, 0, %pz;\n");
        kn_buf_addf(out, "st.global.b64 [%%out], %%dz; add.u64 %%out, %%out, %d; }\n", 8 * KN_ROWS_LANES);
    }
    kn_buf_add(out, "ret;\n}\n");
    return kn_buf_status(out);
}

static uint64_t next(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static const uint32_t special32[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x807fffff, 0x00800000,
                                     0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
                                     0xffc00001, 0x7f800001, 0x3f800001, 0x33800000, 0x4f000000, 0xcf000000, 0x5f000000,
                                     0x4b800001, 0x3f000000, 0x40200000, 0xc0200000, 0xffffffff, 0x7fffffff};
static const uint64_t special64[] = {0,
                                     0x8000000000000000,
                                     1,
                                     0x3ff0000000000000,
                                     0xbff0000000000000,
                                     0x7fefffffffffffff,
                                     0x7ff0000000000000,
                                     0xfff0000000000000,
                                     0x7ff8000000000000,
                                     0x3ff0000000000001,
                                     0x3ca0000000000000,
                                     0x0010000000000000,
                                     0x000fffffffffffff,
                                     0x43e0000000000000,
                                     0xc3e0000000000000,
                                     0x41dfffffffc00000,
                                     0x41f0000000000000,
                                     0x47efffffe0000000,
                                     0x47effffff0000000,
                                     0x3690000000000000,
                                     0x380fffffe0000000,
                                     0x7ff0000000000001};
static const uint16_t special16[] = {0,      0x8000, 1,      0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x7bff,
                                     0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x3f80, 0xbf80, 0x7f7f, 0x7f80,
                                     0xff80, 0x7fc0, 0x3f81, 0x0080, 0x007f, 0x3c01, 0x1000, 0x7fff, 0xffff};
#define PICK(table, r) table[(r) % (sizeof table / sizeof table[0])]

/* A half with an exponent field in [low, low + range). */
static uint64_t half(uint64_t r, int mantissa, uint64_t low, uint64_t range) {
    return (r & 1) << 15 | (low + (r >> 1) % range) << mantissa | (r >> 32 & ((1u << mantissa) - 1));
}

static uint64_t operand(uint64_t *state, uint64_t family) {
    uint64_t r = next(state), q = next(state);
    switch (family) {
    case 0: return PICK(special32, r) | q << 32;
    case 1: return PICK(special64, r);
    case 2: return PICK(special16, r) | (uint64_t)PICK(special16, r >> 20) << 16 | q << 32;
    case 3: return r;
    case 4: return r % 64;
    case 5: return 0 - r % 300;
    case 6: return (r & 1) << 31 | (97 + (r >> 1) % 61) << 23 | (q & 0x7fffff);                    /* moderate f32 */
    case 7: return (r & 1) << 63 | (1013 + (r >> 1) % 44) << 52 | (q & ((UINT64_C(1) << 52) - 1)); /* moderate f64 */
    case 8:
        return (r & 1) << 63 | (863 + (r >> 1) % 320) << 52 |
               (q & ((UINT64_C(1) << 52) - 1));                         /* f64 near f32's range */
    case 9: return (r & 1) << 31 | (r >> 1 & 7) << 23 | (q & 0x7fffff); /* tiny f32 */
    case 10: return half(r, 10, 1, 26) | half(q, 10, 1, 26) << 16;
    default: return half(r, 7, 107, 40) | half(q, 7, 107, 40) << 16;
    }
}

void kn_sim_rows_inputs(uint64_t in[4 * KN_ROWS_LANES]) {
    uint64_t state = 1;
    for (int l = 0; l < KN_ROWS_LANES; l++) {
        uint64_t family = next(&state) % 12;
        for (int k = 0; k < 4; k++) in[4 * l + k] = operand(&state, l % 3 == 0 ? family : next(&state) % 12);
    }
}

uint64_t kn_sim_rows_hash(const uint64_t *results) { /* FNV-1a over 64-bit words, mixed at the end */
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int l = 0; l < KN_ROWS_LANES; l++) {
        h = (h ^ (results[l] & 0xffffffffu)) * UINT64_C(0x100000001b3);
        h = (h ^ results[l] >> 32) * UINT64_C(0x100000001b3);
    }
    return h ^ h >> 29;
}
