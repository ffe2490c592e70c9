/* File calls: see file.h. */
#define _GNU_SOURCE
#include "base/file.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* An injected fault looks like a failing disk. */
#define SITE()                                                                                                         \
    do {                                                                                                               \
        if (kn_fault_now()) return EIO;                                                                                \
    } while (0)

int kn_openat(int dir, const char *path, int flags, unsigned mode, int *fd) {
    *fd = -1;
    SITE();
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
    return kn_fault_now() ? EIO : rc;
}

int kn_read_all(int fd, void *data, size_t n, size_t *got) {
    *got = 0;
    SITE();
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
    SITE();
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
    SITE();
    return fsync(fd) == 0 ? 0 : errno;
}

int kn_fstat(int fd, struct stat *st) {
    SITE();
    return fstat(fd, st) == 0 ? 0 : errno;
}

int kn_lstat(const char *path, struct stat *st) {
    SITE();
    return lstat(path, st) == 0 ? 0 : errno;
}

int kn_mkdir(const char *path, unsigned mode) {
    SITE();
    return mkdir(path, (mode_t)mode) == 0 ? 0 : errno;
}

int kn_link(const char *from, const char *to) {
    SITE();
    return link(from, to) == 0 ? 0 : errno;
}

int kn_rename(const char *from, const char *to) {
    SITE();
    return rename(from, to) == 0 ? 0 : errno;
}

int kn_unlink(const char *path) {
    SITE();
    return unlink(path) == 0 ? 0 : errno;
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
