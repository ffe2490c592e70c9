/* Sizes and offsets of the public structs against tests/abi/layout.txt. Fields may be added at the end of a struct that
 * starts with struct_size; everything else breaks callers that are compiled already. `test_abi_layout --print` writes
 * the file anew. */
#include "kiln/kiln_tools.h"
#include "support/suite.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRUCT(s) fprintf(out, "%s %zu\n", #s, sizeof(s));
#define FIELD(s, f) fprintf(out, "%s.%s %zu %zu\n", #s, #f, offsetof(s, f), sizeof(((s *)0)->f));
#define CODE(c) fprintf(out, "%s %lld\n", #c, (long long)(c));

static void write_options(FILE *out) {
    STRUCT(kiln_common_options)
    FIELD(kiln_common_options, struct_size)
    FIELD(kiln_common_options, flags)
    FIELD(kiln_common_options, accumulate)
    FIELD(kiln_common_options, workspace)
    FIELD(kiln_common_options, workspace_bytes)
    STRUCT(kiln_activation)
#define KILN_OP(op, problem)                                                                                           \
    STRUCT(kiln_##op##_options)                                                                                        \
    FIELD(kiln_##op##_options, common)
#include "kiln/kiln_abi.def"
#undef KILN_OP
#define KILN_OPTION(op, field, type, dflt, choices) FIELD(kiln_##op##_options, field)
#include "kiln/kiln_abi.def"
#undef KILN_OPTION
}

static void write_context_options(FILE *out) {
    STRUCT(kiln_context_options)
    FIELD(kiln_context_options, struct_size)
    FIELD(kiln_context_options, on_miss)
    FIELD(kiln_context_options, shapes)
    FIELD(kiln_context_options, path)
    FIELD(kiln_context_options, sm_limit)
    FIELD(kiln_context_options, max_modules)
    FIELD(kiln_context_options, cache_dir)
    FIELD(kiln_context_options, cache_read_only)
    FIELD(kiln_context_options, cache_max_bytes)
    FIELD(kiln_context_options, record)
    FIELD(kiln_context_options, tuning)
}

static void write_tools(FILE *out) {
    STRUCT(kiln_check_result)
    FIELD(kiln_check_result, struct_size)
    FIELD(kiln_check_result, pass)
    FIELD(kiln_check_result, max_error)
    FIELD(kiln_check_result, max_ratio)
    FIELD(kiln_check_result, frobenius)
    FIELD(kiln_check_result, worst_slice)
    FIELD(kiln_check_result, worst_index)
    FIELD(kiln_check_result, bad_elements)
    FIELD(kiln_check_result, message)
    STRUCT(kiln_counters)
    FIELD(kiln_counters, struct_size)
    FIELD(kiln_counters, dir_usable)
    FIELD(kiln_counters, calls)
    FIELD(kiln_counters, launches)
    FIELD(kiln_counters, plan_hits)
    FIELD(kiln_counters, plans)
    FIELD(kiln_counters, kernels_built)
    FIELD(kiln_counters, kernels_loaded)
    FIELD(kiln_counters, kernels_unloaded)
    FIELD(kiln_counters, hits_memory)
    FIELD(kiln_counters, hits_read_only)
    FIELD(kiln_counters, hits_dir)
    FIELD(kiln_counters, misses)
    FIELD(kiln_counters, published)
    FIELD(kiln_counters, publish_failed)
    FIELD(kiln_counters, rejected)
    FIELD(kiln_counters, evicted)
    FIELD(kiln_counters, expand_ns)
    FIELD(kiln_counters, assemble_ns)
    FIELD(kiln_counters, load_ns)
    FIELD(kiln_counters, sim_instructions)
    FIELD(kiln_counters, sim_ns)
    FIELD(kiln_counters, cache_dir)
    FIELD(kiln_counters, cache_reason)
}

/* Statuses and flags are part of the interface as well. */
static void write_codes(FILE *out) {
    CODE(KILN_ABI_VERSION)
    CODE(KILN_OK)
    CODE(KILN_E_ARG)
    CODE(KILN_E_SHAPE)
    CODE(KILN_E_DTYPE)
    CODE(KILN_E_ALIGN)
    CODE(KILN_E_DEVICE)
    CODE(KILN_E_OVERLAP)
    CODE(KILN_E_WORKSPACE)
    CODE(KILN_E_UNAVAILABLE)
    CODE(KILN_E_NOT_CACHED)
    CODE(KILN_E_CAPTURE)
    CODE(KILN_E_UNSUPPORTED)
    CODE(KILN_E_TEMPLATE)
    CODE(KILN_E_ASSEMBLE)
    CODE(KILN_E_LOAD)
    CODE(KILN_E_LAUNCH)
    CODE(KILN_E_SIM)
    CODE(KILN_E_IO)
    CODE(KILN_E_FORMAT)
    CODE(KILN_E_NOMEM)
    CODE(KILN_E_ABI)
    CODE(KILN_E_HANDLE)
    CODE(KILN_E_FORK)
    CODE(KILN_E_INTERNAL)
    CODE(KILN_PREPARE_ONLY)
    CODE(KILN_PLAN_BUILD)
    CODE(KILN_PLAN_LIST)
    CODE(KILN_PLAN_EXPLAIN)
    CODE(KILN_TRUE)
    CODE(KILN_FALSE)
}

static void write_all(FILE *out) {
    write_options(out);
    write_context_options(out);
    write_tools(out);
    write_codes(out);
}

START_TEST(layout_is_the_recorded_one) {
    char *text = NULL;
    size_t n = 0;
    FILE *now = open_memstream(&text, &n);
    write_all(now);
    fclose(now);
    char path[1024], line[256];
    snprintf(path, sizeof path, "%s/tests/abi/layout.txt", getenv("KN_SOURCE_DIR"));
    FILE *then = fopen(path, "r");
    ck_assert_msg(then != NULL, "cannot open %s", path);
    const char *at = text;
    while (fgets(line, sizeof line, then)) {
        size_t length = strlen(line);
        ck_assert_msg(strncmp(at, line, length) == 0, "recorded: %sseen: %.*s", line, (int)strcspn(at, "\n"), at);
        at += length;
    }
    ck_assert_msg(*at == '\0', "not recorded: %s", at);
    fclose(then);
    free(text);
}
END_TEST

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        write_all(stdout);
        return 0;
    }
    Suite *suite = suite_create("layout");
    TCase *t = tcase_create("layout");
    tcase_add_test(t, layout_is_the_recorded_one);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
