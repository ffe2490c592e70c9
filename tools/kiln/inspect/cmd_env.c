/* kiln env: devices, libraries found, every variable with its meaning. */
#include "abi/library.h"
#include "commands.h"
#include "common/report.h"

#include "kiln/kiln.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static bool lists(const json_t *variables, const char *name, size_t n) {
    size_t i;
    json_t *v;
    json_array_foreach(variables, i, v) {
        const char *known = kt_json_text(v, "name", "");
        if (strlen(known) == n && memcmp(known, name, n) == 0) return true;
    }
    return false;
}

/* Variables that look like Kiln's and are not: a misspelt one has no effect, and nothing else would say so. */
static json_t *unknown_variables(const json_t *variables) {
    json_t *names = json_array();
    for (char **e = environ; *e; e++) {
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "KILN_", 5) == 0 && !lists(variables, *e, n)) json_array_append_new(names, json_stringn(*e, n));
    }
    return names;
}

/* What the library knows, plus what the tool alone knows. */
static int gather(kt_library *lib, json_t **out) {
    KT_TRY(kt_call_json(lib, "kiln_env_json", 0, NULL, out));
    json_t *variables = json_object_get(*out, "variables");
    const char *value = getenv("KILN_LIBRARY");
    json_array_append_new(variables,
                          json_pack("{s:s, s:s?, s:s, s:s}", "name", "KILN_LIBRARY", "value", value, "default",
                                    "(beside the program)", "meaning", "the libkiln that the tool opens"));
    json_object_set_new(*out, "unknown", unknown_variables(variables));
    json_object_set_new(*out, "library", json_string(kt_library_path(lib)));
    return KT_GOOD;
}

static json_t *device_facts(kt_library *lib, const char *device) {
    void *ctx = NULL;
    json_t *facts = NULL;
    kiln_context_options options = {.struct_size = sizeof options, .cache_dir = "off"};
    int code = kt_status(lib, KT_CALL(lib, "kiln_context_create", KT_STR(device), KT_PTR(&options), KT_PTR(&ctx)));
    if (code == KT_GOOD) {
        code = KT_CALL_JSON(lib, &facts, "kiln_context_device_json", KT_PTR(ctx));
        (void)KT_CALL(lib, "kiln_context_destroy", KT_PTR(ctx));
    }
    if (code != KT_GOOD) facts = json_pack("{s:s}", "error", kt_message());
    json_object_set_new(facts, "device", json_string(device));
    return facts;
}

static void gather_devices(kt_library *lib, json_t *env) {
    json_t *devices = json_array();
    json_object_set_new(env, "devices", devices);
    int32_t n = 0;
    if (kt_status(lib, KT_CALL(lib, "kiln_device_count", KT_PTR(&n))) != KT_GOOD)
        json_object_set_new(env, "no_device", json_string(kt_message()));
    for (int32_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "cuda:%d", (int)i);
        json_array_append_new(devices, device_facts(lib, name));
    }
    json_array_append_new(devices, device_facts(lib, "sim"));
}

static void print_devices(const json_t *env) {
    printf("devices\n");
    const char *none = kt_json_text(env, "no_device", NULL);
    if (none) printf("  no GPU: %s\n", none);
    size_t i;
    json_t *d;
    json_array_foreach(json_object_get(env, "devices"), i, d) {
        printf("  %-8s", kt_json_text(d, "device", "?"));
        const char *error = kt_json_text(d, "error", NULL);
        if (error) {
            printf("%s\n", error);
            continue;
        }
        bool simulated = strcmp(kt_json_text(d, "kind", ""), "sim") == 0;
        printf("%s%s, %s, %.0f multiprocessors, %s shared memory a block, %s L2\n", simulated ? "as " : "",
               kt_json_text(d, "name", "?"), kt_json_text(d, "target", "?"), kt_json_number(d, "multiprocessors", 0),
               kt_bytes_text(kt_json_number(d, "smem_per_block", 0)), kt_bytes_text(kt_json_number(d, "l2_bytes", 0)));
    }
}

static void print_libraries(const json_t *env) {
    printf("\nlibraries\n");
    kt_table t = kt_table_begin(3, (const char *const[]){"library", "version", "path"});
    size_t i;
    json_t *l;
    json_array_foreach(json_object_get(env, "libraries"), i, l) {
        kt_table_cell(&t, "%s", kt_json_text(l, "name", "?"));
        kt_table_cell(&t, "%s", kt_json_text(l, "version", "-"));
        kt_table_cell(&t, "%s", kt_json_text(l, "path", kt_json_text(l, "error", "not found")));
    }
    kt_table_end(&t, 2);
}

static void print_variables(const json_t *env) {
    printf("\nvariables\n");
    kt_table t = kt_table_begin(4, (const char *const[]){"variable", "value", "default", "meaning"});
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(env, "variables"), i, v) {
        kt_table_cell(&t, "%s", kt_json_text(v, "name", "?"));
        kt_table_cell(&t, "%s", kt_json_text(v, "value", "-"));
        kt_table_cell(&t, "%s", kt_json_text(v, "default", ""));
        kt_table_cell(&t, "%s", kt_json_text(v, "meaning", ""));
    }
    kt_table_end(&t, 2);
    json_array_foreach(json_object_get(env, "unknown"), i, v) {
        printf("  %s is set, and is no variable of Kiln\n", json_string_value(v));
    }
}

int kt_cmd_env(const kt_command *self, int argc, char **argv) {
    const char *path = NULL;
    bool json = false;
    const kt_option options[] = {KT_OPTION_JSON(&json), KT_OPTION_LIBRARY(&path), KT_OPTIONS_END};
    kt_list operands = {0};
    kt_library *lib = NULL;
    json_t *env = NULL;
    int code;
    KT_TRY_OUT(code, kt_args_parse(self, options, argc, argv, &operands));
    if (operands.n) KT_TRY_OUT(code, kt_fail(KT_USAGE, "kiln env takes no operands"));
    KT_TRY_OUT(code, kt_library_open(path, &lib));
    KT_TRY_OUT(code, gather(lib, &env));
    gather_devices(lib, env);
    if (json) {
        code = kt_print_json(json_incref(env));
        goto out;
    }
    printf("kiln %s, %s\n\n", kt_call_string(lib, "kiln_version", 0, NULL), kt_library_path(lib));
    print_devices(env);
    print_libraries(env);
    print_variables(env);
out:
    json_decref(env);
    kt_list_free(&operands);
    kt_library_close(lib);
    return code;
}
