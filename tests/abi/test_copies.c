/* Two copies of libkiln in one process, loaded with global binding beside a library whose functions are called error,
 * hash_update, arena_alloc, kn_fail and kn_malloc: nobody calls anybody else's. */
#include "kiln/kiln_tools.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct copy {
    void *library;
    int32_t (*create)(const char *, const kiln_context_options *, kiln_context **);
    int32_t (*destroy)(kiln_context *);
    const char *(*message)(void);
    int32_t (*load_balance)(kiln_context *, const DLTensor *, const DLTensor *, const DLTensor *, const DLTensor *,
                            const DLTensor *, const DLTensor *, const DLTensor *, const DLTensor *,
                            const kiln_load_balance_backward_options *, void *);
    kiln_context *ctx;
} copy;

static void *symbol(void *library, const char *name) {
    void *p = dlsym(library, name);
    ck_assert_msg(p != NULL, "%s", dlerror());
    return p;
}

static void copy_file(const char *from, const char *to) {
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert(in && out);
    char block[65536];
    for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;) ck_assert_uint_eq(fwrite(block, 1, n, out), n);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

static void open_copy(copy *c, const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    copy_file(getenv("KN_LIBKILN"), path);
    c->library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    unlink(path);
    ck_assert_msg(c->library != NULL, "%s", dlerror());
    *(void **)&c->create = symbol(c->library, "kiln_context_create");
    *(void **)&c->destroy = symbol(c->library, "kiln_context_destroy");
    *(void **)&c->message = symbol(c->library, "kiln_error_message");
    *(void **)&c->load_balance = symbol(c->library, "kiln_load_balance_backward");
    kiln_context_options options = {.struct_size = sizeof options, .cache_dir = "off"};
    ck_assert_msg(c->create("sim", &options, &c->ctx) == KILN_OK, "%s", c->message());
}

static DLTensor tensor(void *data, uint8_t code, uint8_t bits, int32_t ndim, int64_t *shape) {
    DLTensor t = {.data = data, .ndim = ndim, .dtype = {code, bits, 1}, .shape = shape};
    t.device.device_type = 1;
    return t;
}

/* out = mask + counts + loss / (B K), on the simulator. */
static void run(copy *c) {
    float counts[4] = {1, 2, 3, 4}, mask[2][4] = {{10, 20, 30, 40}, {50, 60, 70, 80}}, loss = 8, out[2][4] = {{0}};
    uint8_t training = 1;
    int64_t e[] = {4}, be[] = {2, 4}, one[] = {1};
    DLTensor t_counts = tensor(counts, 2, 32, 1, e), t_mask = tensor(mask, 2, 32, 2, be);
    DLTensor t_loss = tensor(&loss, 2, 32, 1, one), t_training = tensor(&training, 1, 8, 1, one);
    DLTensor t_out = tensor(out, 2, 32, 2, be);
    kiln_load_balance_backward_options options = {.common.struct_size = sizeof options, .top_k = 2};
    int32_t status =
        c->load_balance(c->ctx, &t_counts, &t_mask, &t_loss, NULL, NULL, NULL, &t_training, &t_out, &options, NULL);
    ck_assert_msg(status == KILN_OK, "%s", c->message());
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 4; i++) ck_assert_float_eq(out[b][i], mask[b][i] + counts[i] + 2);
}

START_TEST(copies_are_independent) {
    void *clash = dlopen(getenv("KN_CLASH"), RTLD_NOW | RTLD_GLOBAL);
    ck_assert_msg(clash != NULL, "%s", dlerror());
    int (*calls)(void);
    *(void **)&calls = symbol(clash, "clash_calls");
    char folder[] = "/tmp/kiln_copies_XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    copy a, b;
    open_copy(&a, folder, "libkiln_a.so");
    open_copy(&b, folder, "libkiln_b.so");
    rmdir(folder);
    ck_assert_ptr_ne(a.library, b.library);
    ck_assert(a.create != b.create);

    /* Each has its own error sentence. */
    kiln_context *none = NULL;
    ck_assert_int_ne(a.create("moon", NULL, &none), KILN_OK);
    ck_assert_ptr_nonnull(strstr(a.message(), "moon"));
    ck_assert_ptr_null(strstr(b.message(), "moon"));

    run(&a);
    run(&b);
    run(&a);
    ck_assert_int_eq(a.destroy(a.ctx), KILN_OK);
    ck_assert_int_eq(a.destroy(a.ctx), KILN_E_HANDLE);
    ck_assert_int_eq(dlclose(a.library), 0);
    run(&b); /* goes on without the other */
    ck_assert_int_eq(b.destroy(b.ctx), KILN_OK);
    ck_assert_int_eq(dlclose(b.library), 0);
    ck_assert_int_eq(calls(), 0);
    dlclose(clash);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("copies");
    TCase *t = tcase_create("copies");
    tcase_add_test(t, copies_are_independent);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
