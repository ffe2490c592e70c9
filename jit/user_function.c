/* Functions of the caller's: see user_function.h. Here: keeping their texts, and compiling one for a kernel. */
#include "jit/user_function.h"

#include "base/alloc.h"
#include "jit/dl.h"

#include <string.h>

enum { MAX_TEXT = 1 << 16, MAX_FUNCTIONS = 256 };

/* Kept as long as the process lives: plans that name them may be looked up again at any time. */
typedef struct kept {
    struct kept *next;
    uint64_t digest[2];
    char text[];
} kept;

static kept *functions;
static int n_functions;
static kn_fork_lock lock = KN_FORK_LOCK_INIT;

/* Under the lock. */
static const kept *find(const uint64_t digest[2]) {
    const kept *f = functions;
    while (f && memcmp(f->digest, digest, sizeof f->digest) != 0) f = f->next;
    return f;
}

static kn_status add(const char *text, size_t len, const uint64_t digest[2]) {
    kept *f = NULL;
    KN_REQUIRE(n_functions < MAX_FUNCTIONS, KN_E_UNSUPPORTED,
               "activation.source: a process can use %d different functions; this is one more", MAX_FUNCTIONS);
    KN_TRY(kn_new((void **)&f, 1, sizeof *f + len + 1, "activation.source"));
    memcpy(f->digest, digest, sizeof f->digest);
    memcpy(f->text, text, len + 1);
    f->next = functions;
    functions = f;
    n_functions++;
    return KN_OK;
}

kn_status kn_user_function_keep(const char *text, uint64_t digest[2]) {
    size_t len = strnlen(text, MAX_TEXT + 1);
    KN_REQUIRE(len > 0, KN_E_ARG, "activation.source is empty; wanted a __device__ function f, or NULL");
    KN_REQUIRE(len <= MAX_TEXT, KN_E_ARG, "activation.source is longer than %d bytes", MAX_TEXT);
    kn_digest d = kn_hash(text, len);
    digest[0] = d.hi >> 1; /* parameters of templates are signed */
    digest[1] = d.lo >> 1;
    kn_fork_lock_take(&lock);
    kn_status st = find(digest) ? KN_OK : add(text, len, digest);
    kn_fork_lock_release(&lock);
    return st;
}

/* The caller's text, and a kernel that calls its function: the compiler then inlines it. */
static const char *const call_it = "\n#line 1 \"kiln\"\n"
                                   "extern \"C\" __global__ void kiln_user(float g, float u, float dh, float *out) {\n"
                                   "    float h, dg, du;\n"
                                   "    f(g, u, dh, &h, &dg, &du);\n"
                                   "    out[0] = h;\n    out[1] = dg;\n    out[2] = du;\n}\n";

static kn_status compile(const uint64_t digest[2], const char *target, kn_buf *macro) {
    kn_buf source;
    char *ptx = NULL;
    size_t len = 0;
    kn_buf_init(&source, MAX_TEXT + 4096);
    kn_fork_lock_take(&lock);
    const kept *f = find(digest);
    kn_fork_lock_release(&lock);
    /* The kernel comes from a cache entry of another process. */
    KN_REQUIRE(f, KN_E_UNSUPPORTED, "made with an activation.source that is not known here");
    kn_buf_add(&source, f->text);
    kn_buf_add(&source, call_it);
    kn_status st = kn_buf_status(&source);
    if (st == KN_OK) st = kn_nvrtc_compile(source.data, "activation.source", target, &ptx, &len);
    if (st == KN_OK) st = kn_user_function_macro(ptx, macro);
    kn_free(ptx);
    kn_buf_free(&source);
    return st;
}

kn_status kn_kernel_expand(const kn_key_inputs *in, kn_expansion *out) {
    const kn_param *hi = kn_params_find(in->params, "USER0"), *lo = kn_params_find(in->params, "USER1");
    if (!hi || !lo) return kn_expand(in->template_name, in->params, in->target, in->expand_flags, out);
    const uint64_t digest[2] = {(uint64_t)hi->value, (uint64_t)lo->value};
    kn_buf macro;
    memset(out, 0, sizeof *out);
    kn_buf_init(&macro, 4 << 20);
    kn_status st = compile(digest, in->target, &macro);
    const kn_template_text text = {"lib/activation_user.ptxi", macro.data, macro.len};
    if (st == KN_OK) st = kn_expand_replacing(in->template_name, in->params, in->target, in->expand_flags, &text, out);
    kn_buf_free(&macro);
    return st;
}
