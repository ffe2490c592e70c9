/* Which assembler builds for a device, through the public interface on the fake driver: nvJitLink, or the driver where
 * nvJitLink's code would be too new for it or is not to be used. */
#include "base/status.h"
#include "fakecuda/fake_user.h"
#include "ops_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[] = "/tmp/kiln-test-XXXXXX";

static void begin(const char *driver, const char *library) {
    snprintf(dir, sizeof dir, "/tmp/kiln-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("KILN_LIBNVJITLINK", fake_path(library, strstr(library, "13") ? "libnvJitLink.so.13" : "libnvJitLink.so.12"),
           1);
    fake_start(driver);
}

static void end(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static kiln_context *create(int32_t on_miss) {
    kiln_context *ctx = NULL;
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = dir, .on_miss = on_miss};
    ck_assert_ok(kiln_context_create("cuda:0", &o, &ctx));
    return ctx;
}

/* Build one kernel, or find it. */
static int32_t plan(kiln_context *ctx) {
    lb_call c;
    int32_t type, id;
    uint64_t needed;
    ck_assert_ok(kiln_context_device(ctx, &type, &id));
    lb_begin(&c, 5, 60);
    for (int i = 0; i < 8; i++) {
        DLTensor *t = (DLTensor *)c.args[i];
        if (t) memcpy(&t->device.device_type, &type, sizeof type);
    }
    int32_t status =
        kiln_plan_json(ctx, "load_balance_backward", c.args, 8, &c.options, KILN_PLAN_BUILD, NULL, 0, &needed);
    lb_end(&c);
    return status;
}

/* Text of all that the cache holds. */
static const char *cached(void) {
    static char text[1 << 16];
    uint64_t needed;
    ck_assert_ok(kiln_cache_json(dir, text, sizeof text, &needed));
    return text;
}

static void build(const char *assembler) {
    kiln_context *ctx = create(KILN_ON_MISS_BUILD);
    char wanted[64];
    ck_assert_ok(plan(ctx));
    ck_assert_ok(kiln_context_destroy(ctx));
    snprintf(wanted, sizeof wanted, "\"assembler\":\"%s", assembler);
    ck_assert_msg(strstr(cached(), wanted) != NULL, "wanted %s in %s", wanted, cached());
}

START_TEST(nvjitlink_where_the_driver_takes_its_code) {
    begin("version=13000", "fakenvjitlink_13_0");
    build("nvjitlink 13000 ");
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuLinkCreate"), 0);
    end();
}
END_TEST

/* Code of a newer major release does not load: the driver's own assembler makes what does, and the next program finds
 * it. */
START_TEST(the_driver_where_nvjitlink_is_newer) {
    begin("version=12040", "fakenvjitlink_13_0");
    build("driver 12040");
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuLinkCreate"), 1);
    kiln_context *ctx = create(KILN_ON_MISS_ERROR);
    ck_assert_ok(plan(ctx));
    ck_assert_ok(kiln_context_destroy(ctx));
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuLinkCreate"), 1);
    end();
}
END_TEST

START_TEST(a_newer_minor_release_is_fine) {
    begin("version=12000", "fakenvjitlink_12_8");
    build("nvjitlink 12090 ");
    end();
}
END_TEST

START_TEST(bad_assemblers_are_not_used) {
    begin("version=13000", "fakenvjitlink_13_0");
    build("nvjitlink 13000 ");
    /* What it made is not loaded any more either. */
    setenv("KILN_BAD_ASSEMBLERS", "driver-12.9,nvjitlink-13.0", 1);
    kiln_context *ctx = create(KILN_ON_MISS_ERROR);
    ck_assert_int_eq(plan(ctx), KILN_E_NOT_CACHED);
    ck_assert_ok(kiln_context_destroy(ctx));
    build("driver 13000");
    /* With both of them named nothing is left. */
    setenv("KILN_BAD_ASSEMBLERS", "nvjitlink-13.0,driver-13.0", 1);
    ctx = create(KILN_ON_MISS_BUILD);
    ck_assert_fails(plan(ctx), KILN_E_UNAVAILABLE,
                    "KILN_BAD_ASSEMBLERS names nvjitlink 13.0; KILN_BAD_ASSEMBLERS names driver 13.0");
    ck_assert_ok(kiln_context_destroy(ctx));
    /* A name is a whole one. */
    setenv("KILN_BAD_ASSEMBLERS", "nvjitlink-13,nvjitlink-13.01,link-13.0", 1);
    ctx = create(KILN_ON_MISS_ERROR);
    ck_assert_ok(plan(ctx));
    ck_assert_ok(kiln_context_destroy(ctx));
    unsetenv("KILN_BAD_ASSEMBLERS");
    end();
}
END_TEST

/* Code in a pack, whose entries are found by key alone. */
START_TEST(packs_of_bad_assemblers_are_refused) {
    char pack[96];
    uint64_t entries;
    begin("version=13000", "fakenvjitlink_13_0");
    build("nvjitlink 13000 ");
    snprintf(pack, sizeof pack, "%s/a.pack", dir);
    ck_assert_ok(kiln_cache_merge((const char *[]){dir}, 1, pack, &entries));
    kiln_context *ctx = NULL;
    kiln_context_options o = {
        .struct_size = sizeof o, .cache_dir = "off", .cache_read_only = pack, .on_miss = KILN_ON_MISS_ERROR};
    ck_assert_ok(kiln_context_create("cuda:0", &o, &ctx));
    ck_assert_ok(plan(ctx));
    ck_assert_ok(kiln_context_destroy(ctx));
    setenv("KILN_BAD_ASSEMBLERS", "nvjitlink-13.0", 1);
    ck_assert_ok(kiln_context_create("cuda:0", &o, &ctx));
    ck_assert_fails(plan(ctx), KILN_E_NOT_CACHED, "KILN_BAD_ASSEMBLERS names nvjitlink 13.0");
    ck_assert_ok(kiln_context_destroy(ctx));
    unsetenv("KILN_BAD_ASSEMBLERS");
    end();
}
END_TEST

int main(void) {
    Suite *s = suite_create("assembler_choice");
    TCase *t = tcase_create("choice");
    tcase_add_test(t, nvjitlink_where_the_driver_takes_its_code);
    tcase_add_test(t, the_driver_where_nvjitlink_is_newer);
    tcase_add_test(t, a_newer_minor_release_is_fine);
    tcase_add_test(t, bad_assemblers_are_not_used);
    tcase_add_test(t, packs_of_bad_assemblers_are_refused);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
