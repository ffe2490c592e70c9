/* File calls: see file.h. */
#define _GNU_SOURCE
#include "base/file.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef KN_FAULT_INJECTION
#include "base/thread.h"

static struct force_rule {
    const char *call;
    uint64_t left; /* calls until the one that fails; 0: all of them */
    int err;
    bool spent;
} rules[8];
static int rule_count;
static kn_mutex rules_lock = KN_MUTEX_INIT;

void kn_fault_force(const char *call, uint64_t n, int err) {
    kn_lock(&rules_lock);
    if (rule_count < 8) rules[rule_count++] = (struct force_rule){call, n, err, false};
    kn_unlock(&rules_lock);
}

void kn_fault_force_clear(void) {
    kn_lock(&rules_lock);
    rule_count = 0;
    kn_unlock(&rules_lock);
}

/* The error that this call must fail with, or 0. A counted fault (kn_fault_arm) looks like a failing disk. */
static int site(const char *call) {
    int err = 0;
    kn_lock(&rules_lock);
    for (int i = 0; i < rule_count; i++) {
        struct force_rule *r = &rules[i];
        if (r->spent || strcmp(r->call, call) != 0) continue;
        if (r->left > 1) {
            r->left--;
        } else {
            r->spent = r->left == 1;
            if (err == 0) err = r->err;
        }
    }
    kn_unlock(&rules_lock);
    if (kn_fault_now() && err == 0) err = EIO;
    return err;
}
#else
#define site(call) 0
#endif

/* The failing call is never made. */
#define SITE(call)                                                                                                     \
    do {                                                                                                               \
        int forced = site(call);                                                                                       \
        if (forced != 0) return forced;                                                                                \
    } while (0)

int kn_openat(int dir, const char *path, int flags, unsigned mode, int *fd) {
    *fd = -1;
    SITE("openat");
    do {
        *fd = openat(dir, path, flags | O_CLOEXEC, (mode_t)mode);
    } while (*fd < 0 && errno == EINTR);
    return *fd < 0 ? errno : 0;
}

int kn_open(const char *path, int flags, unsigned mode, int *fd) {
    return kn_openat(AT_FDCWD, path, flags, mode, fd);
}

int kn_close(int fd) {
    if (fd < 0) return 0;
    /* Closed even when a fault is injected: a failing close has released the descriptor. */
    int rc = close(fd) == 0 || errno == EINTR ? 0 : errno;
    int forced = site("close");
    return forced != 0 ? forced : rc;
}

int kn_read_all(int fd, void *data, size_t n, size_t *got) {
    *got = 0;
    SITE("read");
    while (*got < n) {
        ssize_t k = read(fd, (char *)data + *got, n - *got);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return errno;
        if (k == 0) break;
        *got += (size_t)k;
    }
    return 0;
}

int kn_write_all(int fd, const void *data, size_t n) {
    SITE("write");
    for (size_t done = 0; done < n;) {
        ssize_t k = write(fd, (const char *)data + done, n - done);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return errno;
        if (k == 0) return ENOSPC;
        done += (size_t)k;
    }
    return 0;
}

int kn_fsync(int fd) {
    SITE("fsync");
    return fsync(fd) == 0 ? 0 : errno;
}

int kn_fstat(int fd, struct stat *st) {
    SITE("fstat");
    return fstat(fd, st) == 0 ? 0 : errno;
}

int kn_lstat(const char *path, struct stat *st) {
    SITE("lstat");
    return lstat(path, st) == 0 ? 0 : errno;
}

int kn_mkdir(const char *path, unsigned mode) {
    SITE("mkdir");
    return mkdir(path, (mode_t)mode) == 0 ? 0 : errno;
}

int kn_rename(const char *from, const char *to) {
    SITE("rename");
    return rename(from, to) == 0 ? 0 : errno;
}

int kn_unlink(const char *path) {
    SITE("unlink");
    return unlink(path) == 0 ? 0 : errno;
}

int kn_pread_all(int fd, void *data, size_t n, uint64_t offset, size_t *got) {
    *got = 0;
    SITE("pread");
    while (*got < n) {
        ssize_t k = pread(fd, (char *)data + *got, n - *got, (off_t)(offset + *got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return errno;
        if (k == 0) break;
        *got += (size_t)k;
    }
    return 0;
}

int kn_fstatat(int dir, const char *name, struct stat *st) {
    SITE("fstatat");
    return fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

int kn_mkdirat(int dir, const char *name, unsigned mode) {
    SITE("mkdirat");
    return mkdirat(dir, name, (mode_t)mode) == 0 ? 0 : errno;
}

int kn_linkat(int dir, const char *from, const char *to) {
    SITE("linkat");
    return linkat(dir, from, dir, to, 0) == 0 ? 0 : errno;
}

int kn_renameat(int dir, const char *from, const char *to) {
    SITE("renameat");
    return renameat(dir, from, dir, to) == 0 ? 0 : errno;
}

int kn_rename_new(int dir, const char *from, const char *to) {
    SITE("renameat2");
    return renameat2(dir, from, dir, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
}

int kn_unlinkat(int dir, const char *name) {
    SITE("unlinkat");
    return unlinkat(dir, name, 0) == 0 ? 0 : errno;
}

int kn_touch(int fd) {
    SITE("futimens");
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    return futimens(fd, times) == 0 ? 0 : errno;
}

int kn_access_write(const char *path) {
    SITE("faccessat");
    return faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

int kn_getcwd(char *path, size_t cap) {
    SITE("getcwd");
    return getcwd(path, cap) ? 0 : errno;
}

int kn_check_file_size(uint64_t size) {
    SITE("getrlimit");
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return errno;
    return limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur ? EFBIG : 0;
}

int kn_fdopendir(int fd, DIR **out) {
    int err = site("fdopendir");
    *out = err == 0 ? fdopendir(fd) : NULL;
    if (*out) return 0;
    if (err == 0) err = errno;
    close(fd);
    return err;
}

int kn_readdir(DIR *dir, const char **name) {
    *name = NULL;
    SITE("readdir");
    errno = 0;
    struct dirent *e = readdir(dir);
    if (!e) return errno;
    *name = e->d_name;
    return 0;
}

void kn_closedir(DIR *dir) {
    if (dir) closedir(dir);
}

kn_status kn_file_read(const char *path, size_t cap, char **data, size_t *len) {
    *data = NULL;
    *len = 0;
    int fd = -1, err;
    struct stat st;
    kn_status status = KN_OK;
    char *bytes = NULL;
    size_t got = 0;
    if ((err = kn_open(path, O_RDONLY, 0, &fd)) != 0 || (err = kn_fstat(fd, &st)) != 0) goto io;
    if (st.st_size < 0 || (uint64_t)st.st_size > cap) {
        status = kn_fail(KN_E_FORMAT, "%s: %lld bytes; at most %zu are read", path, (long long)st.st_size, cap);
        goto out;
    }
    bytes = kn_malloc((size_t)st.st_size + 1);
    if (!bytes) {
        status = kn_fail(KN_E_NOMEM, "%s: out of memory: %lld bytes", path, (long long)st.st_size);
        goto out;
    }
    if ((err = kn_read_all(fd, bytes, (size_t)st.st_size, &got)) != 0) goto io;
    bytes[got] = '\0';
    *data = bytes;
    *len = got;
    bytes = NULL;
    goto out;
io:
    status = kn_fail(kn_status_from_errno(err), "%s: %s", path, strerror(err));
out:
    kn_free(bytes);
    if (fd >= 0) kn_close(fd);
    return status;
}

kn_status kn_file_write(const char *path, const void *data, size_t len) {
    int fd = -1;
    int err = kn_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644, &fd);
    if (err == 0) {
        err = kn_write_all(fd, data, len);
        int closed = kn_close(fd);
        if (err == 0) err = closed;
    }
    if (err != 0) return kn_fail(kn_status_from_errno(err), "%s: %s", path, strerror(err));
    return KN_OK;
}
