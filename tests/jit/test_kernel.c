/* Kernels: what names them, what is kept of them, where they come from, and what happens when one does not load. */
#include "base/thread.h"
#include "engine_support.h"
#include "jit/kernel_note.h"

static kn_engine *e;

static void setup(void) {
    begin_dir();
    write_template("k.ptxt", ".param .u64 a, .param .u32 b", "");
}

static void teardown(void) {
    kn_engine_destroy(e);
    e = NULL;
    end_dir();
}

static kn_kernel_spec spec_of(int64_t n) {
    kn_kernel_spec s = {.template_name = "k.ptxt"};
    kn_params_set(&s.params, "N", n);
    return s;
}

static kn_engine *engine_in(const char *name, int on_miss) {
    char dir[96];
    snprintf(dir, sizeof dir, "%s/%s", work_dir, name);
    return fake_engine(&(kn_engine_options){.cache_dir = dir, .on_miss = on_miss});
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static kn_digest digest_of(const kn_key_inputs *in) {
    kn_key key;
    ck_assert_ok(kn_kernel_key(in, &key));
    kn_digest d = kn_hash(key.bytes.data, key.bytes.len);
    kn_key_free(&key);
    return d;
}

/* Everything that a kernel is made from is in its key, and nothing else. */
START_TEST(keys_are_complete) {
    kn_kernel_spec one = spec_of(1), two = spec_of(2);
    write_template("other.ptxt", "", "");
    kn_key_inputs in[8];
    for (int i = 0; i < 8; i++)
        in[i] = (kn_key_inputs){.template_name = "k.ptxt", .target = "sm_90a", .params = &one.params, .ptx = true};
    in[1].params = &two.params;
    in[2].target = "sm_80";
    in[3].expand_flags = KN_EXPAND_LINEINFO;
    in[4].ptx = false;
    in[5].template_name = "other.ptxt";
    kn_digest d[8];
    for (int i = 0; i < 6; i++) d[i] = digest_of(&in[i]);
    write_template("k.ptxt", ".param .u64 a, .param .u32 c", ""); /* one letter */
    d[6] = digest_of(&in[6]);
    write_template("k.ptxt", ".param .u64 a, .param .u32 b", "");
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < i; j++) ck_assert_msg(d[i].lo != d[j].lo || d[i].hi != d[j].hi, "keys %d and %d", i, j);
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    ck_assert_int_eq(chdir("/"), 0);
    d[7] = digest_of(&in[7]);
    ck_assert(d[7].lo == d[0].lo && d[7].hi == d[0].hi);
}
END_TEST

START_TEST(a_key_expands_again) {
    kn_kernel_spec s = spec_of(77);
    kn_params_set_name(&s.params, "KIND", "bf16");
    kn_key_inputs in = {.template_name = "named.ptxt", .target = "sm_90a", .params = &s.params, .ptx = true};
    write_template("named.ptxt", "", "#param KIND in {bf16, f16} // a name\n    // ${KIND}\n");
    kn_key key;
    kn_expansion x, again;
    ck_assert_ok(kn_kernel_key(&in, &key));
    ck_assert_ok(kn_expand("named.ptxt", &s.params, "sm_90a", 0, &x));
    ck_assert_ok(kn_kernel_reexpand(key.bytes.data, key.bytes.len, &again));
    ck_assert_str_eq(x.ptx, again.ptx);
    ck_assert_str_eq(again.meta.entry, "kiln_test_77");
    kn_expansion_free(&x);
    kn_expansion_free(&again);
    write_template("named.ptxt", "", "");
    ck_assert_fails(kn_kernel_reexpand(key.bytes.data, key.bytes.len, &again), KN_E_UNSUPPORTED,
                    "made by another version of named.ptxt");
    ck_assert_fails(kn_kernel_reexpand("nonsense", 8, &again), KN_E_FORMAT, "key");
    kn_key_free(&key);
}
END_TEST

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static kn_kernel_info sample_info(void) {
    kn_kernel_info i = {.driver_version = 12000, .ptx = {0x0123456789abcdef, 0xfedcba9876543210}};
    snprintf(i.meta.entry, sizeof i.meta.entry, "kiln_sample");
    snprintf(i.meta.target, sizeof i.meta.target, "sm_90a");
    snprintf(i.assembler, sizeof i.assembler, "nvjitlink 13000 -O3 -Xptxas=-v");
    snprintf(i.report.remark, sizeof i.report.remark, "wgmma serialised\nat x.ptxt:3");
    i.meta.ptx_version = 80;
    for (uint32_t d = 0; d < 3; d++) {
        i.meta.threads[d] = 10 + d;
        i.meta.cluster[d] = 1 + d;
    }
    i.meta.smem_dynamic = 200000;
    i.meta.smem_static = 16;
    i.meta.grid_dependency = 1;
    i.meta.ptx_lines = 4321;
    i.meta.n_args = 3;
    i.meta.arg[0] = (kn_kernel_arg){"map", 0, 128, 64};
    i.meta.arg[1] = (kn_kernel_arg){"a", 128, 8, 8};
    i.meta.arg[2] = (kn_kernel_arg){"b", 136, 4, 4};
    i.report.registers = 168;
    i.report.spill_stores = 4;
    i.report.spill_loads = 8;
    i.report.stack = 12;
    i.report.barriers = 2;
    i.report.remarks = 1;
    i.report.assemble_ns = 5000000;
    return i;
}

START_TEST(metadata_survive) {
    kn_kernel_info in = sample_info(), out;
    kn_buf text;
    kn_buf_init(&text, 1 << 20);
    ck_assert_ok(kn_kernel_info_write(&in, &text));
    kn_blob blob = {.meta = text.data, .meta_len = text.len};
    ck_assert_ok(kn_kernel_info_read(&blob, &out));
    in.report.remark[strcspn(in.report.remark, "\n")] = ' ';
    ck_assert_mem_eq(&in, &out, sizeof in);
    /* Without any one of its lines but the remark's, an entry is of no use. */
    for (const char *line = text.data; *line;) {
        size_t n = strcspn(line, "\n") + 1, before = (size_t)(line - text.data);
        char *less = malloc(text.len);
        memcpy(less, text.data, before);
        memcpy(less + before, line + n, text.len - before - n);
        kn_blob cut = {.meta = less, .meta_len = text.len - n};
        if (strncmp(line, "remark=", 7) != 0)
            ck_assert_fails(kn_kernel_info_read(&cut, &out), KN_E_FORMAT, "metadata are not complete");
        free(less);
        line += n;
    }
    kn_buf_free(&text);
}
END_TEST

/* ---- layers ------------------------------------------------------------------------------------------------------ */

START_TEST(a_second_engine_finds_it_on_the_disk) {
    kn_kernel_spec s = spec_of(5);
    kn_kernel *k = NULL;
    e = engine_in("cache", 0);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_CACHED, &k));
    ck_assert_ptr_null(k);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k));
    ck_assert(k->built);
    ck_assert_uint_eq(k->info.meta.n_args, 2);
    kn_kernel_release(e, k);
    kn_engine_destroy(e);
    e = engine_in("cache", 0);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_LOADED, &k));
    ck_assert_ptr_null(k);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_CACHED, &k));
    ck_assert_ptr_nonnull(k);
    ck_assert(!k->built);
    ck_assert_str_eq(k->info.meta.entry, "kiln_test_5");
    ck_assert_uint_eq(k->info.meta.arg[1].offset, 8);
    kn_kernel *again = NULL;
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_LOADED, &again));
    ck_assert_ptr_eq(again, k);
    kn_kernel_release(e, again);
    kn_kernel_release(e, k);
    ck_assert_uint_eq(e->count.kernels_built, 0);
    ck_assert_uint_eq(e->count.kernels_loaded, 1);
    ck_assert_uint_eq(e->count.expand_ns, 0); /* a hit expands nothing */
}
END_TEST

START_TEST(strict_mode_names_what_is_missing) {
    kn_kernel_spec s = spec_of(5);
    kn_kernel *k = NULL;
    e = engine_in("cache", 1 + KN_ON_MISS_ERROR);
    ck_assert_fails(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k), KN_E_NOT_CACHED,
                    "kernel k.ptxt (N=5) for sm_90a is in no cache layer, and KILN_ON_MISS is error");
    kn_engine_destroy(e);
    e = engine_in("cache", 0);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k));
    kn_kernel_release(e, k);
    kn_engine_destroy(e);
    e = engine_in("cache", 1 + KN_ON_MISS_ERROR);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k));
    kn_kernel_release(e, k);
}
END_TEST

/* An entry that the device does not take is a miss for the next layer, and then built anew. */
START_TEST(what_does_not_load_is_a_miss) {
    kn_kernel_spec s = spec_of(5);
    kn_kernel *k = NULL;
    e = engine_in("cache", 0);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k));
    kn_kernel_release(e, k);
    kn_engine_destroy(e);
    e = engine_in("cache", 0);
    device.fail_loads = 1;
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k));
    ck_assert(k->built);
    kn_kernel_release(e, k);
    kn_engine_destroy(e);
    e = engine_in("cache", 1 + KN_ON_MISS_ERROR);
    device.fail_loads = 1;
    ck_assert_fails(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k), KN_E_NOT_CACHED,
                    "an entry did not load: the device does not like kiln_test_5");
    kn_engine_destroy(e);
    e = engine_in("cache", 0);
    device.fail_loads = 2; /* the new one neither */
    ck_assert_fails(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k), KN_E_LOAD, "does not like");
    ck_assert_ptr_null(k);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k)); /* and nothing stands in the way of the next try */
    kn_kernel_release(e, k);
}
END_TEST

START_TEST(an_entry_of_another_target_is_refused) {
    kn_kernel_spec s = spec_of(5);
    kn_kernel *k = NULL;
    kn_key_inputs in = {.template_name = "k.ptxt", .target = "sm_90a", .params = &s.params, .ptx = true};
    kn_kernel_info info = sample_info();
    kn_buf meta;
    kn_key key;
    const kn_blob *blob = NULL;
    snprintf(info.meta.target, sizeof info.meta.target, "sm_100a");
    kn_buf_init(&meta, 1 << 20);
    ck_assert_ok(kn_kernel_info_write(&info, &meta));
    ck_assert_ok(kn_kernel_key(&in, &key));
    e = engine_in("cache", 1 + KN_ON_MISS_ERROR);
    ck_assert_ok(kn_cache_publish(e->cache, &key, "ptx", "text", 4, meta.data, meta.len, &blob));
    kn_blob_release(blob);
    ck_assert_fails(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k), KN_E_NOT_CACHED,
                    "the entry of kiln_sample is for sm_100a, the device is sm_90a");
    kn_buf_free(&meta);
    kn_key_free(&key);
}
END_TEST

START_TEST(an_old_driver_is_named) {
    kn_kernel_spec s = spec_of(5);
    kn_kernel *k = NULL;
    kn_key_inputs in = {.template_name = "k.ptxt", .target = "sm_90a", .params = &s.params, .ptx = true};
    kn_kernel_info info = sample_info();
    kn_buf meta;
    kn_key key;
    const kn_blob *blob = NULL;
    info.driver_version = 13000;
    kn_buf_init(&meta, 1 << 20);
    ck_assert_ok(kn_kernel_info_write(&info, &meta));
    ck_assert_ok(kn_kernel_key(&in, &key));
    e = engine_in("cache", 1 + KN_ON_MISS_ERROR);
    e->backend->facts.driver_version = 12040;
    ck_assert_ok(kn_cache_publish(e->cache, &key, "ptx", "text", 4, meta.data, meta.len, &blob));
    kn_blob_release(blob);
    ck_assert_fails(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k), KN_E_NOT_CACHED,
                    "needs driver 13000; the driver is 12040");
    kn_buf_free(&meta);
    kn_key_free(&key);
}
END_TEST

START_TEST(template_errors_reach_the_caller) {
    kn_kernel_spec s = spec_of(5);
    kn_kernel *k = NULL;
    e = engine_in("cache", 0);
    kn_params_set(&s.params, "M", 1);
    ck_assert_fails(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k), KN_E_TEMPLATE, "M");
    s = spec_of(-1);
    ck_assert_fails(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k), KN_E_TEMPLATE, "N");
    s = spec_of(5);
    snprintf(s.template_name, sizeof s.template_name, "no_such.ptxt");
    ck_assert_fails(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k), KN_E_TEMPLATE, "there is no template no_such.ptxt");
}
END_TEST

START_TEST(the_one_unused_longest_is_unloaded) {
    kn_kernel_spec s[3] = {spec_of(1), spec_of(2), spec_of(3)};
    kn_kernel *k = NULL;
    static const int order[] = {0, 1, 0, 2};
    e = fake_engine(NULL);
    for (int i = 0; i < 4; i++) {
        ck_assert_ok(kn_kernel_acquire(e, &s[order[i]], KN_WANT_BUILT, &k));
        kn_kernel_release(e, k);
    }
    kn_kernel_collect(e, 2);
    ck_assert_uint_eq(kn_kernel_count(e), 2);
    for (int i = 0; i < 3; i++) {
        ck_assert_ok(kn_kernel_acquire(e, &s[i], KN_WANT_LOADED, &k));
        ck_assert_int_eq(k == NULL, i == 1);
        if (k) kn_kernel_release(e, k);
    }
}
END_TEST

START_TEST(dumps_for_people) {
    char dir[96], command[512];
    kn_kernel_spec s = spec_of(5);
    kn_kernel *k = NULL;
    snprintf(dir, sizeof dir, "%s/dump", work_dir);
    setenv("KILN_DUMP", dir, 1);
    e = engine_in("cache", 0);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_BUILT, &k));
    kn_kernel_release(e, k);
    snprintf(command, sizeof command,
             "grep -q 'visible .entry kiln_test_5' %s/kiln_test_5-*.ptx && "
             "grep -q '^params=N=5$' %s/kiln_test_5-*.txt",
             dir, dir);
    ck_assert_int_eq(system(command), 0);
    unsetenv("KILN_DUMP");
}
END_TEST

/* ---- the note of the assembler ----------------------------------------------------------------------------------- */

START_TEST(a_note_holds_while_its_library_is_unchanged) {
    char dir[96], library[128], text[160] = "";
    snprintf(dir, sizeof dir, "%s/cache", work_dir);
    snprintf(library, sizeof library, "%s/libnvJitLink.so.13", work_dir);
    unsetenv("KILN_LIBNVJITLINK"); /* whatever this machine has */
    unsetenv("LD_LIBRARY_PATH");
    ck_assert(!kn_kernel_note_read(dir, text, sizeof text));
    kn_kernel_note_write(dir, library, "nvjitlink 13000 -O3"); /* neither is there */
    ck_assert(!kn_kernel_note_read(dir, text, sizeof text));
    kn_mkdir(dir, 0700);
    ck_assert_ok(kn_file_write(library, "code", 4));
    kn_kernel_note_write(dir, library, "nvjitlink 13000 -O3");
    ck_assert(kn_kernel_note_read(dir, text, sizeof text));
    ck_assert_str_eq(text, "nvjitlink 13000 -O3");
    ck_assert(!kn_kernel_note_read(dir, text, 5)); /* no room is no answer */
    setenv("KILN_LIBNVJITLINK", "off", 1);         /* another search */
    ck_assert(!kn_kernel_note_read(dir, text, sizeof text));
    unsetenv("KILN_LIBNVJITLINK");
    setenv("LD_LIBRARY_PATH", "/elsewhere", 1);
    ck_assert(!kn_kernel_note_read(dir, text, sizeof text));
    unsetenv("LD_LIBRARY_PATH");
    ck_assert(kn_kernel_note_read(dir, text, sizeof text));
    ck_assert_ok(kn_file_write(library, "other code", 10)); /* upgraded */
    ck_assert(!kn_kernel_note_read(dir, text, sizeof text));
    kn_kernel_note_write(dir, library, "nvjitlink 13010 -O3");
    ck_assert(kn_kernel_note_read(dir, text, sizeof text));
    ck_assert_str_eq(text, "nvjitlink 13010 -O3");
    ck_assert_int_eq(kn_unlink(library), 0);
    ck_assert(!kn_kernel_note_read(dir, text, sizeof text));
}
END_TEST

/* A note that was cut anywhere, or that had a byte changed before its last line, is none. */
START_TEST(damaged_notes_are_ignored) {
    char dir[96], library[128], path[128], text[160], *note = NULL;
    size_t len = 0;
    snprintf(dir, sizeof dir, "%s", work_dir);
    snprintf(library, sizeof library, "%s/library", work_dir);
    snprintf(path, sizeof path, "%s/assembler", work_dir);
    ck_assert_ok(kn_file_write(library, "code", 4));
    kn_kernel_note_write(dir, library, "nvjitlink 13000 -O3");
    ck_assert_ok(kn_file_read(path, 4096, &note, &len));
    for (size_t n = 0; n < len; n++) {
        ck_assert_ok(kn_file_write(path, note, n));
        ck_assert(!kn_kernel_note_read(dir, text, sizeof text));
    }
    size_t last = (size_t)(strstr(note, "text=") - note);
    for (size_t n = 0; n < last; n++) {
        note[n] ^= 1;
        ck_assert_ok(kn_file_write(path, note, len));
        ck_assert(!kn_kernel_note_read(dir, text, sizeof text));
        note[n] ^= 1;
    }
    kn_free(note);
}
END_TEST

/* ---- threads of several engines ---------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;
static kn_engine *engines[4];

static void *acquire_one(void *arg) {
    kn_engine *mine = engines[(uintptr_t)arg % 4];
    kn_kernel_spec s = spec_of(9);
    kn_kernel *k = NULL;
    pthread_barrier_wait(&barrier);
    if (kn_kernel_acquire(mine, &s, KN_WANT_BUILT, &k) != KN_OK) abort();
    kn_kernel_release(mine, k);
    return NULL;
}

START_TEST(engines_share_a_build_in_progress) {
    pthread_t thread[16];
    int built = 0;
    /* A kernel that takes a while to expand. */
    write_template("k.ptxt", ".param .u64 a", "#for i in 0 .. 150000\n    // ${i}\n#end\n");
    for (int i = 0; i < 4; i++) engines[i] = fake_engine(NULL);
    pthread_barrier_init(&barrier, NULL, 16);
    for (uintptr_t i = 0; i < 16; i++) pthread_create(&thread[i], NULL, acquire_one, (void *)i);
    for (int i = 0; i < 16; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) {
        built += (int)engines[i]->count.kernels_built;
        ck_assert_uint_eq(engines[i]->count.kernels_loaded, 1);
        kn_engine_destroy(engines[i]);
    }
    ck_assert_int_eq(built, 1);
    pthread_barrier_destroy(&barrier);
}
END_TEST

static void *build_one(void *arg) {
    kn_kernel_spec s = spec_of(9);
    if (kn_kernel_acquire(e, &s, KN_WANT_BUILT, arg) != KN_OK) abort();
    return NULL;
}

/* What a capture asks for must not wait for a thread that builds. */
START_TEST(asking_for_loaded_ones_never_waits) {
    pthread_t thread;
    kn_kernel_spec s = spec_of(9);
    kn_kernel *built = NULL, *k = NULL;
    e = fake_engine(NULL);
    atomic_store(&device.hold, true);
    pthread_create(&thread, NULL, build_one, &built);
    while (atomic_load(&device.waiting) == 0) usleep(100);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_LOADED, &k));
    ck_assert_ptr_null(k);
    atomic_store(&device.hold, false);
    pthread_join(thread, NULL);
    ck_assert_ok(kn_kernel_acquire(e, &s, KN_WANT_LOADED, &k));
    ck_assert_ptr_eq(k, built);
    kn_kernel_release(e, k);
    kn_kernel_release(e, built);
}
END_TEST

int main(void) {
    Suite *s = suite_create("kernel");
    TCase *t = tcase_create("kernels");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, keys_are_complete);
    tcase_add_test(t, a_key_expands_again);
    tcase_add_test(t, metadata_survive);
    tcase_add_test(t, a_second_engine_finds_it_on_the_disk);
    tcase_add_test(t, strict_mode_names_what_is_missing);
    tcase_add_test(t, what_does_not_load_is_a_miss);
    tcase_add_test(t, an_entry_of_another_target_is_refused);
    tcase_add_test(t, an_old_driver_is_named);
    tcase_add_test(t, template_errors_reach_the_caller);
    tcase_add_test(t, the_one_unused_longest_is_unloaded);
    tcase_add_test(t, dumps_for_people);
    tcase_add_test(t, a_note_holds_while_its_library_is_unchanged);
    tcase_add_test(t, damaged_notes_are_ignored);
    tcase_add_test(t, engines_share_a_build_in_progress);
    tcase_add_test(t, asking_for_loaded_ones_never_waits);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
