/* The note of a cache directory's assembler: see kernel_note.h. Lines of text; the last one must be there in full:
 *
 *     kiln assembler note 1
 *     search=<digest of the variables that the search for the library depends on>
 *     path=<the library's file>
 *     stamp=<device> <inode> <bytes> <seconds> <nanoseconds>
 *     text=<what it calls itself> */
#include "jit/kernel_note.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/env.h"
#include "base/file.h"
#include "cache/cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NOTE_MAX = 4096 };
static const char first_line[] = "kiln assembler note 1";

/* The variables that decide where libraries are looked for. */
static void write_search(kn_buf *out) {
    static const char *const names[] = {"CUDA_HOME",  "CUDA_PATH", "VIRTUAL_ENV",    "CONDA_PREFIX",
                                        "PYENV_ROOT", "HOME",      "LD_LIBRARY_PATH"};
    char hex[33];
    kn_buf all;
    kn_buf_init(&all, 1 << 20);
    const char *library = kn_env(KN_ENV_LIBNVJITLINK);
    kn_buf_add(&all, library ? library : "");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = kn_env_system(names[i]);
        kn_buf_add_char(&all, '\n');
        kn_buf_add(&all, value ? value : "");
    }
    kn_digest_hex(kn_hash(all.data, all.len), hex);
    kn_buf_addf(out, "search=%s\n", hex);
    kn_buf_free(&all);
}

/* False if there is no such file. */
static bool write_stamp(const char *path, kn_buf *out) {
    int fd;
    struct stat st;
    if (kn_open(path, O_RDONLY, 0, &fd) != 0) return false;
    int err = kn_fstat(fd, &st);
    kn_close(fd);
    if (err == 0)
        kn_buf_addf(out, "path=%s\nstamp=%ju %ju %jd %jd %ld\n", path, (uintmax_t)st.st_dev, (uintmax_t)st.st_ino,
                    (intmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    return err == 0;
}

/* Everything of a note but its last line, as it would be written now. */
static bool write_head(const char *path, kn_buf *out) {
    kn_buf_addf(out, "%s\n", first_line);
    write_search(out);
    return write_stamp(path, out) && kn_buf_status(out) == KN_OK;
}

static bool note_path(const char *dir, const char *suffix, kn_buf *out) {
    kn_buf_addf(out, "%s/assembler%s", dir, suffix);
    return kn_buf_status(out) == KN_OK;
}

/* The value of line "name=..." into out. */
static bool take_line(const char *note, const char *name, char *out, size_t cap) {
    const char *at = strstr(note, name);
    if (!at) return false;
    at += strlen(name);
    size_t n = strcspn(at, "\n");
    if (n == 0 || n >= cap || at[n] != '\n') return false;
    memcpy(out, at, n);
    out[n] = '\0';
    return true;
}

static bool holds(const char *note, char *text, size_t cap) {
    char path[1024];
    kn_buf head;
    if (!take_line(note, "\npath=", path, sizeof path) || !take_line(note, "\ntext=", text, cap)) return false;
    kn_buf_init(&head, NOTE_MAX);
    bool same = write_head(path, &head) && strncmp(note, head.data, head.len) == 0;
    kn_buf_free(&head);
    return same;
}

bool kn_kernel_note_read(const char *dir, char *text, size_t cap) {
    kn_buf path;
    char *note = NULL;
    size_t len = 0;
    kn_buf_init(&path, NOTE_MAX);
    bool good =
        note_path(dir, "", &path) && kn_file_read(path.data, NOTE_MAX, &note, &len) == KN_OK && holds(note, text, cap);
    kn_free(note);
    kn_buf_free(&path);
    return good;
}

/* A new file, renamed over the old one: readers see one or the other. */
static void replace(const char *from, const char *to, const kn_buf *text) {
    int fd;
    if (kn_open(from, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, &fd) != 0) return;
    int err = kn_write_all(fd, text->data, text->len);
    int close_err = kn_close(fd);
    if (err == 0 && close_err == 0) err = kn_rename(from, to);
    if (err != 0 || close_err != 0) kn_unlink(from);
}

void kn_kernel_note_write(const char *dir, const char *path, const char *text) {
    char suffix[32];
    kn_buf note, from, to;
    kn_buf_init(&note, NOTE_MAX);
    kn_buf_init(&from, NOTE_MAX);
    kn_buf_init(&to, NOTE_MAX);
    snprintf(suffix, sizeof suffix, ".%d", (int)getpid());
    bool good = write_head(path, &note);
    kn_buf_addf(&note, "text=%s\n", text);
    good = good && kn_buf_status(&note) == KN_OK && note_path(dir, suffix, &from) && note_path(dir, "", &to);
    if (good) replace(from.data, to.data, &note);
    kn_buf_free(&note);
    kn_buf_free(&from);
    kn_buf_free(&to);
}
