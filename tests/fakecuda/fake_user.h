/* How a test program uses the fake driver: fake_start() before anything else of Kiln, then fake.script(...) and so on.
 * The build directory comes from KN_BUILD_DIR, which CTest sets. */
#ifndef KN_TESTS_FAKE_USER_H
#define KN_TESTS_FAKE_USER_H

#include "fakecuda/fake_cuda.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
#define X(type, name, args) type(*name) args;
    FAKECUDA_CONTROL(X)
#undef X
    void *handle;
} fake_driver;

/* Path of a file of the build directory, in one of a few static buffers. */
static inline const char *fake_path(const char *library, const char *file) {
    static char text[4][512];
    static int turn;
    const char *build = getenv("KN_BUILD_DIR");
    ck_assert_msg(build != NULL, "KN_BUILD_DIR is not set: run this through CTest");
    char *out = text[turn++ % 4];
    snprintf(out, sizeof text[0], "%s/fake/%s/%s", build, library, file);
    return out;
}

/* Open the fake driver, name it in KILN_LIBCUDA, and obey `script` ("" for a plain H200-like device). */
static inline void fake_start(const char *script) {
    const char *path = fake_path("fakecuda", "libcuda.so.1");
    setenv("KILN_LIBCUDA", path, 1);
    fake_driver.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(fake_driver.handle != NULL, "%s", dlerror());
    void *address;
#define X(type, name, args)                                                                                            \
    address = dlsym(fake_driver.handle, #name);                                                                        \
    ck_assert_ptr_nonnull(address);                                                                                    \
    memcpy(&fake_driver.name, &address, sizeof address);
    FAKECUDA_CONTROL(X)
#undef X
    fake_driver.fakecuda_script(script);
}

/* A function of the fake driver that Kiln itself does not call. */
static inline void fake_call(const char *name, void *out) {
    void *address = dlsym(fake_driver.handle, name);
    ck_assert_ptr_nonnull(address);
    memcpy(out, &address, sizeof address);
}

#define fake_assert_clean()                                                                                            \
    ck_assert_msg(fake_driver.fakecuda_misuses() == 0, "%ld misuses, the first: %s", fake_driver.fakecuda_misuses(),   \
                  fake_driver.fakecuda_misuse())

#endif
