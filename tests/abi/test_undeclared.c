/* Calls as a dynamic language makes them that was told nothing of the types: every argument a register of 64 bits, the
 * result an int. And with handles that are none: a status, never a crash. */
#include "kiln/kiln_tools.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <ffi.h>
#include <stdlib.h>
#include <string.h>

static void *library;

static void open_library(void) {
    library = dlopen(getenv("KN_LIBKILN"), RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
}

static void close_library(void) {
    dlclose(library);
}

enum { MAX_VALUES = 16 };

/* name(values...) with undeclared types. */
static int call(const char *name, int n, const uint64_t *values) {
    void (*address)(void);
    void *found = dlsym(library, name);
    ck_assert_msg(found != NULL, "%s is not exported", name);
    memcpy(&address, &found, sizeof address);
    ffi_cif cif;
    ffi_type *types[MAX_VALUES];
    void *at[MAX_VALUES];
    uint64_t copy[MAX_VALUES];
    ck_assert_int_le(n, MAX_VALUES);
    for (int i = 0; i < n; i++) {
        copy[i] = values[i];
        types[i] = &ffi_type_uint64;
        at[i] = &copy[i];
    }
    ck_assert_int_eq(ffi_prep_cif(&cif, FFI_DEFAULT_ABI, (unsigned)n, &ffi_type_sint, types), FFI_OK);
    ffi_arg result = 0;
    ffi_call(&cif, address, &result, at);
    return (int)result;
}
#define CALL(name, ...)                                                                                                \
    call((name), (int)(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)), (uint64_t[]){__VA_ARGS__})
#define AT(p) ((uint64_t)(uintptr_t)(p))

static uint64_t create(const char *device) {
    uint64_t handle = 0;
    kiln_context_options options = {.struct_size = sizeof options, .cache_dir = "off"};
    char message[256];
    int status = CALL("kiln_context_create", AT(device), AT(&options), AT(&handle));
    CALL("kiln_error_copy", AT(message), sizeof message);
    ck_assert_msg(status == KILN_OK, "%d: %s", status, message);
    ck_assert_uint_ne(handle, 0);
    return handle;
}

/* The functions that take a context, with enough arguments for any of them. */
static const char *const of_context[] = {
    "kiln_context_destroy",  "kiln_context_device",   "kiln_context_device_faults", "kiln_context_device_faults_reset",
    "kiln_device_alloc",     "kiln_device_free",      "kiln_device_copy_in",        "kiln_device_copy_out",
    "kiln_device_fill",      "kiln_stream_create",    "kiln_stream_destroy",        "kiln_stream_synchronize",
    "kiln_event_create",     "kiln_event_destroy",    "kiln_event_record",          "kiln_event_elapsed_us",
    "kiln_context_counters", "kiln_context_sim_seed", "kiln_load_balance_backward",
};
enum { N_OF_CONTEXT = sizeof of_context / sizeof *of_context };

/* Call every one of them on `handle`; each must say KILN_E_HANDLE. All other arguments are the address of memory that
 * passes for a struct, so that nothing else is there to complain about. */
static void refused_by_all(uint64_t handle, const char *what) {
    for (int i = 0; i < N_OF_CONTEXT; i++) {
        uint64_t scratch[512] = {sizeof(kiln_counters)}, values[11] = {handle};
        for (int v = 1; v < 11; v++) values[v] = AT(scratch);
        int status = call(of_context[i], 11, values);
        ck_assert_msg(status == KILN_E_HANDLE, "%s of %s: status %d", of_context[i], what, status);
    }
}

START_TEST(status_calls_work) {
    ck_assert_int_eq(call("kiln_abi_version", 0, NULL), KILN_ABI_VERSION);
    uint64_t ctx = create("null");
    int32_t type = 0, id = -1;
    ck_assert_int_eq(CALL("kiln_context_device", ctx, AT(&type), AT(&id)), KILN_OK);
    ck_assert_int_eq(type, 1);
    ck_assert_int_eq(id, 0);
    uint64_t count = 7;
    ck_assert_int_eq(CALL("kiln_context_device_faults", ctx, AT(&count)), KILN_OK);
    ck_assert_uint_eq(count, 0);
    uint64_t memory = 0;
    ck_assert_int_eq(CALL("kiln_device_alloc", ctx, 100, AT(&memory)), KILN_OK);
    ck_assert_int_eq(CALL("kiln_device_free", ctx, memory), KILN_OK);
    ck_assert_int_eq(CALL("kiln_context_destroy", ctx), KILN_OK);
}
END_TEST

START_TEST(bad_handles_are_refused) {
    uint64_t ctx = create("null");
    refused_by_all(0, "NULL");
    refused_by_all(ctx & UINT32_MAX, "a handle cut to 32 bits");
    refused_by_all((uint64_t)(int64_t)(int32_t)ctx, "a handle cut to 32 bits and sign-extended");
    refused_by_all(AT(&ctx), "the address of a handle");
    refused_by_all(ctx + 1, "the next handle");
    refused_by_all(~ctx, "an inverted handle");
    ck_assert_int_eq(CALL("kiln_context_destroy", ctx), KILN_OK);
    refused_by_all(ctx, "a destroyed handle");
    uint64_t next = create("null");
    refused_by_all(ctx, "a destroyed handle whose place is used again");
    ck_assert_int_eq(CALL("kiln_context_destroy", next), KILN_OK);
}
END_TEST

START_TEST(a_million_random_handles_are_refused) {
    uint64_t ctx = create("null"), state = 88172645463325252u;
    int32_t (*device)(uint64_t, int32_t *, int32_t *);
    void *found = dlsym(library, "kiln_context_device");
    memcpy(&device, &found, sizeof device);
    for (int i = 0; i < 1000000; i++) {
        state ^= state << 13; /* xorshift */
        state ^= state >> 7;
        state ^= state << 17;
        /* Half of them are near the real one: some of its bits changed. */
        uint64_t handle = i & 1 ? state : ctx ^ (state & state >> 9 & state << 11);
        int32_t type, id;
        if (handle == ctx) continue;
        int status = device(handle, &type, &id);
        ck_assert_msg(status == KILN_E_HANDLE, "%#llx: status %d", (unsigned long long)handle, status);
    }
    ck_assert_int_eq(CALL("kiln_context_destroy", ctx), KILN_OK);
}
END_TEST

/* NULL wherever a pointer belongs: a status other than KILN_OK, and a sentence. */
START_TEST(nulls_are_refused) {
    uint64_t ctx = create("null");
    static const char *const needs_pointers[] = {
        "kiln_context_device_faults", "kiln_device_alloc",     "kiln_stream_create",         "kiln_event_create",
        "kiln_event_elapsed_us",      "kiln_context_counters", "kiln_load_balance_backward",
    };
    char before[256] = "";
    for (size_t i = 0; i < sizeof needs_pointers / sizeof *needs_pointers; i++) {
        uint64_t values[11] = {ctx};
        ck_assert_msg(call(needs_pointers[i], 11, values) != KILN_OK, "%s took NULL", needs_pointers[i]);
        char message[256] = "";
        CALL("kiln_error_copy", AT(message), sizeof message);
        ck_assert_msg(strcmp(message, before) != 0, "%s refused without a sentence of its own", needs_pointers[i]);
        memcpy(before, message, sizeof before);
    }
    static const char *const without_context[] = {
        "kiln_context_create", "kiln_device_count", "kiln_workspace_size", "kiln_reference",
        "kiln_check",          "kiln_plan_json",    "kiln_error_copy",
    };
    for (size_t i = 0; i < sizeof without_context / sizeof *without_context; i++) {
        uint64_t values[11] = {0};
        ck_assert_msg(call(without_context[i], 11, values) != KILN_OK, "%s took NULL", without_context[i]);
    }
    ck_assert_int_eq(CALL("kiln_context_destroy", ctx), KILN_OK);
}
END_TEST

/* A caller of another version: its struct_size says so. A longer struct is fine as long as what is new in it is zero.
 */
START_TEST(struct_sizes_are_checked) {
    uint64_t handle = 0;
    union {
        kiln_context_options options;
        unsigned char bytes[256];
    } newer = {{.struct_size = sizeof newer, .cache_dir = "off"}};
    ck_assert_int_eq(CALL("kiln_context_create", AT("null"), AT(&newer), AT(&handle)), KILN_OK);
    ck_assert_int_eq(CALL("kiln_context_destroy", handle), KILN_OK);
    newer.bytes[200] = 1;
    ck_assert_int_eq(CALL("kiln_context_create", AT("null"), AT(&newer), AT(&handle)), KILN_E_ABI);
    newer.options.struct_size = 3;
    ck_assert_int_eq(CALL("kiln_context_create", AT("null"), AT(&newer), AT(&handle)), KILN_E_ABI);
    newer.options.struct_size = 1u << 31;
    ck_assert_int_eq(CALL("kiln_context_create", AT("null"), AT(&newer), AT(&handle)), KILN_E_ABI);
    newer.options.struct_size = sizeof newer.options;
    ck_assert_int_eq(CALL("kiln_context_create", AT("null"), AT(&newer), AT(&handle)), KILN_OK);
    kiln_counters counters = {.struct_size = 1 << 20};
    ck_assert_int_eq(CALL("kiln_context_counters", handle, AT(&counters)), KILN_E_ABI);
    ck_assert_int_eq(CALL("kiln_context_destroy", handle), KILN_OK);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("undeclared");
    TCase *t = tcase_create("calls");
    tcase_add_checked_fixture(t, open_library, close_library);
    tcase_add_test(t, status_calls_work);
    tcase_add_test(t, bad_handles_are_refused);
    tcase_add_test(t, a_million_random_handles_are_refused);
    tcase_add_test(t, nulls_are_refused);
    tcase_add_test(t, struct_sizes_are_checked);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
