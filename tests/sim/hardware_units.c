/* kn_sim_hardware: wgmma on an image of shared memory, tiles of mma.sync, reducing bulk copies. */
#include "hardware.h"

#include "base/file.h"
#include "h200_rows.h"

static void head(kn_buf *ptx, const char *entry, const char *params) {
    kn_buf_addf(ptx,
                ".version 8.3\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
                ".visible .entry %s(%s)\n{\n.reg .pred %%p<4>;\n.reg .b32 %%r<32>;\n.reg .b64 %%d<16>;\n"
                ".reg .f32 %%f<128>;\nmov.u32 %%r0, %%tid.x;\nmov.u32 %%r1, smem;\nmov.u32 %%r2, %%ctaid.x;\n",
                entry, params);
}

static void list(kn_buf *ptx, const char *prefix, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) kn_buf_addf(ptx, "%s%s%u", k ? ", " : "{", prefix, k);
    kn_buf_add(ptx, "}");
}

/* ---- wgmma ----------------------------------------------------------------------------------------------- */

/* One CTA of a warpgroup a row: image into shared memory, one wgmma, its 64 x n result to out. */
static kn_status wgmma_text(const h200_wgmma *r, kn_buf *ptx) {
    bool tf32 = h200_type(r->type) == KN_TC_TF32;
    head(ptx, "one_wgmma", ".param .u64 image, .param .u64 descriptors, .param .u64 out");
    kn_buf_addf(ptx,
                "ld.param.u64 %%d0, [image];\nld.param.u64 %%d1, [descriptors];\nld.param.u64 %%d2, [out];\n"
                "shl.b32 %%r3, %%r0, 4;\nCOPY:\ncvt.u64.u32 %%d3, %%r3;\nadd.u64 %%d3, %%d0, %%d3;\n"
                "ld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%d3];\nadd.u32 %%r8, %%r1, %%r3;\n"
                "st.shared.v4.u32 [%%r8], {%%r4, %%r5, %%r6, %%r7};\nadd.u32 %%r3, %%r3, 2048;\n"
                "setp.lt.u32 %%p0, %%r3, %u;\n@%%p0 bra COPY;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n",
                H200_IMAGE);
    kn_buf_add(ptx, "mad.wide.u32 %d1, %r2, 16, %d1;\nld.global.v2.u64 {%d4, %d5}, [%d1];\nshr.u32 %r3, %r1, 4;\n"
                    "cvt.u64.u32 %d6, %r3;\nadd.u64 %d4, %d4, %d6;\nadd.u64 %d5, %d5, %d6;\n"
                    "setp.ne.u32 %p1, %r0, %r0;\n");
    for (uint32_t k = 0; k < r->n / 2; k++) kn_buf_addf(ptx, "mov.f32 %%f%u, 0f00000000;\n", k);
    kn_buf_addf(ptx, "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n%uk%u.f32.%s.%s ", r->n,
                tf32 ? 8 : 16, r->type, r->type);
    list(ptx, "%f", r->n / 2);
    kn_buf_add(ptx, ", %d4, %d5, %p1, 1, 1");
    if (!tf32) kn_buf_addf(ptx, ", %u, %u", r->transpose_a, r->transpose_b);
    /* lane l of warp w: rows 16 w + l / 4 and 8 below, columns 8 j + 2 (l % 4) and the next */
    kn_buf_addf(ptx,
                ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nshr.u32 %%r3, %%r0, 5;\n"
                "shl.b32 %%r3, %%r3, 4;\nshr.u32 %%r4, %%r0, 2;\nand.b32 %%r4, %%r4, 7;\nadd.u32 %%r3, %%r3, %%r4;\n"
                "mad.lo.u32 %%r3, %%r2, 64, %%r3;\nmul.lo.u32 %%r3, %%r3, %u;\nand.b32 %%r4, %%r0, 3;\n"
                "shl.b32 %%r4, %%r4, 1;\nadd.u32 %%r3, %%r3, %%r4;\nmad.wide.u32 %%d2, %%r3, 4, %%d2;\n",
                r->n);
    for (uint32_t k = 0; k < r->n / 2; k += 2)
        kn_buf_addf(ptx, "st.global.v2.f32 [%%d2+%u], {%%f%u, %%f%u};\n", (k / 4 * 8 + k / 2 % 2 * 8 * r->n) * 4, k,
                    k + 1);
    kn_buf_add(ptx, "ret;\n}\n");
    return kn_buf_status(ptx);
}

static bool same_form(const h200_wgmma *a, const h200_wgmma *b) {
    return strcmp(a->type, b->type) == 0 && a->n == b->n && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b;
}

/* Rows [0, n) are of one form. */
static kn_status wgmma_rows(hw *h, h200_wgmma *rows, uint32_t n) {
    static uint8_t image[H200_IMAGE];
    kn_buf ptx;
    kn_status st;
    float *d = NULL;
    uint64_t *descriptors = NULL;
    size_t one = (size_t)64 * rows[0].n;
    kn_buf_init(&ptx, 1 << 20);
    h200_fill_image(h200_type(rows[0].type), image);
    KN_TRY_OUT(st, kn_new((void **)&d, one * n, sizeof *d, "results"));
    KN_TRY_OUT(st, kn_new((void **)&descriptors, 2 * (size_t)n, 8, "descriptors"));
    for (uint32_t k = 0; k < n; k++) descriptors[2 * k] = rows[k].a, descriptors[2 * k + 1] = rows[k].b;
    KN_TRY_OUT(st, wgmma_text(&rows[0], &ptx));
    hw_launch l = {
        .entry = "one_wgmma", .ptx = ptx.data, .ptx_len = ptx.len, .grid = n, .threads = 128, .smem = H200_IMAGE};
    l.buffer[0].host = image, l.buffer[0].bytes = sizeof image;
    l.buffer[1].host = descriptors, l.buffer[1].bytes = 16 * (size_t)n;
    l.buffer[2].host = d, l.buffer[2].bytes = one * n * 4;
    KN_TRY_OUT(st, hw_run(h, &l));
    for (uint32_t k = 0; k < n; k++) rows[k].hash = run_hash(RUN_HASH_START, d + one * k, one * 4);
out:
    kn_free(d);
    kn_free(descriptors);
    kn_buf_free(&ptx);
    return st;
}

kn_status hw_wgmma(hw *h) {
    static h200_wgmma rows[H200_ROWS_MAX];
    uint32_t n;
    char path[1024];
    kn_buf text;
    kn_buf_init(&text, 1 << 20);
    hw_path(path, h->in, "h200_wgmma.txt");
    KN_TRY(h200_read(path, h200_parse_wgmma, rows, sizeof rows[0], &n));
    for (uint32_t k = 0, end; k < n; k = end) {
        for (end = k + 1; end < n && same_form(&rows[k], &rows[end]);) end++;
        KN_TRY(wgmma_rows(h, rows + k, end - k));
    }
    kn_buf_addf(
        &text,
        "%s# One wgmma a line on the image of tests/sim/h200_rows.h: type, n, transposes, descriptors of A and B "
        "relative to the image, FNV-1a of D.\n",
        h->title);
    for (uint32_t k = 0; k < n; k++)
        kn_buf_addf(&text, "%s %u %u %u %016llx %016llx %016llx\n", rows[k].type, rows[k].n, rows[k].transpose_a,
                    rows[k].transpose_b, rows[k].a, rows[k].b, rows[k].hash);
    return hw_write(h, "h200_wgmma.txt", &text);
}

/* ---- mma.sync -------------------------------------------------------------------------------------------- */

/* Where element i of lane's registers lies: 16-bit types hold two elements a register. */
static uint32_t word_of_a(const uint32_t *a, bool tf32, uint32_t k, uint32_t lane, uint32_t reg) {
    uint32_t row = lane / 4 + 8 * (reg % 2), col = lane % 4;
    if (tf32) return a[row * k + col + 4 * (reg / 2)];
    const uint32_t *at = a + row * k + 2 * col + 8 * (reg / 2);
    return at[0] | at[1] << 16;
}

static uint32_t word_of_b(const uint32_t *b, bool tf32, uint32_t lane, uint32_t reg) {
    uint32_t col = lane / 4, row = lane % 4;
    if (tf32) return b[(row + 4 * reg) * 8 + col];
    const uint32_t *at = b + (2 * row + 8 * reg) * 8 + col;
    return at[0] | at[8] << 16;
}

/* A lane's words in memory: 4 of A, 2 of B, 4 of C (unused ones 0); 4 of D come back in C's place. */
enum { LANE_WORDS = 10 };

static kn_status mma_text(const char *type, uint32_t k, kn_buf *ptx) {
    uint32_t n_b = k * (strcmp(type, "tf32") == 0 ? 2 : 1) / 8;
    head(ptx, "one_mma", ".param .u64 words");
    kn_buf_add(ptx, "ld.param.u64 %d0, [words];\nmad.lo.u32 %r0, %r2, 32, %r0;\nmad.wide.u32 %d0, %r0, 40, %d0;\n");
    for (uint32_t i = 0; i < 6; i++) kn_buf_addf(ptx, "ld.global.u32 %%r%u, [%%d0+%u];\n", 10 + i, 4 * i);
    for (uint32_t i = 0; i < 4; i++) kn_buf_addf(ptx, "ld.global.f32 %%f%u, [%%d0+%u];\n", i, 24 + 4 * i);
    kn_buf_addf(ptx,
                "mma.sync.aligned.m16n8k%u.row.col.f32.%s.%s.f32 {%%f0, %%f1, %%f2, %%f3}, %s, %s, "
                "{%%f0, %%f1, %%f2, %%f3};\n",
                k, type, type, n_b == 2 ? "{%r10, %r11, %r12, %r13}" : "{%r10, %r11}",
                n_b == 2 ? "{%r14, %r15}" : "{%r14}");
    for (uint32_t i = 0; i < 4; i++) kn_buf_addf(ptx, "st.global.f32 [%%d0+%u], %%f%u;\n", 24 + 4 * i, i);
    kn_buf_add(ptx, "ret;\n}\n");
    return kn_buf_status(ptx);
}

/* A tile's words in the file, and its lanes' words in memory. */
static void move_tile(uint32_t *tile, uint32_t lanes[32][LANE_WORDS], bool back) {
    bool tf32 = tile[0] == 2;
    uint32_t k = tile[1], *a = tile + 2, *b = a + 16 * k, *c = b + 8 * k, *d = c + 128, n_b = k * (tf32 ? 2 : 1) / 8;
    for (uint32_t lane = 0; lane < 32; lane++) {
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t at = (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2;
            if (back)
                d[at] = lanes[lane][6 + i];
            else
                lanes[lane][6 + i] = c[at];
        }
        for (uint32_t i = 0; !back && i < 2 * n_b; i++) lanes[lane][i] = word_of_a(a, tf32, k, lane, i);
        for (uint32_t i = 0; !back && i < n_b; i++) lanes[lane][4 + i] = word_of_b(b, tf32, lane, i);
    }
}

static uint32_t *next_tile(uint32_t *tile) {
    return tile + 2 + 24 * tile[1] + 256;
}

enum { MMA_TILES = 4096 };

/* D of all tiles of one type and depth, a warp each. */
static kn_status mma_form(hw *h, uint32_t type, uint32_t depth, uint32_t *first, const uint32_t *end) {
    static const char *const names[] = {"bf16", "f16", "tf32"};
    static uint32_t lanes[MMA_TILES][32][LANE_WORDS];
    uint32_t n = 0;
    for (uint32_t *t = first; t < end; t = next_tile(t)) {
        KN_REQUIRE(n < MMA_TILES, KN_E_FORMAT, "too many tiles");
        if (t[0] == type && t[1] == depth) move_tile(t, lanes[n++], false);
    }
    if (n == 0) return KN_OK;
    kn_buf ptx;
    kn_buf_init(&ptx, 1 << 16);
    KN_TRY(mma_text(names[type], depth, &ptx));
    hw_launch l = {.entry = "one_mma", .ptx = ptx.data, .ptx_len = ptx.len, .grid = n, .threads = 32};
    l.buffer[0].host = lanes, l.buffer[0].bytes = n * sizeof lanes[0];
    kn_status st = hw_run(h, &l);
    n = 0;
    for (uint32_t *t = first; t < end; t = next_tile(t))
        if (t[0] == type && t[1] == depth) move_tile(t, lanes[n++], true);
    kn_buf_free(&ptx);
    return st;
}

kn_status hw_mma(hw *h) {
    char path[1024], *data = NULL;
    size_t len;
    hw_path(path, h->in, "h200_mma.bin");
    KN_TRY(kn_file_read(path, 1 << 24, &data, &len));
    uint32_t *first = (uint32_t *)(void *)data, *end = (uint32_t *)(void *)(data + len);
    kn_status st = KN_OK;
    for (uint32_t *t = first; st == KN_OK && t < end; t = next_tile(t)) {
        if (t[0] > 2 || (t[1] != 4 && t[1] != 8 && t[1] != 16))
            st = kn_fail(KN_E_FORMAT, "%s: no tile of an mma", path);
    }
    for (uint32_t type = 0; type < 3; type++)
        for (uint32_t depth = 4; st == KN_OK && depth <= 16; depth *= 2) st = mma_form(h, type, depth, first, end);
    hw_path(path, h->out, "h200_mma.bin");
    if (st == KN_OK) st = kn_file_write(path, data, len);
    kn_free(data);
    return st;
}

/* ---- reducing bulk copies -------------------------------------------------------------------------------- */

static kn_status reduce_once(hw *h, const char *form, uint8_t *v, const uint8_t *before, uint8_t *after) {
    kn_buf ptx;
    kn_buf_init(&ptx, 1 << 16);
    head(&ptx, "one_reduce", ".param .u64 v, .param .u64 acc");
    kn_buf_addf(&ptx,
                "ld.param.u64 %%d0, [v];\nld.param.u64 %%d1, [acc];\nmad.wide.u32 %%d2, %%r0, 16, %%d0;\n"
                "ld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%d2];\nmad.lo.u32 %%r8, %%r0, 16, %%r1;\n"
                "st.shared.v4.u32 [%%r8], {%%r4, %%r5, %%r6, %%r7};\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
                "setp.ne.u32 %%p0, %%r0, 0;\n@%%p0 bra END;\n"
                "cp.reduce.async.bulk.global.shared::cta.bulk_group.%s [%%d1], [%%r1], %u;\n"
                "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\nret;\n}\n",
                form, H200_REDUCE_BYTES);
    memcpy(after, before, H200_REDUCE_BYTES);
    hw_launch l = {.entry = "one_reduce",
                   .ptx = ptx.data,
                   .ptx_len = ptx.len,
                   .grid = 1,
                   .threads = H200_REDUCE_BYTES / 16,
                   .smem = H200_REDUCE_BYTES};
    l.buffer[0].host = v, l.buffer[0].bytes = H200_REDUCE_BYTES;
    l.buffer[1].host = after, l.buffer[1].bytes = H200_REDUCE_BYTES;
    kn_status st = kn_buf_status(&ptx);
    if (st == KN_OK) st = hw_run(h, &l);
    kn_buf_free(&ptx);
    return st;
}

kn_status hw_reduce(hw *h) {
    static const char *const form[H200_REDUCTIONS] = {"add.f32", "add.noftz.f16", "add.noftz.bf16", "min.f16",
                                                      "max.bf16"};
    char path[1024], *data = NULL;
    size_t len;
    hw_path(path, h->in, "h200_reduce.bin");
    KN_TRY(kn_file_read(path, 1 << 24, &data, &len));
    kn_status st = len == H200_REDUCTIONS * 3 * H200_REDUCE_BYTES ? KN_OK : kn_fail(KN_E_FORMAT, "%s: its size", path);
    for (int r = 0; st == KN_OK && r < H200_REDUCTIONS; r++) {
        uint8_t *v = (uint8_t *)data + r * 3 * H200_REDUCE_BYTES;
        st = reduce_once(h, form[r], v, v + H200_REDUCE_BYTES, v + 2 * H200_REDUCE_BYTES);
    }
    hw_path(path, h->out, "h200_reduce.bin");
    if (st == KN_OK) st = kn_file_write(path, data, len);
    kn_free(data);
    return st;
}
