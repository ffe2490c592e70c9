/* A kernel's key, and its metadata as the text that stands in a cache entry: "name=value" lines, then, where launches
 * report by template line (the payload is PTX), "map=" and the line map's rows to the end. */
#include "base/alloc.h"
#include "base/env.h"
#include "jit/dl.h"
#include "jit/kernel.h"
#include "jit/user_function.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- digest of a template and what it includes ------------------------------------------------------------------- */

static kn_status add_source(void *user, const char *name, const char *text, size_t len) {
    uint64_t n = len;
    kn_hasher_add(user, name, strlen(name) + 1);
    kn_hasher_add(user, &n, sizeof n);
    kn_hasher_add(user, text, len);
    return KN_OK;
}

static kn_status compute_generator(const char *template_name, kn_digest *out) {
    kn_hasher *h = NULL;
    KN_TRY(kn_hasher_new(&h));
    const char *expander = kn_expander_digest();
    kn_hasher_add(h, expander, strlen(expander) + 1);
    kn_status st = kn_template_closure(template_name, add_source, h);
    *out = kn_hasher_end(h);
    return st;
}

/* Built-in templates do not change: their digests are computed once a process. */
enum { MEMO = 64 };
static struct {
    char name[64];
    kn_digest digest;
} memo[MEMO];
static int memo_count;
static kn_fork_lock memo_lock = KN_FORK_LOCK_INIT;

static kn_status generator_digest(const char *template_name, kn_digest *out) {
    if (kn_env(KN_ENV_TEMPLATE_DIR)) return compute_generator(template_name, out);
    kn_fork_lock_take(&memo_lock);
    int i = 0;
    while (i < memo_count && strcmp(memo[i].name, template_name) != 0) i++;
    bool found = i < memo_count;
    if (found) *out = memo[i].digest;
    kn_fork_lock_release(&memo_lock);
    if (found) return KN_OK;
    KN_TRY(compute_generator(template_name, out));
    kn_fork_lock_take(&memo_lock);
    if (memo_count < MEMO && strlen(template_name) < sizeof memo[0].name) {
        memcpy(memo[memo_count].name, template_name, strlen(template_name) + 1);
        memo[memo_count++].digest = *out;
    }
    kn_fork_lock_release(&memo_lock);
    return KN_OK;
}

/* ---- the key ----------------------------------------------------------------------------------------------------- */

kn_status kn_kernel_key(const kn_key_inputs *in, kn_key *out) {
    kn_digest generator;
    char hex[33], flags[16];
    KN_TRY(generator_digest(in->template_name, &generator));
    kn_digest_hex(generator, hex);
    snprintf(flags, sizeof flags, "%u", in->expand_flags);
    kn_buf params;
    kn_buf_init(&params, 1 << 16);
    kn_status st = kn_params_write(in->params, &params);
    kn_key_begin(out);
    if (st == KN_OK) {
        kn_key_add_text(out, "template", in->template_name);
        kn_key_add_text(out, "generator", hex);
        kn_key_add_text(out, "params", params.data);
        kn_key_add_text(out, "target", in->target);
        kn_key_add_text(out, "flags", flags);
        kn_key_add_text(out, "payload", in->ptx ? "ptx" : "cubin");
        st = kn_key_status(out);
    }
    kn_buf_free(&params);
    if (st != KN_OK) kn_key_free(out);
    return st;
}

/* "BM=128 T=bf16" back into parameters. Changes `text`. */
static kn_status read_params(char *text, kn_params *out) {
    for (char *save = NULL, *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        KN_REQUIRE(value, KN_E_FORMAT, "parameter \"%s\" of a cached kernel has no value", word);
        *value++ = '\0';
        char *end;
        long long number = strtoll(value, &end, 10);
        if (*value && !*end)
            kn_params_set(out, word, number);
        else
            kn_params_set_name(out, word, value);
    }
    return out->status;
}

/* The value of "field=" in the description of a key, up to the end of its line; NULL if absent. */
static char *take_field(char *text, const char *field) {
    size_t n = strlen(field);
    for (char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, field, n) == 0 && line[n] == '=') return line + n + 1;
    return NULL;
}

/* Other templates, or another expander, give other text. */
static kn_status check_generator(const char *template_name, const char *hex) {
    kn_digest digest;
    char own[33];
    kn_status st = generator_digest(template_name, &digest);
    if (st == KN_E_NOMEM) return st;
    if (st == KN_OK) kn_digest_hex(digest, own);
    KN_REQUIRE(st == KN_OK && strcmp(own, hex) == 0, KN_E_UNSUPPORTED, "made by another version of %s", template_name);
    return KN_OK;
}

kn_status kn_kernel_reexpand(const void *key, size_t key_len, kn_expansion *out) {
    kn_buf text;
    kn_params *params = NULL;
    memset(out, 0, sizeof *out);
    kn_buf_init(&text, 1 << 20);
    kn_status st = kn_key_describe(key, key_len, &text);
    if (st != KN_OK) goto out;
    char *name = take_field(text.data, "template"), *values = take_field(text.data, "params");
    char *target = take_field(text.data, "target"), *flags = take_field(text.data, "flags");
    char *generator = take_field(text.data, "generator");
    if (!name || !values || !target || !flags || !generator) {
        st = kn_fail(KN_E_FORMAT, "the key names no template, generator, params, target and flags");
        goto out;
    }
    for (char *c = text.data; *c; c++)
        if (*c == '\n') *c = '\0';
    KN_TRY_OUT(st, check_generator(name, generator));
    KN_TRY_OUT(st, KN_NEW(&params, 1, "a kernel's parameters"));
    KN_TRY_OUT(st, read_params(values, params));
    const kn_key_inputs in = {
        .template_name = name, .target = target, .params = params, .expand_flags = (uint32_t)strtoul(flags, NULL, 10)};
    st = kn_kernel_expand(&in, out);
out:
    kn_free(params);
    kn_buf_free(&text);
    return st;
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

/* The numbers of a kn_kernel_info by name: written and read from one table. */
#define NUMBERS(X)                                                                                                     \
    X("ptx_version", meta.ptx_version)                                                                                 \
    X("threads_x", meta.threads[0])                                                                                    \
    X("threads_y", meta.threads[1])                                                                                    \
    X("threads_z", meta.threads[2])                                                                                    \
    X("cluster_x", meta.cluster[0])                                                                                    \
    X("cluster_y", meta.cluster[1])                                                                                    \
    X("cluster_z", meta.cluster[2])                                                                                    \
    X("smem_dynamic", meta.smem_dynamic)                                                                               \
    X("smem_static", meta.smem_static)                                                                                 \
    X("grid_dependency", meta.grid_dependency)                                                                         \
    X("ptx_lines", meta.ptx_lines)                                                                                     \
    X("args", meta.n_args)                                                                                             \
    X("registers", report.registers)                                                                                   \
    X("spill_stores", report.spill_stores)                                                                             \
    X("spill_loads", report.spill_loads)                                                                               \
    X("stack", report.stack)                                                                                           \
    X("barriers", report.barriers)                                                                                     \
    X("remarks", report.remarks)                                                                                       \
    X("driver_version", driver_version)

/* One line: a remark comes from an assembler's log. */
static void add_line(kn_buf *out, const char *name, const char *value) {
    kn_buf_addf(out, "%s=", name);
    for (; *value; value++) kn_buf_add_char(out, (unsigned char)*value < ' ' ? ' ' : *value);
    kn_buf_add_char(out, '\n');
}

kn_status kn_kernel_info_write(const kn_kernel_info *info, kn_buf *out) {
    char hex[33];
    kn_digest_hex(info->ptx, hex);
    add_line(out, "entry", info->meta.entry);
    add_line(out, "target", info->meta.target);
#define X(name, field) kn_buf_addf(out, name "=%u\n", info->field);
    NUMBERS(X)
#undef X
    for (uint32_t i = 0; i < info->meta.n_args; i++) {
        const kn_kernel_arg *a = &info->meta.arg[i];
        kn_buf_addf(out, "arg%u=%s %u %u %u\n", i, a->name, a->offset, a->size, a->align);
    }
    kn_buf_addf(out, "assemble_us=%" PRIu64 "\n", info->report.assemble_ns / 1000);
    if (info->report.remark[0]) add_line(out, "remark", info->report.remark);
    add_line(out, "assembler", info->assembler);
    add_line(out, "ptx", hex);
    return kn_buf_status(out);
}

static bool read_u64(const kn_blob *blob, const char *name, uint64_t *out) {
    char text[32], *end;
    if (!kn_blob_meta(blob, name, text, sizeof text) || !text[0]) return false;
    *out = strtoull(text, &end, 10);
    return *end == '\0';
}

static bool read_u32(const kn_blob *blob, const char *name, uint32_t *out) {
    uint64_t v;
    if (!read_u64(blob, name, &v) || v > UINT32_MAX) return false;
    *out = (uint32_t)v;
    return true;
}

static bool read_arg(const kn_blob *blob, uint32_t i, kn_kernel_arg *out) {
    char name[16], text[96], more;
    snprintf(name, sizeof name, "arg%u", i);
    return kn_blob_meta(blob, name, text, sizeof text) &&
           sscanf(text, "%31s %" SCNu32 " %" SCNu32 " %" SCNu32 "%c", out->name, &out->offset, &out->size, &out->align,
                  &more) == 4;
}

static bool read_digest(const kn_blob *blob, kn_digest *out) {
    char text[40], more;
    return kn_blob_meta(blob, "ptx", text, sizeof text) && strlen(text) == 32 &&
           sscanf(text, "%16" SCNx64 "%16" SCNx64 "%c", &out->hi, &out->lo, &more) == 2;
}

kn_status kn_kernel_info_read(const kn_blob *blob, kn_kernel_info *out) {
    memset(out, 0, sizeof *out);
    uint64_t us = 0;
    bool ok = kn_blob_meta(blob, "entry", out->meta.entry, sizeof out->meta.entry) &&
              kn_blob_meta(blob, "target", out->meta.target, sizeof out->meta.target) &&
              kn_blob_meta(blob, "assembler", out->assembler, sizeof out->assembler) &&
              read_u64(blob, "assemble_us", &us) && read_digest(blob, &out->ptx);
    kn_blob_meta(blob, "remark", out->report.remark, sizeof out->report.remark);
    out->report.assemble_ns = us * 1000;
#define X(name, field) ok = ok && read_u32(blob, name, &out->field);
    NUMBERS(X)
#undef X
    ok = ok && out->meta.n_args <= KN_MAX_KERNEL_ARGS;
    for (uint32_t i = 0; ok && i < out->meta.n_args; i++) ok = read_arg(blob, i, &out->meta.arg[i]);
    return ok ? KN_OK : kn_fail(KN_E_FORMAT, "a cached kernel's metadata are not complete");
}
