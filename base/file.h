/* File calls, each a thin wrapper with EINTR handled and a fault-injection site (see alloc.h), returning 0 or an errno
 * value so that callers can decide which errors matter. */
#ifndef KN_BASE_FILE_H
#define KN_BASE_FILE_H

#include "base/status.h"

#include <dirent.h>
#include <stdbool.h>
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
int kn_rename(const char *from, const char *to);
int kn_unlink(const char *path);

int kn_pread_all(int fd, void *data, size_t n, uint64_t offset, size_t *got); /* until n bytes or the end */
int kn_fstatat(int dir, const char *name, struct stat *st);                   /* of a symbolic link itself */
int kn_mkdirat(int dir, const char *name, unsigned mode);
int kn_linkat(int dir, const char *from, const char *to);
int kn_renameat(int dir, const char *from, const char *to);
int kn_rename_new(int dir, const char *from, const char *to); /* EEXIST instead of replacing; EINVAL where unknown */
int kn_unlinkat(int dir, const char *name);
int kn_touch(int fd);                  /* modification time = now */
int kn_access_write(const char *path); /* may this process create files in the directory `path`? */
int kn_getcwd(char *path, size_t cap);
/** EFBIG if this process may not write files of `size` bytes (RLIMIT_FSIZE): trying would kill it with SIGXFSZ. */
int kn_check_file_size(uint64_t size);

/* Names in a directory, "." and ".." among them. kn_fdopendir takes fd, also on failure; *name is NULL at the end. */
int kn_fdopendir(int fd, DIR **out);
int kn_readdir(DIR *dir, const char **name);
void kn_closedir(DIR *dir); /* NULL is fine */

/** Whole file into *data (kn_free), a NUL behind it; refuses files over `cap` bytes. Sentences name the path. */
kn_status kn_file_read(const char *path, size_t cap, char **data, size_t *len);
/** Create or replace `path` (mode 0644 before the umask). */
kn_status kn_file_write(const char *path, const void *data, size_t len);

#ifdef KN_FAULT_INJECTION
/** From now on the n-th call (1 = the next one; 0 = every one) of the system call `call` ("linkat", "openat", "write",
 *  "readdir" and so on, as file.c names them) fails with `err`. Rules add up, at most 8; `call` must outlive them. */
void kn_fault_force(const char *call, uint64_t n, int err);
void kn_fault_force_clear(void);
#endif

#endif
