/* The executor of lane-wise instructions. */
#include "sim/lanes.h"

kn_status kn_x_kernel(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t room[4][KN_LANES], out[KN_LANES];
    const void *src[4];
    for (int k = 1; k < i->n_op; k++) {
        const kn_operand *o = &i->op[k];
        if (o->bytes == 8) {
            const uint64_t *v;
            KN_TRY(kn_src64(m, w, i, o, active, room[k - 1], &v));
            src[k - 1] = v;
        } else {
            const uint32_t *v;
            KN_TRY(kn_src32(m, w, i, o, active, (uint32_t *)room[k - 1], &v));
            src[k - 1] = v;
        }
    }
    kn_kernel_of(i)(i, src, out);
    const kn_operand *d = &i->op[0];
    if (d->bytes == 8) return kn_put64(m, w, i, d, active, out);
    return kn_put32(m, w, i, d, active, (const uint32_t *)out);
}

kn_status kn_use_kernel(kn_insn *i, kn_kernel *kernel) {
    if (!kernel) return kn_insn_error(i, "there is no such combination of type and modifiers");
    if (i->n_op < 2 || i->n_op > 5) return kn_fail(KN_E_INTERNAL, "%s: %d operands for a kernel", i->text, i->n_op);
    i->exec = kn_x_kernel;
    i->aux = (uint64_t)(uintptr_t)kernel;
    return KN_OK;
}
