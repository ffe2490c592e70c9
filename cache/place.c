/* Where the cache lives: see place.h. Never asks for a passwd entry: containers run under ids that have none. */
#include "cache/place.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { PATH_CAP = 4096 };

bool kn_place_privileged(void) {
    return getauxval(AT_SECURE) != 0 || getuid() != geteuid() || getgid() != getegid();
}

/* front + path[0..len) + back */
static kn_status join(const char *front, const char *path, size_t len, const char *back, char **out) {
    *out = NULL;
    size_t front_len = strlen(front), back_len = strlen(back), n = front_len + len + back_len;
    char *p = kn_malloc(n + 1);
    if (!p) return kn_fail(KN_E_NOMEM, "out of memory for a cache's path");
    memcpy(p, front, front_len);
    memcpy(p + front_len, path, len);
    memcpy(p + front_len + len, back, back_len + 1);
    /* No trailing slash: behind one, a symbolic link would be followed. */
    while (n > 1 && p[n - 1] == '/') p[--n] = '\0';
    *out = p;
    return KN_OK;
}

kn_status kn_place_absolute(const char *path, size_t len, char **out) {
    if (len && path[0] == '/') return join("", path, len, "", out);
    char here[PATH_CAP];
    *out = NULL;
    int err = kn_getcwd(here, sizeof here - 1);
    if (err != 0)
        return kn_fail(KN_E_IO, "the relative path \"%.*s\" has no base: %s", (int)(len < 200 ? len : 200), path,
                       strerror(err));
    size_t here_len = strlen(here);
    memcpy(here + here_len, "/", 2);
    return join(here, path, len, "", out);
}

kn_status kn_place_dir(const char *option, char **path, char *reason, size_t reason_cap, bool *wanted) {
    *path = NULL;
    *wanted = true;
    const char *dir = option && *option ? option : kn_env(KN_ENV_CACHE_DIR);
    if (dir && strcmp(dir, "off") == 0) {
        *wanted = false;
        snprintf(reason, reason_cap, "switched off");
        return KN_OK;
    }
    if (kn_place_privileged()) {
        snprintf(reason, reason_cap, "the process runs with raised privileges (setuid or setgid)");
        return KN_OK;
    }
    if (dir) {
        kn_status st = kn_place_absolute(dir, strlen(dir), path);
        if (st == KN_E_IO) snprintf(reason, reason_cap, "%s", kn_error_message());
        return st == KN_E_IO ? KN_OK : st;
    }
    const char *xdg = kn_env_system("XDG_CACHE_HOME"); /* relative ones are to be ignored, says its specification */
    if (xdg && xdg[0] == '/') return join("", xdg, strlen(xdg), "/kiln", path);
    const char *home = kn_env_system("HOME");
    if (home && home[0] == '/') return join("", home, strlen(home), "/.cache/kiln", path);
    snprintf(reason, reason_cap, "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME names a directory");
    return KN_OK;
}
