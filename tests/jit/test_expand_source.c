/* The built-in templates: every one expands and lints with each of its examples; where sources come from; speed. */
#include "tests/jit/expand_support.h"

#include "base/alloc.h"
#include "base/file.h"
#include "jit/assemble.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- built in ------------------------------------------------------------------------------------------------ */

static kn_status lint_example(void *user, uint32_t line, const kn_params *params, const char *target) {
    const char *name = ((const char **)user)[0];
    kn_expansion x;
    kn_status st = kn_expand(name, params, target, KN_EXPAND_LINT, &x);
    if (st != KN_OK) return kn_error_prefix(st, "%s, #example of line %u: ", name, line);
    ((const char **)user)[1] = name; /* seen */
    kn_expansion_free(&x);
    return KN_OK;
}

START_TEST(every_template) {
    const char *const *names = kn_template_names();
    ck_assert_ptr_nonnull(names[0]);
    for (size_t i = 0; names[i]; i++) {
        if (i) ck_assert_int_lt(strcmp(names[i - 1], names[i]), 0); /* the look-up halves a sorted table */
        const char *text = NULL;
        char *owned = NULL;
        size_t len = 0;
        ck_assert_ok(kn_template_source(names[i], &text, &len, &owned));
        ck_assert_ptr_null(owned);
        if (!strstr(names[i], ".ptxt")) continue;
        const char *state[2] = {names[i], NULL};
        ck_assert_ok(kn_template_examples(names[i], lint_example, state));
        ck_assert_msg(state[1], "%s has no #example", names[i]);
    }
}
END_TEST

/* The embedded bytes are the file's bytes. */
START_TEST(embedded_bytes) {
    char path[512];
    const char *text = NULL;
    char *owned = NULL, *file = NULL;
    size_t len = 0, file_len = 0;
    snprintf(path, sizeof path, "%s/ptx_templates/lib/module.ptxi", getenv("KN_SOURCE_DIR"));
    ck_assert_ok(kn_file_read(path, 1 << 20, &file, &file_len));
    ck_assert_ok(kn_template_source("lib/module.ptxi", &text, &len, &owned));
    ck_assert_uint_eq(len, file_len);
    ck_assert_mem_eq(text, file, len);
    kn_free(file);
    ck_assert_uint_eq(strlen(kn_expander_digest()), 64);
}
END_TEST

/* The reference's example is a real kernel. */
START_TEST(readme_example) {
    char path[512];
    char *readme = NULL;
    size_t len = 0;
    snprintf(path, sizeof path, "%s/ptx_templates/README.md", getenv("KN_SOURCE_DIR"));
    ck_assert_ok(kn_file_read(path, 1 << 20, &readme, &len));
    char *from = strstr(readme, "```ptxt\n");
    ck_assert_ptr_nonnull(from);
    from += 8;
    char *to = strstr(from, "\n```");
    ck_assert_ptr_nonnull(to);
    to[1] = '\0';
    const char *module = NULL;
    char *owned = NULL;
    ck_assert_ok(kn_template_source("lib/module.ptxi", &module, &len, &owned));
    char *module_text = kn_calloc(1, len + 1);
    memcpy(module_text, module, len);
    const char *files[] = {"axpy.ptxt", from, "lib/module.ptxi", module_text, NULL};
    for (int i = 0; i < 2; i++) {
        kn_params p = {0};
        kn_params_set(&p, "VEC", 4 >> i);
        kn_params_set_name(&p, "T", i ? "bf16" : "f32");
        kn_expansion x;
        ck_assert_ok(expand_files(files, &p, KN_EXPAND_LINT, &x));
        ck_assert_str_eq(x.meta.entry, i ? "kiln_axpy_bf16_v2" : "kiln_axpy_f32_v4");
        void *cubin = NULL;
        size_t cubin_len = 0;
        kn_asm_report report;
        kn_status st = kn_nvjitlink_assemble(&x, &cubin, &cubin_len, &report);
        ck_assert_msg(st == KN_OK || (st == KN_E_UNAVAILABLE && !getenv("CI")), "%s", kn_error_message());
        kn_free(cubin);
        kn_expansion_free(&x);
    }
    kn_free(module_text);
    kn_free(readme);
}
END_TEST

/* ---- sources ------------------------------------------------------------------------------------------------- */

static void write_file(const char *dir, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    ck_assert_ok(kn_file_write(path, text, strlen(text)));
}

START_TEST(override) {
    char dir[] = "/tmp/kiln-templates-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    write_file(dir, "own.ptxt", "#include \"lib/module.ptxi\"\n#use module(81)\n.entry own()\n.reqntid 32\n{\n}\n");
    kn_expansion x;
    ck_assert_fails(kn_expand("own.ptxt", NULL, "sm_90a", 0, &x), KN_E_TEMPLATE, "there is no template own.ptxt");
    setenv("KILN_TEMPLATE_DIR", dir, 1);
    ck_assert_ok(kn_expand("own.ptxt", NULL, "sm_90a", 0, &x)); /* lib/module.ptxi comes from the library */
    ck_assert_str_eq(x.meta.entry, "own");
    ck_assert_uint_eq(x.meta.ptx_version, 81);
    kn_expansion_free(&x);
    ck_assert_ok(kn_expand("own.ptxt", NULL, "sm_100", 0, &x));
    ck_assert_uint_eq(x.meta.ptx_version, 86); /* the target asks for more */
    kn_expansion_free(&x);
    ck_assert_fails(kn_expand("own.ptxt", NULL, "sm_70", 0, &x), KN_E_UNSUPPORTED, "sm_70");
    ck_assert_fails(kn_expand("own.ptxt", NULL, NULL, 0, &x), KN_E_ARG, "no target");
    ck_assert_fails(kn_expand("../own.ptxt", NULL, "sm_80", 0, &x), KN_E_TEMPLATE, "template name");
    ck_assert_fails(kn_expand("lib/../own.ptxt", NULL, "sm_80", 0, &x), KN_E_TEMPLATE, "template name");
    ck_assert_fails(kn_expand("/etc/passwd", NULL, "sm_80", 0, &x), KN_E_TEMPLATE, "template name");
    ck_assert_fails(kn_expand("", NULL, "sm_80", 0, &x), KN_E_TEMPLATE, "template name");
    setenv("KILN_TEMPLATE_DIR", "/nonexistent/kiln", 1);
    ck_assert_fails(kn_expand("own.ptxt", NULL, "sm_90a", 0, &x), KN_E_TEMPLATE, "KILN_TEMPLATE_DIR /nonexistent/kiln");
    unsetenv("KILN_TEMPLATE_DIR");
    char path[512];
    snprintf(path, sizeof path, "%s/own.ptxt", dir);
    unlink(path);
    rmdir(dir);
}
END_TEST

static kn_status collect(void *user, const char *name, const char *text, size_t len) {
    (void)text;
    snprintf((char *)user + strlen(user), 1000 - strlen(user), "%s(%zu) ", name, len);
    return KN_OK;
}

START_TEST(closures) {
    const char *files[] = {
        "t.ptxt",
        "#include \"lib/p.ptxi\"\n#if 0\n#include \"lib/a_${E}_${F}.ptxi\"\n#end\n#include \"lib/p.ptxi\"\n",
        "lib/p.ptxi",
        "#param E in {x, y} // e\n#if 1\n#else\n#param F in {z} // f\n#end\n",
        "lib/a_x_z.ptxi",
        "#include \"lib/deep.ptxi\"\n",
        "lib/a_y_z.ptxi",
        "",
        "lib/deep.ptxi",
        "1",
        NULL};
    const kn_ex_source source = {load_memory, (void *)(uintptr_t)files};
    char seen[1000] = "";
    ck_assert_ok(kn_ex_closure(&source, "t.ptxt", collect, seen));
    ck_assert_str_eq(seen, "t.ptxt(87) lib/p.ptxi(62) lib/a_x_z.ptxi(25) lib/deep.ptxi(1) lib/a_y_z.ptxi(0) ");
    files[6] = "lib/b.ptxi";
    ck_assert_fails(kn_ex_closure(&source, "t.ptxt", collect, seen), KN_E_TEMPLATE,
                    "t.ptxt:3: there is no template lib/a_y_z.ptxi");
    files[1] = "#param E in 1 .. 2 // e\n#include \"lib/${E}.ptxi\"\n";
    ck_assert_fails(kn_ex_closure(&source, "t.ptxt", collect, seen), KN_E_TEMPLATE,
                    "t.ptxt:2: #include: only a #param");
    files[1] = "#include \"lib/${E + 1}.ptxi\"\n";
    ck_assert_fails(kn_ex_closure(&source, "t.ptxt", collect, seen), KN_E_TEMPLATE,
                    "t.ptxt:1: #include: only a #param");
    ck_assert_fails(kn_template_closure("none.ptxt", collect, seen), KN_E_TEMPLATE, "there is no template none.ptxt");
}
END_TEST

static kn_status count_visit(void *user, uint32_t line, const kn_params *params, const char *target) {
    kn_buf *b = user;
    kn_buf_addf(b, "%u %s ", line, target);
    KN_TRY(kn_params_write(params, b));
    kn_buf_add_char(b, ';');
    return KN_OK;
}

START_TEST(examples) {
    char dir[] = "/tmp/kiln-templates-XXXXXX", path[512];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("KILN_TEMPLATE_DIR", dir, 1);
    write_file(dir, "e.ptxt", "#example target=sm_80 B=-4 T=bf16\n\n#example B=0x10 target=sm_90a\n");
    kn_buf b;
    kn_buf_init(&b, 1000);
    ck_assert_ok(kn_template_examples("e.ptxt", count_visit, &b));
    ck_assert_str_eq(b.data, "1 sm_80 B=-4 T=bf16;3 sm_90a B=16;");
    kn_buf_free(&b);
    write_file(dir, "e.ptxt", "#example B=1\n");
    ck_assert_fails(kn_template_examples("e.ptxt", count_visit, &b), KN_E_TEMPLATE,
                    "e.ptxt:1: #example names no target");
    write_file(dir, "e.ptxt", "#example target=sm_80 B=1 B=2\n");
    ck_assert_fails(kn_template_examples("e.ptxt", count_visit, &b), KN_E_TEMPLATE,
                    "e.ptxt:1: #example: a parameter is set twice");
    write_file(dir, "e.ptxt", "#example target=sm_80 B=(1)\n");
    ck_assert_fails(kn_template_examples("e.ptxt", count_visit, &b), KN_E_TEMPLATE,
                    "the value of B must be a number or a name");
    snprintf(path, sizeof path, "%s/e.ptxt", dir);
    unlink(path);
    rmdir(dir);
    unsetenv("KILN_TEMPLATE_DIR");
}
END_TEST

/* ---- speed --------------------------------------------------------------------------------------------------- */

/* Some 10000 lines, as a large wgmma kernel has them: long register lists, macros in loops, interpolated operands. */
static const char large[] =
    "#macro step(a, b, i)\n    #regs .b64 d\n    #if i % 2 == 0\n    add.s64 ${d}, ${a}, ${i * 32 / 16}; // next k\n   "
    " #else\n"
    "    add.s64 ${d}, ${b}, ${i * 64 / 16};\n    #end\n    st.shared.b32 [%base + ${i * 4 + 128}], ${acc[i % "
    "len(acc)]};\n#end\n" HEAD "#regs .f32 acc[128]\n#regs .b64 da, db\n"
    "#for t in 0 .. 100\n"
    "    wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 ${acc[*]}, ${da}, ${db}, %p, 1, 1, 0, 0;\n"
    "  #for i in 0 .. 32\n    #use step(da, db, i)\n  #end\n#end\n" TAIL;

/* This thread's own time: other tests run beside this one. */
static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

START_TEST(speed) {
    uint64_t best = UINT64_MAX;
    uint32_t lines = 0;
    for (int i = 0; i < 40; i++) {
        kn_expansion x;
        uint64_t t0 = thread_ns();
        ck_assert_ok(expand_text(large, NULL, 0, &x));
        uint64_t t = thread_ns() - t0;
        if (t < best) best = t;
        lines = x.n_lines;
        kn_expansion_free(&x);
    }
    printf("%u lines in %.2f ms\n", lines, (double)best * 1e-6);
    ck_assert_uint_ge(lines, 9700);
#ifdef NDEBUG
    ck_assert_uint_lt(best, 5000000);
#else
    ck_assert_uint_lt(best, 100000000); /* not optimised, perhaps instrumented */
#endif
}
END_TEST

int main(void) {
    Suite *s = suite_create("expand_source");
    TCase *t = tcase_create("source");
    tcase_add_test(t, every_template);
    tcase_add_test(t, embedded_bytes);
    tcase_add_test(t, readme_example);
    tcase_add_test(t, override);
    tcase_add_test(t, closures);
    tcase_add_test(t, examples);
    tcase_add_test(t, speed);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
