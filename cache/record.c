/* Recording of shapes: one line, one write, so that lines of several processes never mix. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "cache/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>

static int append_line(const char *path, const char *line) {
    size_t len = strlen(line);
    char *text = kn_malloc(len + 1);
    if (!text) return ENOMEM;
    memcpy(text, line, len + 1);
    text[len] = '\n'; /* the text's end is its length */
    int fd = -1;
    /* O_NONBLOCK: a FIFO without a reader is a failure, not a hang. */
    int err = kn_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0644, &fd);
    if (err == 0) {
        struct stat st;
        err = kn_fstat(fd, &st);
        if (err == 0) err = kn_check_file_size((uint64_t)st.st_size + len + 1);
        if (err == 0) err = kn_write_all(fd, text, len + 1);
        int closed = kn_close(fd);
        if (err == 0) err = closed;
    }
    kn_free(text);
    return err;
}

void kn_record_line(const char *path, const char *line) {
    static atomic_bool warned;
    int err = append_line(path, line);
    if (err != 0 && !atomic_exchange(&warned, true))
        kn_log(KN_LOG_WARN, "shapes are not recorded: %s: %s", path, strerror(err));
}
