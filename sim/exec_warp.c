/* Instructions in which the lanes of a warp exchange values: shfl, vote, match, redux, elect, activemask. Those with a
 * member mask wait until all live lanes of it have come. */
#include "sim/machine.h"

/* The lanes that work together with `lane`: those whose member mask is the same. */
static uint32_t partners(const uint32_t *members, uint32_t active, int lane) {
    uint32_t same = 0;
    for (int l = 0; l < KN_LANES; l++)
        if ((active >> l & 1) && members[l] == members[lane]) same |= 1u << l;
    return same;
}

/* Are all live lanes of every member mask here? *members: each lane's mask. */
static kn_status collect(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t active,
                         uint32_t members[32]) {
    uint32_t room[KN_LANES];
    const uint32_t *v;
    KN_TRY(kn_src32(m, w, i, o, active, room, &v));
    memcpy(members, v, KN_LANES * sizeof *members);
    for (uint32_t left = active; left;) {
        int lane = __builtin_ctz(left);
        uint32_t here = partners(members, active, lane), wanted = members[lane] & w->live;
        left &= ~here;
        if (here & ~members[lane])
            return kn_fault(m, w, i, __builtin_ctz(here & ~members[lane]),
                            "the lane is not in its own member mask %08x", members[lane]);
        uint32_t missing = wanted & ~here;
        if (missing & w->g->mask)
            return kn_fault(m, w, i, __builtin_ctz(missing & w->g->mask),
                            "the lane is in the member mask %08x but its guard or its own mask keeps it out",
                            members[lane]);
        if (missing) {
            w->g->wait = "waits for lanes of its member mask, missing";
            w->g->wait_arg = missing;
            return KN_NOT_READY;
        }
    }
    return KN_OK;
}

/* Source lane of a shuffle; *inside: the predicate result. */
static int shuffle_source(kn_token mode, int lane, uint32_t b, uint32_t c, bool *inside) {
    int segment = (int)(c >> 8 & 31), clamp = (int)(c & 31), n = (int)(b & 31);
    int max = (lane & segment) | (clamp & ~segment), min = lane & segment, j;
    switch (mode) {
    case KN_TOK_up:
        j = lane - n;
        *inside = j >= max;
        break;
    case KN_TOK_down:
        j = lane + n;
        *inside = j <= max;
        break;
    case KN_TOK_bfly:
        j = lane ^ n;
        *inside = j <= max;
        break;
    default:
        j = min | (n & ~segment);
        *inside = j <= max;
        break;
    }
    return *inside ? j : lane;
}

kn_status kn_x_shfl(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t members[KN_LANES], ra[KN_LANES], rb[KN_LANES], rc[KN_LANES], out[KN_LANES], inside = 0;
    const uint32_t *a, *b, *c;
    KN_TRY(collect(m, w, i, &i->op[4], active, members));
    KN_TRY(kn_src32(m, w, i, &i->op[1], active, ra, &a));
    KN_TRY(kn_src32(m, w, i, &i->op[2], active, rb, &b));
    KN_TRY(kn_src32(m, w, i, &i->op[3], active, rc, &c));
    for (int l = 0; l < KN_LANES; l++) {
        bool in;
        if (!(active >> l & 1)) continue;
        int j = shuffle_source((kn_token)i->m[KN_M_OP], l, b[l], c[l], &in);
        if (!(active >> j & 1) || members[j] != members[l])
            return kn_fault(m, w, i, l, "it reads lane %d, which takes no part in it", j);
        out[l] = a[j];
        inside |= (uint32_t)in << l;
    }
    const kn_operand *d = &i->op[0];
    if (d->kind != KN_O_PAIR) return kn_put32(m, w, i, d, active, out);
    KN_TRY(kn_put32(m, w, i, &d->elem[0], active, out));
    return kn_put_pred(m, w, i, &d->elem[1], active, inside);
}

/* vote: for each set of partners one answer. */
kn_status kn_x_vote(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t members[KN_LANES], ballot[KN_LANES] = {0}, p, result = 0;
    KN_TRY(collect(m, w, i, &i->op[2], active, members));
    KN_TRY(kn_src_pred(m, w, i, &i->op[1], active, &p));
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        uint32_t with = partners(members, active, l), yes = p & with;
        ballot[l] = yes;
        bool answer = i->m[KN_M_OP] == KN_TOK_any   ? yes != 0
                      : i->m[KN_M_OP] == KN_TOK_all ? yes == with
                                                    : yes == 0 || yes == with; /* uni */
        result |= (uint32_t)answer << l;
    }
    if (i->m[KN_M_OP] == KN_TOK_ballot) return kn_put32(m, w, i, &i->op[0], active, ballot);
    return kn_put_pred(m, w, i, &i->op[0], active, result);
}

/* match.any: the lanes with my value; match.all: all lanes if they agree, else 0, and a predicate. */
kn_status kn_x_match(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t members[KN_LANES], out[KN_LANES] = {0}, agree = 0;
    uint64_t room[KN_LANES];
    const uint64_t *a;
    KN_TRY(collect(m, w, i, &i->op[2], active, members));
    KN_TRY(kn_src64(m, w, i, &i->op[1], active, room, &a));
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        uint32_t with = partners(members, active, l), same = 0;
        for (int k = 0; k < KN_LANES; k++)
            if ((with >> k & 1) && a[k] == a[l]) same |= 1u << k;
        bool all = same == with;
        out[l] = i->m[KN_M_OP] == KN_TOK_any ? same : all ? with : 0;
        agree |= (uint32_t)all << l;
    }
    const kn_operand *d = &i->op[0];
    if (d->kind != KN_O_PAIR) return kn_put32(m, w, i, d, active, out);
    KN_TRY(kn_put32(m, w, i, &d->elem[0], active, out));
    return kn_put_pred(m, w, i, &d->elem[1], active, agree);
}

static uint32_t reduce(const kn_insn *i, uint32_t x, uint32_t y) {
    bool sign = kn_type_kind[i->type[0]] == 's';
    bool less = sign ? (int32_t)x < (int32_t)y : x < y;
    switch (i->m[KN_M_OP]) {
    case KN_TOK_add: return x + y;
    case KN_TOK_min: return less ? x : y;
    case KN_TOK_max: return less ? y : x;
    case KN_TOK_and: return x & y;
    case KN_TOK_or: return x | y;
    default: return x ^ y;
    }
}

kn_status kn_x_redux(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t members[KN_LANES], room[KN_LANES], out[KN_LANES] = {0};
    const uint32_t *a;
    KN_TRY(collect(m, w, i, &i->op[2], active, members));
    KN_TRY(kn_src32(m, w, i, &i->op[1], active, room, &a));
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        uint32_t with = partners(members, active, l);
        int first = __builtin_ctz(with);
        uint32_t v = a[first];
        for (int k = first + 1; k < KN_LANES; k++)
            if (with >> k & 1) v = reduce(i, v, a[k]);
        out[l] = v;
    }
    return kn_put32(m, w, i, &i->op[0], active, out);
}

/* elect.sync d|p, members: the lowest lane is elected. */
kn_status kn_x_elect(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t members[KN_LANES], leader[KN_LANES] = {0}, elected = 0;
    KN_TRY(collect(m, w, i, &i->op[1], active, members));
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        leader[l] = (uint32_t)__builtin_ctz(partners(members, active, l));
        elected |= (uint32_t)(leader[l] == (uint32_t)l) << l;
    }
    const kn_operand *d = &i->op[0];
    if (d->kind != KN_O_PAIR) return kn_put32(m, w, i, d, active, leader);
    KN_TRY(kn_put32(m, w, i, &d->elem[0], active, leader));
    return kn_put_pred(m, w, i, &d->elem[1], active, elected);
}

kn_status kn_x_activemask(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t out[KN_LANES];
    for (int l = 0; l < KN_LANES; l++) out[l] = active;
    return kn_put32(m, w, i, &i->op[0], active, out);
}

/* bar.warp.sync members: the lanes meet; what they wrote before is visible to each other behind it. */
kn_status kn_x_warp_sync(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t members[KN_LANES];
    KN_TRY(collect(m, w, i, &i->op[0], active, members));
    for (uint32_t left = active; m->hb && left;) {
        uint32_t together = partners(members, active, __builtin_ctz(left));
        KN_TRY(m->hb->warp_sync(m, w, together));
        left &= ~together;
    }
    return KN_OK;
}
