/* jit/expand: exact rational arithmetic in 128 bits, and the one rounding that makes float bits of it. Floating-point
 * constants never pass through the host's floats or its locale. */
#include "jit/expand_internal.h"

static const __int128 LIMIT = (__int128)1 << 126; /* |n| and d stay below: sums of two never wrap */

static __int128 gcd(__int128 a, __int128 b) {
    while (b) {
        __int128 t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static bool multiply(__int128 a, __int128 b, __int128 *out) {
    __int128 x = a < 0 ? -a : a, y = b < 0 ? -b : b;
    if (x && y > (LIMIT - 1) / x) return false;
    *out = a * b;
    return true;
}

bool kn_ex_rat_make(__int128 n, __int128 d, kn_ex_rat *out) {
    if (d == 0) return false;
    if (d < 0) {
        n = -n;
        d = -d;
    }
    __int128 g = gcd(n < 0 ? -n : n, d);
    out->n = n / g;
    out->d = d / g;
    return out->n < LIMIT && out->n > -LIMIT && out->d < LIMIT;
}

bool kn_ex_rat_op(int token, const kn_ex_rat *a, const kn_ex_rat *b, kn_ex_rat *out) {
    __int128 n, m, d;
    kn_ex_rat x = *a, y = *b;
    if (token == '/') {
        if (y.n == 0) return false;
        y = (kn_ex_rat){y.n < 0 ? -y.d : y.d, y.n < 0 ? -y.n : y.n};
    }
    if (token == '*' || token == '/') {
        /* Crosswise first, so that 1e30 * 1e-30 needs no 1e60 in between. */
        kn_ex_rat p, q;
        return kn_ex_rat_make(x.n, y.d, &p) && kn_ex_rat_make(y.n, x.d, &q) && multiply(p.n, q.n, &n) &&
               multiply(p.d, q.d, &d) && kn_ex_rat_make(n, d, out);
    }
    __int128 g = gcd(x.d, y.d);
    if (!multiply(x.n, y.d / g, &n) || !multiply(y.n, x.d / g, &m) || !multiply(x.d, y.d / g, &d)) return false;
    return kn_ex_rat_make(token == '-' ? n - m : n + m, d, out);
}

bool kn_ex_rat_compare(const kn_ex_rat *a, const kn_ex_rat *b, int *out) {
    kn_ex_rat difference;
    if (!kn_ex_rat_op('-', a, b, &difference)) return false;
    *out = difference.n < 0 ? -1 : difference.n > 0;
    return true;
}

/* Largest e with 2^e <= n / d. */
static int floor_log2(unsigned __int128 n, unsigned __int128 d) {
    int e = 0;
    for (; n >= d && n - d >= d; e++) n = n / 2; /* an estimate: halving drops bits, at most one step short */
    for (; n < d; e--) n *= 2;
    return e;
}

/* Is n / d < 2^e, exactly? */
static bool below_power(unsigned __int128 n, unsigned __int128 d, int e) {
    for (; e > 0; e--) {
        if (n < d) return true;
        d *= 2;
    }
    for (; e < 0; e++) {
        if (n >= d) return false;
        n *= 2;
    }
    return n < d;
}

/* floor(n / d * 2^shift) with the rest of the division in *rest (0, or not). shift may be negative. */
static uint64_t scaled_quotient(unsigned __int128 n, unsigned __int128 d, int shift, int *half) {
    unsigned __int128 q = n / d, r = n % d;
    for (int i = 0; i < shift; i++) {
        r *= 2;
        q = q * 2 + (r >= d);
        if (r >= d) r -= d;
    }
    bool sticky = r != 0;
    int down = shift < 0 ? -shift : 0; /* at most 119: n / d < 2^126 and every format keeps 7 bits */
    /* One further bit decides the rounding. */
    if (down == 0) {
        r *= 2;
        bool bit = r >= d;
        if (bit) r -= d;
        *half = bit ? (r ? 2 : 1) : 0;
        return (uint64_t)q;
    }
    unsigned __int128 low = q & (((unsigned __int128)1 << down) - 1);
    unsigned __int128 mid = (unsigned __int128)1 << (down - 1);
    *half = low > mid || (low == mid && sticky) ? 2 : low == mid ? 1 : 0;
    return (uint64_t)(q >> down);
}

bool kn_ex_rat_round(const kn_ex_rat *r, int exp_bits, int man_bits, uint64_t *bits) {
    bool minus = r->n < 0;
    unsigned __int128 n = (unsigned __int128)(minus ? -r->n : r->n), d = (unsigned __int128)r->d;
    uint64_t sign = (uint64_t)minus << (exp_bits + man_bits);
    *bits = sign;
    if (n == 0) return true;
    int bias = (1 << (exp_bits - 1)) - 1;
    int e = floor_log2(n, d);
    while (below_power(n, d, e)) e--;
    while (!below_power(n, d, e + 1)) e++;
    if (e < 1 - bias) e = 1 - bias; /* subnormal: the quantum stays */
    int half = 0;                   /* 0 below, 1 at, 2 above the middle of two neighbours */
    uint64_t q = scaled_quotient(n, d, man_bits - e, &half);
    if (half == 2 || (half == 1 && (q & 1))) q++;
    uint64_t hidden = (uint64_t)1 << man_bits;
    uint64_t field = q < hidden ? 0 : (uint64_t)(e + bias);
    uint64_t value = (field << man_bits) + (q < hidden ? q : q - hidden); /* a carry moves into the exponent */
    if (value >> man_bits >= ((uint64_t)1 << exp_bits) - 1) return false;
    *bits = sign | value;
    return true;
}
