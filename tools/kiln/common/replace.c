/* Files that are replaced as a whole: see replace.h. */
#include "common/replace.h"

#include "common/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int failed(const char *path) {
    return kt_fail(KT_ENVIRONMENT, "cannot write %s: %s", path, errno ? strerror(errno) : "not all of it");
}

int kt_replace_begin(kt_replacement *r, const char *path) {
    struct stat st;
    bool special = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    char *target = special ? kt_copy(path) : kt_format("%s.%ld.tmp", path, (long)getpid());
    FILE *file = fopen(target, special ? "wbe" : "wbex");
    *r = (kt_replacement){file, kt_copy(path), target};
    if (file) return KT_GOOD;
    int code = failed(path);
    free(r->path);
    free(r->target);
    return code;
}

int kt_replace_end(kt_replacement *r, bool good) {
    bool special = strcmp(r->path, r->target) == 0;
    if (good) errno = 0;
    good = !ferror(r->file) && good;
    if (fclose(r->file) != 0) good = false;
    if (good && !special && rename(r->target, r->path) != 0) good = false;
    int code = good ? KT_GOOD : failed(r->path);
    if (!good && !special) unlink(r->target);
    free(r->path);
    free(r->target);
    return code;
}
