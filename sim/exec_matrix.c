/* ldmatrix, stmatrix and mma.sync: fragments of 8x8 matrices of 16-bit elements, and the tensor core's product.
 *
 * A matrix row is 16 bytes; lane 8k + r holds the address of row r of matrix k. Lane l holds of each matrix row l / 4,
 * elements 2 (l % 4) and the next; transposed: column l / 4. */
#include "sim/locate.h"
#include "sim/tensorcore.h"

enum { ROW = 16, ROWS = 8 };

static uint32_t matrices(const kn_insn *i) {
    return i->m[KN_M_COUNT4] == KN_TOK_x4 ? 4 : i->m[KN_M_COUNT4] == KN_TOK_x2 ? 2 : 1;
}
static const kn_operand *fragment(const kn_operand *o, uint32_t k) {
    return o->kind == KN_O_VEC ? &o->elem[k] : o;
}

static kn_status locate_rows(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *address,
                             kn_access_kind kind, uint8_t *at[32]) {
    uint64_t addr[KN_LANES];
    uint32_t n = matrices(i), lanes = n == 4 ? KN_FULL_MASK : (1u << ROWS * n) - 1;
    KN_TRY(kn_src_addr(m, w, i, address, lanes, addr));
    return kn_locate(m, w, i, addr, (kn_space)i->space[0], lanes, ROW, kind, at);
}

/* Where element e (0, 1) of lane l lies: row and 16-bit column. */
static inline void place(bool trans, int l, int e, int *row, int *column) {
    *row = trans ? 2 * (l % 4) + e : l / 4;
    *column = trans ? l / 4 : 2 * (l % 4) + e;
}

kn_status kn_x_ldmatrix(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint8_t *at[KN_LANES];
    bool trans = i->m[KN_M_TRANS] != 0;
    KN_TRY(locate_rows(m, w, i, &i->op[1], KN_READ, at));
    for (uint32_t k = 0; k < matrices(i); k++) {
        uint32_t out[KN_LANES];
        for (int l = 0; l < KN_LANES; l++) {
            uint16_t half[2];
            for (int e = 0; e < 2; e++) {
                int row, column;
                place(trans, l, e, &row, &column);
                memcpy(&half[e], at[k * ROWS + (uint32_t)row] + 2 * column, 2);
            }
            out[l] = half[0] | (uint32_t)half[1] << 16;
        }
        KN_TRY(kn_put32(m, w, i, fragment(&i->op[0], k), active, out));
    }
    m->stats.bytes_loaded += (uint64_t)matrices(i) * ROWS * ROW;
    return KN_OK;
}

kn_status kn_x_stmatrix(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint8_t *at[KN_LANES];
    bool trans = i->m[KN_M_TRANS] != 0;
    KN_TRY(locate_rows(m, w, i, &i->op[0], KN_WRITE, at));
    for (uint32_t k = 0; k < matrices(i); k++) {
        uint32_t room[KN_LANES];
        const uint32_t *v;
        KN_TRY(kn_src32(m, w, i, fragment(&i->op[1], k), active, room, &v));
        for (int l = 0; l < KN_LANES; l++) {
            for (int e = 0; e < 2; e++) {
                int row, column;
                uint16_t half = (uint16_t)(v[l] >> 16 * e);
                place(trans, l, e, &row, &column);
                memcpy(at[k * ROWS + (uint32_t)row] + 2 * column, &half, 2);
            }
        }
    }
    m->stats.bytes_stored += (uint64_t)matrices(i) * ROWS * ROW;
    return KN_OK;
}

/* movmatrix: lane l's word is row l / 4, elements 2 (l % 4) and the next, before and after. */
kn_status kn_x_movmatrix(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t room[KN_LANES], out[KN_LANES];
    const uint32_t *v;
    KN_TRY(kn_src32(m, w, i, &i->op[1], active, room, &v));
    for (int l = 0; l < KN_LANES; l++) {
        out[l] = 0;
        for (int e = 0; e < 2; e++) {
            int row, column;
            place(true, l, e, &row, &column);
            uint32_t half = v[4 * row + column / 2] >> 16 * (column % 2) & 0xffff;
            out[l] |= half << 16 * e;
        }
    }
    return kn_put32(m, w, i, &i->op[0], active, out);
}

static kn_status check_whole_warp(const kn_insn *i, const kn_operand *o, uint32_t n) {
    uint32_t seen = o->kind == KN_O_VEC ? o->n : 1;
    if (seen != n) return kn_insn_error(i, "a list of %u registers is wanted, not %u", n, seen);
    for (uint32_t k = 0; k < n; k++)
        if (fragment(o, k)->kind != KN_O_REG || fragment(o, k)->bytes != 4)
            return kn_insn_error(i, "fragments are 32-bit registers");
    return KN_OK;
}

kn_status kn_p_ldmatrix(kn_insn *i) {
    return check_whole_warp(i, &i->op[0], matrices(i));
}
kn_status kn_p_stmatrix(kn_insn *i) {
    return check_whole_warp(i, &i->op[1], matrices(i));
}

/* ---- mma.sync
 * -------------------------------------------------------------------------------------------------------- */

/* Registers of A for m16 x k: two rows of k / 4 ... pairs (tf32: single elements). */
static uint32_t a_registers(const kn_insn *i) {
    bool tf32 = i->type[1] == KN_T_tf32;
    return (uint32_t)i->shape[2] / (tf32 ? 2 : 4);
}

kn_status kn_p_mma(kn_insn *i) {
    kn_type t = (kn_type)i->type[1];
    bool tf32 = t == KN_T_tf32;
    bool shape = i->shape[0] == 16 && i->shape[1] == 8 &&
                 (tf32 ? i->shape[2] == 8 || i->shape[2] == 4 : i->shape[2] == 16 || i->shape[2] == 8);
    if (!shape || i->type[2] != t) return kn_insn_error(i, "there is no such shape for these types");
    KN_TRY(check_whole_warp(i, &i->op[0], 4));
    KN_TRY(check_whole_warp(i, &i->op[1], a_registers(i)));
    KN_TRY(check_whole_warp(i, &i->op[2], a_registers(i) / 2));
    return check_whole_warp(i, &i->op[3], 4);
}

static kn_status gather(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t n, uint32_t width,
                        uint32_t *out) {
    for (uint32_t k = 0; k < n; k++) {
        uint32_t room[KN_LANES];
        const uint32_t *v;
        KN_TRY(kn_src32(m, w, i, fragment(o, k), KN_FULL_MASK, room, &v));
        for (uint32_t l = 0; l < KN_LANES; l++) out[l * width + k] = v[l];
    }
    return KN_OK;
}

kn_status kn_x_mma(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t a[KN_LANES][4] = {{0}}, b[KN_LANES][2] = {{0}};
    float c[KN_LANES][4], d[KN_LANES][4];
    kn_tc_type type = i->type[1] == KN_T_bf16 ? KN_TC_BF16 : i->type[1] == KN_T_f16 ? KN_TC_F16 : KN_TC_TF32;
    if (active != KN_FULL_MASK) return kn_fault(m, w, i, -1, "only %08x of the warp's 32 lanes execute it", active);
    KN_TRY(gather(m, w, i, &i->op[1], a_registers(i), 4, &a[0][0]));
    KN_TRY(gather(m, w, i, &i->op[2], a_registers(i) / 2, 2, &b[0][0]));
    KN_TRY(gather(m, w, i, &i->op[3], 4, 4, (uint32_t *)&c[0][0]));
    kn_tc_mma_sync(type, i->shape[2], a, b, c, d);
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t out[KN_LANES];
        for (int l = 0; l < KN_LANES; l++) memcpy(&out[l], &d[l][k], 4);
        KN_TRY(kn_put32(m, w, i, fragment(&i->op[0], k), active, out));
    }
    m->stats.mma_flops += 2ull * i->shape[0] * i->shape[1] * i->shape[2];
    return KN_OK;
}
