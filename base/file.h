/* File calls, each a thin wrapper with EINTR handled and a fault-injection site (see alloc.h), returning 0 or an errno
 * value so that callers can decide which errors matter. */
#ifndef KN_BASE_FILE_H
#define KN_BASE_FILE_H

#include "base/status.h"

#include <stddef.h>
#include <sys/stat.h>

int kn_open(const char *path, int flags, unsigned mode, int *fd); /* O_CLOEXEC is added */
int kn_openat(int dir, const char *path, int flags, unsigned mode, int *fd);
int kn_close(int fd);
int kn_read_all(int fd, void *data, size_t n, size_t *got); /* until n bytes or the end */
int kn_write_all(int fd, const void *data, size_t n);
int kn_fsync(int fd);
int kn_fstat(int fd, struct stat *st);
int kn_lstat(const char *path, struct stat *st);
int kn_mkdir(const char *path, unsigned mode);
int kn_link(const char *from, const char *to);
int kn_rename(const char *from, const char *to);
int kn_unlink(const char *path);

/** Whole file into *data (kn_free), a NUL behind it; refuses files over `cap` bytes. Sentences name the path. */
kn_status kn_file_read(const char *path, size_t cap, char **data, size_t *len);
/** Create or replace `path` (mode 0644 before the umask). */
kn_status kn_file_write(const char *path, const void *data, size_t len);

#endif
