// What a user writes around cuBLASLt's products: gathers, activations, the router's arithmetic, scatters, each a plain kernel.
// `kiln bench --peers composed` compiles this text with NVRTC and times the kernels and products of an operation one after the
// other. bf16 tensors whose rows are multiples of 8; options at their defaults. Every kernel has the same arguments: eight
// pointers, four sizes and the bytes of an index.

#define KERNEL(name)                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256) name(const void *a, const void *b, const void *c, const void *d, void *e,   \
                                                           void *f, void *g, void *h, long long m, long long n, long long k,      \
                                                           long long l, long long id_bytes)

typedef unsigned short bf16;
struct eight {
    float v[8];
};

__device__ float from_bf16(bf16 x) { return __uint_as_float((unsigned)x << 16); }
__device__ bf16 to_bf16(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
__device__ eight load8(const void *p, long long i) { // elements i .. i + 7
    uint4 w = *(const uint4 *)((const bf16 *)p + i);
    const unsigned words[4] = {w.x, w.y, w.z, w.w};
    eight r;
    for (int j = 0; j < 4; j++) {
        r.v[2 * j] = __uint_as_float(words[j] << 16);
        r.v[2 * j + 1] = __uint_as_float(words[j] & 0xFFFF0000u);
    }
    return r;
}
__device__ void store8(void *p, long long i, const eight &x) {
    unsigned words[4];
    for (int j = 0; j < 4; j++) words[j] = to_bf16(x.v[2 * j]) | (unsigned)to_bf16(x.v[2 * j + 1]) << 16;
    *(uint4 *)((bf16 *)p + i) = make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ long long id_of(const void *ids, long long i, long long id_bytes) {
    return id_bytes == 8 ? ((const long long *)ids)[i] : ((const int *)ids)[i];
}
__device__ float warp_sum(float x) {
    for (int d = 16; d; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
}
__device__ float block_sum(float x) {
    __shared__ float part[8];
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < 8; i++) x += part[i];
    return x;
}

// e[m,n] = b[m,n] + a[n] + (d ? c / (m k) : 0), all f32; a thread has four columns. n: a multiple of 4.
KERNEL(load_balance) {
    unsigned i = blockIdx.x * 256 + threadIdx.x, width = (unsigned)n / 4, column = i % width;
    if (i >= m * width) return;
    float4 x = ((const float4 *)b)[i], t = ((const float4 *)a)[column];
    float loss = *(const unsigned char *)d ? *(const float *)c / (float)(m * k) : 0;
    ((float4 *)e)[i] = make_float4(x.x + t.x + loss, x.y + t.y + loss, x.z + t.z + loss, x.w + t.w + loss);
}

// Gradient of the router's logits, h[m,n], a warp a token: probabilities a[m,n], experts b[m,k], sums c[m], gradients of the
// weights d[m,k], of the mask e[n,k,m], of the logits f[m,n].
KERNEL(router_dlogits) {
    __shared__ float rows[8][512];
    long long t = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float *grad = rows[threadIdx.x / 32], dot = 0;
    if (t >= m) return;
    const float *p = (const float *)a + t * n;
    for (long long x = lane; x < n; x += 32) grad[x] = from_bf16(((const bf16 *)f)[t * n + x]);
    __syncwarp();
    float total = ((const float *)c)[t], gw = 0, w = 0;
    long long id = lane < k ? id_of(b, t * k + lane, id_bytes) : -1;
    if (id >= 0) {
        gw = from_bf16(((const bf16 *)d)[t * k + lane]);
        w = p[id];
    }
    float mean = warp_sum(gw * w) / total;
    if (id >= 0) grad[id] += (gw - mean) / total + from_bf16(((const bf16 *)e)[(id * k + lane) * m + t]);
    __syncwarp();
    for (long long x = lane; x < n; x += 32) dot += grad[x] * p[x];
    dot = warp_sum(dot);
    for (long long x = lane; x < n; x += 32) ((bf16 *)h)[t * n + x] = to_bf16(p[x] * (grad[x] - dot));
}

// A block a selected token: f[m,n] = a[b[m],n] * d[m], and h[b[m]] = a[b[m],:] . c[m,:].
KERNEL(gather_rows) {
    long long t = blockIdx.x, row = id_of(b, t, id_bytes);
    float scale = from_bf16(((const bf16 *)d)[t]), dot = 0;
    for (long long x = threadIdx.x * 8; x < n; x += 2048) {
        eight y = load8(a, row * n + x), o = load8(c, t * n + x);
        for (int j = 0; j < 8; j++) {
            dot += y.v[j] * o.v[j];
            y.v[j] *= scale;
        }
        store8(f, t * n + x, y);
    }
    dot = block_sum(dot);
    if (threadIdx.x == 0) ((bf16 *)h)[row] = to_bf16(dot);
}

// e[m,n] = 0 (bf16)
KERNEL(zero_rows) {
    long long i = (blockIdx.x * 256LL + threadIdx.x) * 8;
    if (i < m * n) store8(e, i, eight{});
}

// A block a selected token: e[b[m],n] = a[m,n].
KERNEL(scatter_rows) {
    long long t = blockIdx.x, row = id_of(b, t, id_bytes);
    for (long long x = threadIdx.x * 8; x < n; x += 2048) *(uint4 *)((bf16 *)e + row * n + x) = *(uint4 *)((bf16 *)a + t * n + x);
}

// SwiGLU backwards: gradient a[m,n] of silu(b) * c -> e of b, f of c.
KERNEL(swiglu_backward) {
    long long i = (blockIdx.x * 256LL + threadIdx.x) * 8;
    if (i >= m * n) return;
    eight da = load8(a, i), x = load8(b, i), u = load8(c, i), dg, du;
    for (int j = 0; j < 8; j++) {
        float s = 1 / (1 + __expf(-x.v[j]));
        dg.v[j] = da.v[j] * u.v[j] * s * (1 + x.v[j] * (1 - s));
        du.v[j] = da.v[j] * x.v[j] * s;
    }
    store8(e, i, dg);
    store8(f, i, du);
}

// A layer's sigmoid router, a block a token: gradient of the output a[m,l], scores b[m,n], experts c[m,k],
// weights d[m,k] -> gradient of the logits h[m,n].
KERNEL(layer_router) {
    __shared__ float grad[512];
    long long t = blockIdx.x;
    float norm = 0;
    for (long long x = threadIdx.x * 8; x < l; x += 2048) {
        eight y = load8(a, t * l + x);
        for (int j = 0; j < 8; j++) norm += y.v[j] * y.v[j];
    }
    for (long long x = threadIdx.x; x < n; x += 256) grad[x] = 0;
    float each = block_sum(norm) / k, total = 0, mean = 0;
    for (int j = 0; j < k; j++) {
        float w = ((const float *)d)[t * k + j];
        total += w;
        mean += each * w;
    }
    __syncthreads();
    if (threadIdx.x < k) {
        long long id = id_of(c, t * k + threadIdx.x, id_bytes);
        if (id >= 0) grad[id] = (each - mean / total) / total;
    }
    __syncthreads();
    for (long long x = threadIdx.x; x < n; x += 256) {
        float s = ((const float *)b)[t * n + x];
        ((bf16 *)h)[t * n + x] = to_bf16(grad[x] * s * (1 - s));
    }
}
