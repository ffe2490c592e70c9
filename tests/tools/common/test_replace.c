/* tools/kiln/common/replace.c: a file is replaced as a whole, or stays what it was. */
#include "common/replace.h"
#include "common/tool.h"
#include "support/suite.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[128];

static void set_up(void) {
    strcpy(folder, "/tmp/kn_test_replace_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
}

static int entries(void) {
    DIR *d = opendir(folder);
    int n = -2; /* . and .. */
    ck_assert_ptr_nonnull(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void tear_down(void) {
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void expect(const char *want) {
    char got[64] = "";
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(got, sizeof got, f));
    fclose(f);
    ck_assert_str_eq(got, want);
}

static int write_text(const char *to, const char *text, bool good) {
    kt_replacement r;
    KT_TRY(kt_replace_begin(&r, to));
    fputs(text, r.file);
    return kt_replace_end(&r, good);
}

START_TEST(readers_see_the_old_file_until_the_new_one_is_whole) {
    ck_assert_int_eq(write_text(path, "old", true), KT_GOOD);
    kt_replacement r;
    ck_assert_int_eq(kt_replace_begin(&r, path), KT_GOOD);
    fputs("new, and longer", r.file);
    fflush(r.file);
    expect("old");
    ck_assert_int_eq(kt_replace_end(&r, true), KT_GOOD);
    expect("new, and longer");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(what_could_not_be_written_leaves_the_old_file_alone) {
    ck_assert_int_eq(write_text(path, "old", true), KT_GOOD);
    ck_assert_int_eq(write_text(path, "new", false), KT_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(kt_message(), path));
    expect("old");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(a_folder_that_is_not_there_is_named) {
    ck_assert_int_eq(write_text("/no/such/folder/file", "x", true), KT_ENVIRONMENT);
    ck_assert_str_eq(kt_message(), "cannot write /no/such/folder/file: No such file or directory");
}
END_TEST

START_TEST(a_device_is_written_to_itself) {
    struct stat st;
    ck_assert_int_eq(write_text("/dev/null", "x", true), KT_GOOD);
    ck_assert_int_eq(stat("/dev/null", &st), 0);
    ck_assert(S_ISCHR(st.st_mode));
    ck_assert_int_eq(write_text("/dev/full", "x", true), KT_ENVIRONMENT);
    ck_assert_str_eq(kt_message(), "cannot write /dev/full: No space left on device");
}
END_TEST

int main(void) {
    Suite *s = suite_create("tools/replace");
    TCase *t = tcase_create("replace");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, readers_see_the_old_file_until_the_new_one_is_whole);
    tcase_add_test(t, what_could_not_be_written_leaves_the_old_file_alone);
    tcase_add_test(t, a_folder_that_is_not_there_is_named);
    tcase_add_test(t, a_device_is_written_to_itself);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
