/* The library through dlopen and libffi: see library.h. */
#include "abi/library.h"

#include "kiln/kiln.h"

#include <dlfcn.h>
#include <ffi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_VALUES = KT_MAX_ARGS + 3 };

/* A function, ready to be called. */
typedef struct callee {
    void (*address)(void);
    ffi_cif cif;
    ffi_type *types[MAX_VALUES];
    char letters[MAX_VALUES + 1];
} callee;

struct kt_library {
    void *handle;
    char *path;
    size_t n_functions, n_ops;
    callee *functions; /* in the order of kt_functions */
    callee *ops;
};

static ffi_type *type_of(char letter) {
    switch (letter) {
    case 'i': return &ffi_type_sint32;
    case 'I': return &ffi_type_sint64;
    case 'u': return &ffi_type_uint32;
    case 'U': return &ffi_type_uint64;
    case 'd': return &ffi_type_double;
    case 's':
    case 'p': return &ffi_type_pointer;
    default: fprintf(stderr, "kiln: kiln_abi.def has no type '%c'\n", letter); abort();
    }
}

/* Find the symbol and describe the call. `letters`: one an argument; `result`: 'i' or 's'. */
static int prepare(kt_library *lib, callee *c, const char *symbol, const char *letters, char result) {
    void *address = dlsym(lib->handle, symbol);
    memcpy(&c->address, &address, sizeof address);
    size_t n = strlen(letters);
    if (n > MAX_VALUES) abort();
    memcpy(c->letters, letters, n + 1);
    for (size_t i = 0; i < n; i++) c->types[i] = type_of(letters[i]);
    ffi_type *returns = result == 's' ? &ffi_type_pointer : &ffi_type_sint32;
    if (ffi_prep_cif(&c->cif, FFI_DEFAULT_ABI, (unsigned)n, returns, c->types) != FFI_OK)
        return kt_fail(KT_ENVIRONMENT, "libffi cannot call %s(%s)", symbol, letters);
    return KT_GOOD;
}

static int prepare_op(kt_library *lib, callee *c, const kt_op *op) {
    char letters[MAX_VALUES + 1] = "p";
    if (op->n_args > KT_MAX_ARGS) abort();
    memset(letters + 1, 'p', (size_t)op->n_args + 2); /* the context, the tensors, options, stream */
    char symbol[128];
    snprintf(symbol, sizeof symbol, "kiln_%s", op->name);
    return prepare(lib, c, symbol, letters, 'i');
}

static int check_version(kt_library *lib) {
    int32_t (*version)(void);
    void *address = dlsym(lib->handle, "kiln_abi_version");
    if (!address) return kt_fail(KT_ENVIRONMENT, "%s is not libkiln: it has no kiln_abi_version", lib->path);
    memcpy(&version, &address, sizeof address);
    if (version() != KILN_ABI_VERSION)
        return kt_fail(KT_ENVIRONMENT, "%s speaks version %d of the interface; this tool speaks %d", lib->path,
                       (int)version(), KILN_ABI_VERSION);
    return KT_GOOD;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static bool try_open(kt_library *lib, const char *path) {
    lib->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (lib->handle) lib->path = kt_copy(path);
    return lib->handle != NULL;
}

/* The library next to the program, then in the library folder of the tree that the program is installed in. */
static bool try_near_program(kt_library *lib) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash) return false;
    *slash = '\0';
    static const char *const folders[] = {".", KILN_LIBRARY_FROM_PROGRAM};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *path =
            i == 0 ? kt_format("%s/%s", self, KILN_SONAME) : kt_format("%s/%s/%s", self, folders[i], KILN_SONAME);
        bool found = access(path, F_OK) == 0 && try_open(lib, path);
        free(path);
        if (found) return true;
    }
    return false;
}

static int open_some(kt_library *lib, const char *path) {
    const char *asked = path ? path : getenv("KILN_LIBRARY");
    bool opened = asked && *asked ? try_open(lib, asked) : try_near_program(lib) || try_open(lib, KILN_SONAME);
    if (opened) return KT_GOOD;
    return kt_fail(KT_ENVIRONMENT, "cannot open the library: %s; name it with --library or KILN_LIBRARY", dlerror());
}

static int prepare_all(kt_library *lib) {
    lib->functions = kt_alloc(kt_n_functions, sizeof *lib->functions);
    for (size_t i = 0; i < kt_n_functions; i++) {
        const kt_function *f = &kt_functions[i];
        KT_TRY(prepare(lib, &lib->functions[i], f->name, f->arguments, f->result));
        if (!lib->functions[i].address)
            return kt_fail(KT_ENVIRONMENT, "%s has no function %s: it is not the libkiln that this tool was built with",
                           lib->path, f->name);
    }
    while (kt_op_at((int)lib->n_ops)) lib->n_ops++;
    lib->ops = kt_alloc(lib->n_ops, sizeof *lib->ops);
    for (size_t i = 0; i < lib->n_ops; i++) KT_TRY(prepare_op(lib, &lib->ops[i], kt_op_at((int)i)));
    return KT_GOOD;
}

int kt_library_open(const char *path, kt_library **out) {
    kt_library *lib = kt_alloc(1, sizeof *lib);
    int code = open_some(lib, path);
    if (code == KT_GOOD) code = check_version(lib);
    if (code == KT_GOOD) code = prepare_all(lib);
    if (code != KT_GOOD) {
        kt_library_close(lib);
        lib = NULL;
    }
    *out = lib;
    return code;
}

void kt_library_close(kt_library *lib) {
    if (!lib) return;
    if (lib->handle) dlclose(lib->handle);
    free(lib->path);
    free(lib->functions);
    free(lib->ops);
    free(lib);
}

bool kt_library_has_op(const kt_library *lib, const kt_op *op) {
    return lib->ops[op - kt_op_at(0)].address != NULL;
}

const char *kt_library_path(const kt_library *lib) {
    return lib->path;
}

/* ---- calling ---------------------------------------------------------------------------------------------------- */

static callee *find(kt_library *lib, const char *function) {
    for (size_t i = 0; i < kt_n_functions; i++)
        if (strcmp(kt_functions[i].name, function) == 0) return &lib->functions[i];
    fprintf(stderr, "kiln: kiln_abi.def has no function %s\n", function);
    abort();
}

static void call(callee *c, const char *function, size_t n, const kt_value *values, void *result) {
    void *addresses[MAX_VALUES];
    bool fits = strlen(c->letters) == n;
    for (size_t i = 0; fits && i < n; i++) {
        fits = values[i].letter == c->letters[i];
        memcpy(&addresses[i], &(const void *){&values[i].as}, sizeof addresses[i]); /* libffi takes no const */
    }
    if (!fits) {
        fprintf(stderr, "kiln: a call of %s does not fit its row (%s) in kiln_abi.def\n", function, c->letters);
        abort();
    }
    ffi_call(&c->cif, c->address, result, addresses);
}

int32_t kt_call_values(kt_library *lib, const char *function, size_t n, const kt_value *values) {
    ffi_arg result = 0; /* libffi widens small results to a register */
    call(find(lib, function), function, n, values, &result);
    return (int32_t)result;
}

const char *kt_call_string(kt_library *lib, const char *function, size_t n, const kt_value *values) {
    const char *result = NULL;
    call(find(lib, function), function, n, values, &result);
    return result ? result : "";
}

int kt_call_op(kt_library *lib, const kt_op *op, void *ctx, const void *const *tensors, const void *options,
               void *stream) {
    if (!kt_library_has_op(lib, op))
        return kt_fail(KT_ENVIRONMENT, "%s does not have the operation %s", lib->path, op->name);
    kt_value values[MAX_VALUES];
    size_t n = 0;
    values[n++] = KT_PTR(ctx);
    for (int i = 0; i < op->n_args; i++) values[n++] = KT_PTR(tensors[i]);
    values[n++] = KT_PTR(options);
    values[n++] = KT_PTR(stream);
    ffi_arg result = 0;
    call(&lib->ops[op - kt_op_at(0)], op->name, n, values, &result);
    return kt_status(lib, (int32_t)result);
}

int kt_status(kt_library *lib, int32_t status) {
    if (status == KILN_OK) return KT_GOOD;
    const char *name = kt_call_string(lib, "kiln_status_name", 1, &KT_I32(status));
    const char *sentence = kt_call_string(lib, "kiln_error_message", 0, NULL);
    bool of_caller = (status >= KILN_E_ARG && status <= KILN_E_WORKSPACE) || status == KILN_E_FORMAT;
    bool of_kernel = status == KILN_E_SIM;
    return kt_fail(of_caller ? KT_USAGE : of_kernel ? KT_CHECK : KT_ENVIRONMENT, "%s (%s)", sentence, name);
}

int kt_call_json(kt_library *lib, const char *function, size_t n, const kt_value *values, json_t **out) {
    kt_value all[MAX_VALUES];
    if (n + 3 > MAX_VALUES) abort();
    for (size_t i = 0; i < n; i++) all[i] = values[i];
    uint64_t cap = 64 << 10, needed = 0;
    char *text = NULL;
    int32_t status;
    do { /* the text may grow between two calls: a cache in use */
        if (needed > cap) cap = needed + 4096;
        text = kt_grow(text, 1, cap);
        all[n] = KT_PTR(text);
        all[n + 1] = KT_U64(cap);
        all[n + 2] = KT_PTR(&needed);
        needed = 0;
        status = kt_call_values(lib, function, n + 3, all);
    } while (needed > cap);
    int code = kt_status(lib, status);
    json_error_t error;
    if (code == KT_GOOD) {
        *out = json_loads(text, JSON_REJECT_DUPLICATES, &error);
        if (!*out) code = kt_fail(KT_ENVIRONMENT, "%s gave text that is not JSON: %s", function, error.text);
    }
    free(text);
    return code;
}
