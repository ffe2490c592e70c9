/* kn_sim_hardware TABLES OUT: runs what the tables of folder TABLES (tests/data/sim) list on GPU 0 and writes the
 * tables anew to OUT, with what was seen there, the GPU, its driver and the date (UTC). Prints which files differ. This
 * is how every table of an H200 in tests/data/sim is made. */
#include "hardware.h"

#include "base/alloc.h"
#include "base/file.h"
#include "numbers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void hw_path(char out[1024], const char *folder, const char *name) {
    snprintf(out, 1024, "%s/%s", folder, name);
}

kn_status hw_write(const hw *h, const char *name, kn_buf *text) {
    char path[1024];
    hw_path(path, h->out, name);
    kn_status st = kn_buf_status(text);
    if (st == KN_OK) st = kn_file_write(path, text->data, text->len);
    kn_buf_free(text);
    return st;
}

/* ---- one launch ------------------------------------------------------------------------------------------ */

static void describe(const hw_launch *l, kn_expansion *x) {
    *x = (kn_expansion){.ptx = kn_strdup(l->ptx), .ptx_len = l->ptx_len};
    x->meta = (kn_kernel_meta){.target = "sm_90a",
                               .ptx_version = 83,
                               .threads = {l->threads, 1, 1},
                               .cluster = {l->cluster ? l->cluster : 1, 1, 1},
                               .smem_dynamic = l->smem};
    snprintf(x->meta.entry, sizeof x->meta.entry, "%s", l->entry);
    uint32_t at = 0, n = 0;
    for (; n < HW_BUFFERS && l->buffer[n].host; n++) {
        uint32_t size = l->map ? 128 : 8;
        x->meta.arg[n] = (kn_kernel_arg){"", at, size, l->map ? 64 : 8};
        at += size;
    }
    for (uint32_t k = 0; l->words && k < 3; k++, at += 4) x->meta.arg[n++] = (kn_kernel_arg){"", at, 4, 4};
    x->meta.n_args = n;
}

static kn_status set_params(hw *h, const hw_launch *l, void *const *device, uint8_t *params, size_t *len) {
    for (uint32_t k = 0; k < HW_BUFFERS && l->buffer[k].host; k++) {
        if (l->map) {
            kn_tensor_map map = l->map[k];
            map.base = device[k];
            KN_TRY(h->b->ops->encode_tensor_map(h->b, &map, params + *len));
            *len += 128;
        } else {
            memcpy(params + *len, &device[k], 8);
            *len += 8;
        }
    }
    if (l->words) memcpy(params + *len, l->words, 12);
    if (l->words) *len += 12;
    return KN_OK;
}

kn_status hw_go(hw *h, const hw_launch *l, kn_module *m) {
    const kn_backend_ops *o = h->b->ops;
    void *device[HW_BUFFERS] = {0};
    static _Alignas(64) uint8_t params[512];
    size_t len = 0;
    kn_status st = KN_OK;
    for (uint32_t k = 0; k < HW_BUFFERS && l->buffer[k].host; k++) {
        KN_TRY_OUT(st, o->alloc(h->b, l->buffer[k].bytes, &device[k]));
        KN_TRY_OUT(st, o->copy_in(h->b, device[k], l->buffer[k].host, l->buffer[k].bytes));
    }
    KN_TRY_OUT(st, set_params(h, l, device, params, &len));
    kn_extent extents[HW_BUFFERS];
    uint32_t n = 0;
    for (; n < HW_BUFFERS && l->buffer[n].host; n++)
        extents[n] = (kn_extent){"a buffer",       device[n],      1, 1, {(int64_t)l->buffer[n].bytes}, {1},
                                 .writable = true, .poison = false};
    kn_launch_args args = {
        .module = m, .grid = {l->grid, 1, 1}, .params = params, .params_len = len, .extents = extents, .n_extents = n};
    KN_TRY_OUT(st, o->launch(h->b, &args));
    KN_TRY_OUT(st, o->stream_synchronize(h->b, NULL));
    for (uint32_t k = 0; k < HW_BUFFERS && l->buffer[k].host; k++)
        KN_TRY_OUT(st, o->copy_out(h->b, l->buffer[k].host, device[k], l->buffer[k].bytes));
out:
    for (uint32_t k = 0; k < HW_BUFFERS; k++) {
        kn_status freed = device[k] ? o->free(h->b, device[k]) : KN_OK;
        if (st == KN_OK) st = freed;
    }
    return st;
}

kn_status hw_load(hw *h, const hw_launch *l, kn_module **out) {
    kn_expansion x;
    kn_asm_report report;
    void *cubin = NULL;
    size_t len = 0;
    describe(l, &x);
    kn_status st = KN_OK;
    if (!h->b->runs_ptx) st = h->b->ops->link(h->b, &x, &cubin, &len, &report);
    if (st == KN_OK) st = h->b->ops->module_load(h->b, cubin ? cubin : x.ptx, cubin ? len : x.ptx_len, &x.meta, out);
    kn_free(cubin);
    kn_free(x.ptx);
    return st;
}

void hw_unload(hw *h, kn_module *m) {
    h->b->ops->module_unload(h->b, m);
}

kn_status hw_run(hw *h, const hw_launch *l) {
    kn_module *m = NULL;
    KN_TRY(hw_load(h, l, &m));
    kn_status st = hw_go(h, l, m);
    hw_unload(h, m);
    return st == KN_OK ? KN_OK : kn_error_prefix(st, "%s: ", l->entry);
}

/* ---- where and when -------------------------------------------------------------------------------------- */

/* The driver's version as its management library tells it: "580.159.04". */
static kn_status driver_version(char *out, unsigned cap) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    KN_REQUIRE(nvml, KN_E_UNAVAILABLE, "libnvidia-ml.so.1 is needed for the driver's version: %s", dlerror());
    int (*start)(void), (*ask)(char *, unsigned);
    *(void **)&start = dlsym(nvml, "nvmlInit_v2");
    *(void **)&ask = dlsym(nvml, "nvmlSystemGetDriverVersion");
    int rc = start && ask ? start() : -1;
    if (rc == 0) rc = ask(out, cap);
    dlclose(nvml);
    KN_REQUIRE(rc == 0, KN_E_UNAVAILABLE, "libnvidia-ml does not tell the driver's version: %d", rc);
    return KN_OK;
}

static kn_status make_title(hw *h) {
    char driver[96] = "", date[32];
    time_t now = time(NULL);
    struct tm utc;
    if (!h->b->runs_ptx) KN_TRY(driver_version(driver, sizeof driver));
    KN_REQUIRE(gmtime_r(&now, &utc) && strftime(date, sizeof date, "%Y-%m-%d", &utc), KN_E_INTERNAL, "no date");
    uint32_t cuda = h->b->facts.driver_version;
    if (h->b->runs_ptx)
        snprintf(h->title, sizeof h->title, "# The simulator, %s.\n", date);
    else
        snprintf(h->title, sizeof h->title, "# %s, driver %s (CUDA %u.%u), %s, by kn_sim_hardware.\n", h->b->facts.name,
                 driver, cuda / 1000, cuda % 1000 / 10, date);
    printf("%s", h->title);
    return KN_OK;
}

/* Binary files say nothing of themselves: a text beside them does, with their hashes. */
kn_status hw_binary(hw *h) {
    static const char *const names[] = {"h200_mma.bin", "h200_reduce.bin"};
    kn_buf text;
    kn_buf_init(&text, 1 << 16);
    kn_buf_addf(&text, "%s# FNV-1a of the binary tables.\n", h->title);
    for (size_t k = 0; k < 2; k++) {
        char path[1024], *data = NULL;
        size_t len = 0;
        hw_path(path, h->out, names[k]);
        KN_TRY(kn_file_read(path, 1 << 24, &data, &len));
        kn_buf_addf(&text, "%s %016llx\n", names[k], (unsigned long long)run_hash(RUN_HASH_START, data, len));
        kn_free(data);
    }
    return hw_write(h, "h200_binary.txt", &text);
}

/* ---- all tables ------------------------------------------------------------------------------------------ */

/* Where a table begins, behind the lines that say where it is from. */
static size_t behind_comments(const char *text) {
    size_t at = 0;
    while (text[at] == '#') {
        at += strcspn(text + at, "\n");
        at += text[at] == '\n';
    }
    return at;
}

static kn_status compare(const hw *h, const char *name) {
    char path[1024], *was = NULL, *is = NULL;
    size_t was_len = 0, is_len = 0;
    hw_path(path, h->in, name);
    kn_status st = kn_file_read(path, 1 << 24, &was, &was_len);
    hw_path(path, h->out, name);
    if (st == KN_OK) st = kn_file_read(path, 1 << 24, &is, &is_len);
    if (st == KN_OK) {
        size_t a = behind_comments(was), b = behind_comments(is);
        bool same = was_len - a == is_len - b && memcmp(was + a, is + b, was_len - a) == 0;
        printf("%s: %s\n", name, same ? "as before" : "DIFFERS");
        if (!same && h->b->runs_ptx) st = kn_fail(KN_E_SIM, "the simulator differs");
    }
    kn_free(was);
    kn_free(is);
    return st;
}

int main(int argc, char **argv) {
    static const struct {
        const char *file;
        kn_status (*make)(hw *h);
    } tables[] = {{"scalar_h200.txt", hw_scalar}, {"h200_gemm.txt", hw_gemm},     {"h200_wgmma.txt", hw_wgmma},
                  {"h200_mma.bin", hw_mma},       {"h200_reduce.bin", hw_reduce}, {"h200_binary.txt", hw_binary}};
    static hw h;
    bool sim = argc == 4 && strcmp(argv[3], "sim") == 0;
    if (argc != 3 && !sim) {
        fprintf(stderr, "usage: %s TABLES OUT [sim]\n", argv[0]);
        return 2;
    }
    h.in = argv[1];
    h.out = argv[2];
    kn_status st = sim ? kn_backend_sim_create("sm_90a", &h.b) : kn_backend_cuda_create(0, &h.b), first = st;
    if (st == KN_OK) first = st = make_title(&h);
    for (size_t k = 0; st == KN_OK && k < sizeof tables / sizeof tables[0]; k++) {
        kn_status one = tables[k].make(&h);
        if (one == KN_OK) one = compare(&h, tables[k].file);
        if (one != KN_OK) printf("%s: %s\n", tables[k].file, kn_error_message());
        if (first == KN_OK) first = one;
    }
    if (st != KN_OK) fprintf(stderr, "%s\n", kn_error_message());
    if (h.b) h.b->ops->destroy(h.b);
    return first == KN_OK ? 0 : 1;
}
