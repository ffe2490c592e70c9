/* Finding and publishing entries in a directory: see store_dir.h.
 *
 * Publishing: a temporary with a unique name in the subdirectory, written whole, then linked to its final name without
 * replacing (rename where links are not to be had). So a name either does not exist or leads to a complete entry, two
 * writers never meet in one file, and the loser of a race finds EEXIST, which is success. A process never re-reads what
 * it published. No fsync: a file that a power cut left half-written fails its checksum and is a miss. */
#define _GNU_SOURCE
#include "cache/store_dir.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cache/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TOUCH_AFTER_S = 3600, NAME_CAP = 64, PUBLISH_TRIES = 8 };

kn_status kn_lookup_init(kn_lookup *q, const void *key, size_t key_len, const char *assembler) {
    *q = (kn_lookup){.key = key, .key_len = key_len, .assembler = assembler};
    size_t assembler_len = strlen(assembler);
    KN_REQUIRE(key_len >= 1 && key_len <= KN_KEY_MAX, KN_E_ARG, "a cache key of %zu bytes; wanted 1 to %d", key_len,
               KN_KEY_MAX);
    KN_REQUIRE(assembler_len <= KN_ASSEMBLER_MAX, KN_E_ARG, "an assembler text of %zu bytes; wanted at most %d",
               assembler_len, KN_ASSEMBLER_MAX);
    unsigned char front[8];
    kn_put_u32(front, KN_ENTRY_FORMAT);
    kn_put_u32(front + 4, (uint32_t)key_len);
    kn_hasher *h = NULL;
    KN_TRY(kn_hasher_new(&h));
    kn_hasher_add(h, front, sizeof front);
    kn_hasher_add(h, key, key_len);
    kn_hasher_add(h, assembler, assembler_len);
    q->name_digest = kn_hasher_end(h);
    q->key_digest = kn_hash(key, key_len);
    return KN_OK;
}

static unsigned sub_of(const kn_lookup *q) {
    return (unsigned)(q->key_digest.hi >> 56);
}

static kn_status fail_errno(const char *what, const char *path, int err) {
    return kn_fail(kn_status_from_errno(err), "%s %s: %s", what, path, strerror(err));
}

/* ---- trust ------------------------------------------------------------------------------------------------------- */

kn_status kn_store_trust(const kn_store *s, const struct stat *st) {
    if (s->any_owner) return KN_OK;
    bool ours = st->st_uid == geteuid() || (s->shared && st->st_uid == 0);
    KN_REQUIRE(ours, KN_E_FORMAT, "user %u owns it, not user %u%s", (unsigned)st->st_uid, (unsigned)geteuid(),
               st->st_uid == 0 ? " (KILN_CACHE_SHARED=1 accepts root's)" : "");
    KN_REQUIRE((st->st_mode & 022) == 0, KN_E_FORMAT, "its mode %04o lets others write to it (chmod go-w)",
               (unsigned)st->st_mode & 07777);
    return KN_OK;
}

/* Open the directory `name` in `parent`; *fd -1 if it is not there. `what` is for sentences. */
static kn_status open_dir(const kn_store *s, int parent, const char *name, const char *what, int *fd) {
    struct stat st;
    int err = kn_openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, fd);
    if (err == ENOENT) return KN_OK;
    /* With O_DIRECTORY a symbolic link is ENOTDIR on Linux. */
    if (err == ELOOP || err == ENOTDIR)
        return kn_fail(KN_E_FORMAT, "%s is not a directory (symbolic links are not followed)", what);
    if (err != 0) return fail_errno("cannot open", what, err);
    kn_status status = KN_OK;
    if ((err = kn_fstat(*fd, &st)) != 0)
        status = fail_errno("cannot stat", what, err);
    else if ((status = kn_store_trust(s, &st)) != KN_OK)
        kn_error_prefix(status, "%s is not used: ", what);
    if (status != KN_OK) {
        kn_close(*fd);
        *fd = -1;
    }
    return status;
}

/* mkdir -p. A parent may well be there although mkdir on it fails in some other way than EEXIST, so only the last
 * component decides; when that lacks its parent, the first failure tells more. */
static int make_dirs(const char *path) {
    char part[4096];
    size_t len = strlen(path);
    if (len >= sizeof part) return ENAMETOOLONG;
    int err = 0, first = 0;
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        err = kn_mkdir(part, 0700);
        if (err == EEXIST) err = 0;
        if (first == 0) first = err;
    }
    return err == ENOENT ? first : err;
}

static kn_status open_or_make(const kn_store *s, int parent, const char *name, const char *what, bool create, int *fd) {
    KN_TRY(open_dir(s, parent, name, what, fd));
    if (*fd >= 0 || !create) return KN_OK;
    int err = parent == AT_FDCWD ? make_dirs(name) : kn_mkdirat(parent, name, 0700);
    if (err != 0 && err != EEXIST) return fail_errno("cannot create", what, err);
    KN_TRY(open_dir(s, parent, name, what, fd));
    return *fd >= 0 ? KN_OK : fail_errno("cannot open", what, ENOENT);
}

kn_status kn_store_open(const kn_store *s, bool create, int *fd) {
    int base = -1;
    *fd = -1;
    KN_TRY(open_or_make(s, AT_FDCWD, s->path, s->path, create, &base));
    if (base < 0) return KN_OK;
    char what[512];
    snprintf(what, sizeof what, "%s/v1", s->path);
    kn_status st = open_or_make(s, base, "v1", what, create, fd);
    kn_close(base);
    return st;
}

kn_status kn_store_open_sub(const kn_store *s, int root, unsigned sub, bool create, int *fd) {
    char name[3], what[512];
    snprintf(name, sizeof name, "%02x", sub & 0xff);
    snprintf(what, sizeof what, "%s/v1/%s", s->path, name);
    *fd = -1;
    return open_or_make(s, root, name, what, create, fd);
}

/* The subdirectory of a lookup; *dir -1 if it is not there. */
static kn_status open_place(const kn_store *s, const kn_lookup *q, bool create, int *dir) {
    int root = -1;
    *dir = -1;
    KN_TRY(kn_store_open(s, create, &root));
    if (root < 0) return KN_OK;
    kn_status st = kn_store_open_sub(s, root, sub_of(q), create, dir);
    kn_close(root);
    return st;
}

kn_status kn_store_probe(const kn_store *s) {
    int fd = -1;
    KN_TRY(kn_store_open(s, false, &fd));
    if (fd >= 0) {
        kn_close(fd);
        return KN_OK;
    }
    KN_REQUIRE(!s->read_only, KN_E_IO, "%s: no cache directory there", s->path);
    /* Not there yet: can it be made? Ask the nearest directory above that exists. */
    char path[4096];
    size_t len = strlen(s->path);
    KN_REQUIRE(len < sizeof path, KN_E_IO, "the cache directory's path has %zu bytes; wanted fewer than %zu", len,
               sizeof path);
    memcpy(path, s->path, len + 1);
    int err;
    while ((err = kn_access_write(path)) == ENOENT && len > 1) {
        while (len > 1 && path[len - 1] != '/') len--;
        while (len > 1 && path[len - 1] == '/') len--;
        path[len] = '\0';
    }
    if (err != 0) return kn_fail(KN_E_IO, "%s cannot be created: %s: %s", s->path, path, strerror(err));
    return KN_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

uint64_t kn_store_bytes(const struct stat *st) {
    uint64_t blocks = (uint64_t)st->st_blocks * 512, length = (uint64_t)st->st_size;
    return blocks > length ? blocks : length;
}

static kn_status read_open_file(const kn_store *s, int fd, const char *name, unsigned char **bytes, size_t *len,
                                struct stat *st) {
    int err = kn_fstat(fd, st);
    if (err != 0) return fail_errno("cannot stat", name, err);
    KN_REQUIRE(S_ISREG(st->st_mode), KN_E_FORMAT, "%s is not a regular file", name);
    kn_status status = kn_store_trust(s, st);
    if (status != KN_OK) return kn_error_prefix(status, "%s is not used: ", name);
    KN_REQUIRE(st->st_size >= 0 && (uint64_t)st->st_size <= KN_ENTRY_MAX, KN_E_FORMAT, "%s has %lld bytes", name,
               (long long)st->st_size);
    size_t want = (size_t)st->st_size, got = 0;
    unsigned char *data = kn_malloc(want);
    if (!data) return kn_fail(KN_E_NOMEM, "out of memory: %zu bytes for cache entry %s", want, name);
    err = kn_read_all(fd, data, want, &got);
    if (err != 0) {
        kn_free(data);
        return fail_errno("cannot read", name, err);
    }
    *bytes = data;
    *len = got;
    return KN_OK;
}

kn_status kn_store_read(const kn_store *s, int dir, const char *name, unsigned char **bytes, size_t *len,
                        struct stat *st) {
    int fd = -1;
    *bytes = NULL;
    *len = 0;
    /* O_NONBLOCK: a FIFO under that name must not stop us. */
    int err = kn_openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, &fd);
    if (err == ENOENT) return KN_OK;
    KN_REQUIRE(err != ELOOP, KN_E_FORMAT, "%s is a symbolic link", name);
    if (err != 0) return fail_errno("cannot open", name, err);
    kn_status status = read_open_file(s, fd, name, bytes, len, st);
    /* Recency is our own stamp, the modification time; a new one at most hourly. A failure costs recency alone. */
    int64_t age = kn_time_s() - (int64_t)st->st_mtime;
    if (status == KN_OK && !s->read_only && (age > TOUCH_AFTER_S || age < -TOUCH_AFTER_S)) kn_touch(fd);
    kn_close(fd);
    return status;
}

/* Move a bad file out of the way, unless another process has replaced it since `seen` was taken. */
static void quarantine(int dir, const char *name, const struct stat *seen, kn_store_events *events) {
    char bad[NAME_CAP];
    struct stat now;
    if (kn_fstatat(dir, name, &now) != 0) return;
    if (seen->st_ino != 0 && (now.st_ino != seen->st_ino || now.st_dev != seen->st_dev)) return;
    snprintf(bad, sizeof bad, "%s.bad", name);
    if (kn_renameat(dir, name, bad) == 0 || kn_unlinkat(dir, name) == 0) events->quarantined++;
}

static void note(kn_store_events *events) {
    snprintf(events->reason, sizeof events->reason, "%.255s", kn_error_message());
}

/* The entry in file `name`. `exact`: its assembler must be the lookup's too. *out NULL with KN_OK: not there. */
static kn_status load(const kn_store *s, int dir, const char *name, const kn_lookup *q, bool exact, const kn_blob **out,
                      struct stat *st) {
    unsigned char *bytes = NULL;
    size_t len = 0;
    kn_status status = kn_store_read(s, dir, name, &bytes, &len, st);
    if (status != KN_OK || !bytes) return status;
    kn_entry e;
    status = kn_entry_parse(bytes, len, &e);
    if (status == KN_OK) {
        bool same_key = e.key_len == q->key_len && memcmp(e.key, q->key, e.key_len) == 0;
        bool same_assembler =
            e.assembler_len == strlen(q->assembler) && memcmp(e.assembler, q->assembler, e.assembler_len) == 0;
        if (exact && !(same_key && same_assembler))
            status = kn_fail(KN_E_FORMAT, "cache entry %s belongs to another kernel or assembler", name);
        else if (same_key)
            status = kn_entry_blob(&e, out);
    }
    kn_free(bytes);
    return status;
}

/* Load, and turn everything but KN_E_NOMEM into a miss and an event. */
static kn_status load_or_miss(const kn_store *s, int dir, const char *name, const kn_lookup *q, bool exact,
                              const kn_blob **out, kn_store_events *events) {
    struct stat st = {0};
    kn_status status = load(s, dir, name, q, exact, out, &st);
    if (status == KN_OK || status == KN_E_NOMEM) return status;
    note(events);
    if (status == KN_E_FORMAT) {
        events->rejected++;
        if (!s->read_only) quarantine(dir, name, &st, events);
    }
    return KN_OK;
}

static kn_store_file kind_of(const char *name) {
    if (strncmp(name, ".t-", 3) == 0) return KN_FILE_TEMPORARY;
    size_t hex = strspn(name, "0123456789abcdef");
    if (hex != 32) return KN_FILE_OTHER;
    if (name[32] == '\0') return KN_FILE_ENTRY;
    return strcmp(name + 32, ".bad") == 0 ? KN_FILE_BAD : KN_FILE_OTHER;
}

/* The first entry by name whose key is right, from whatever assembler: for read-only directories. The subdirectory
 * holds one 256th of all entries, so reading the names of a few of them is all it takes. */
static kn_status find_any(const kn_store *s, int dir, const kn_lookup *q, const char *tried, const kn_blob **out,
                          kn_store_events *events) {
    char last[NAME_CAP] = "";
    while (!*out) {
        char next[NAME_CAP] = "";
        int again = -1;
        DIR *names = NULL;
        const char *name;
        int err = kn_openat(dir, ".", O_RDONLY | O_DIRECTORY, 0, &again);
        if (err == 0) err = kn_fdopendir(again, &names);
        while (err == 0 && (err = kn_readdir(names, &name)) == 0 && name)
            if (kind_of(name) == KN_FILE_ENTRY && strcmp(name, last) > 0 && (!next[0] || strcmp(name, next) < 0))
                memcpy(next, name, 33);
        kn_closedir(names);
        if (err != 0) {
            fail_errno("cannot list", s->path, err);
            note(events);
            return KN_OK;
        }
        if (!next[0]) return KN_OK;
        memcpy(last, next, sizeof last);
        if (strcmp(next, tried) != 0) KN_TRY(load_or_miss(s, dir, next, q, false, out, events));
    }
    return KN_OK;
}

kn_status kn_store_find(const kn_store *s, const kn_lookup *q, const kn_blob **out, kn_store_events *events) {
    int dir = -1;
    *out = NULL;
    kn_status status = open_place(s, q, false, &dir);
    if (status != KN_OK) {
        note(events);
        return status == KN_E_NOMEM ? status : KN_OK;
    }
    if (dir < 0) return KN_OK;
    char name[33];
    kn_digest_hex(q->name_digest, name);
    status = load_or_miss(s, dir, name, q, true, out, events);
    if (status == KN_OK && !*out && s->read_only) status = find_any(s, dir, q, name, out, events);
    kn_close(dir);
    return status;
}

/* ---- publishing -------------------------------------------------------------------------------------------------- */

/* Write `bytes` to a new file with a unique name, which is left in `name`; on failure nothing stays. */
static kn_status write_temporary(int dir, const void *bytes, size_t len, char name[NAME_CAP], uint64_t *on_disk) {
    static atomic_uint counter;
    snprintf(name, NAME_CAP, "an entry of %zu bytes", len);
    int fd = -1, err = kn_check_file_size(len);
    if (err == 0) err = EEXIST;
    for (int i = 0; i < PUBLISH_TRIES && err == EEXIST; i++) {
        snprintf(name, NAME_CAP, ".t-%ld-%" PRIx64 "-%x", (long)getpid(), kn_clock_ns(), atomic_fetch_add(&counter, 1));
        err = kn_openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, &fd);
    }
    if (err != 0) return fail_errno("cannot create", name, err);
    err = kn_write_all(fd, bytes, len);
    struct stat st = {0};
    if (err == 0 && kn_fstat(fd, &st) == 0) *on_disk = kn_store_bytes(&st);
    int closed = kn_close(fd);
    if (err == 0) err = closed; /* NFS reports a full disk here */
    if (err == 0) return KN_OK;
    kn_unlinkat(dir, name);
    return fail_errno("cannot write", name, err);
}

/* Give the temporary its final name without replacing; 0 or EEXIST if a complete file stands there now. */
static int put_in_place(int dir, const char *temporary, const char *name) {
    int err = kn_linkat(dir, temporary, name);
    if (err == 0 || err == EEXIST) {
        kn_unlinkat(dir, temporary); /* one that stays is swept by eviction */
        return err;
    }
    /* No hard links here. A plain rename may replace an equal entry, which is atomic as well. */
    err = kn_rename_new(dir, temporary, name);
    if (err == EINVAL || err == ENOSYS || err == EOPNOTSUPP) err = kn_renameat(dir, temporary, name);
    if (err != 0) kn_unlinkat(dir, temporary);
    return err;
}

kn_status kn_store_publish(const kn_store *s, const kn_lookup *q, const void *bytes, size_t len,
                           uint64_t *bytes_on_disk) {
    int dir = -1;
    char temporary[NAME_CAP], name[33];
    *bytes_on_disk = 0;
    KN_TRY(open_place(s, q, true, &dir));
    kn_digest_hex(q->name_digest, name);
    uint64_t on_disk = len;
    kn_status status = write_temporary(dir, bytes, len, temporary, &on_disk);
    if (status == KN_OK) {
        int err = put_in_place(dir, temporary, name);
        if (err == 0)
            *bytes_on_disk = on_disk;
        else if (err != EEXIST)
            status = fail_errno("cannot publish", name, err);
    }
    kn_close(dir);
    if (status != KN_OK) kn_error_prefix(status, "%s: ", s->path);
    return status;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

static kn_status walk_sub(const kn_store *s, int root, unsigned sub, kn_store_file_visit *visit, void *user) {
    int dir = -1, list = -1;
    kn_status status = kn_store_open_sub(s, root, sub, false, &dir);
    if (status != KN_OK || dir < 0) return status;
    DIR *names = NULL;
    const char *name = NULL;
    int err = kn_openat(dir, ".", O_RDONLY | O_DIRECTORY, 0, &list);
    if (err == 0) err = kn_fdopendir(list, &names);
    while (status == KN_OK && err == 0 && (err = kn_readdir(names, &name)) == 0 && name) {
        kn_store_file kind = kind_of(name);
        if (kind != KN_FILE_OTHER) status = visit(user, dir, sub, name, kind);
    }
    if (err != 0) status = fail_errno("cannot list", s->path, err);
    kn_closedir(names);
    kn_close(dir);
    return status;
}

kn_status kn_store_walk(const kn_store *s, kn_store_file_visit *visit, void *user) {
    int root = -1;
    kn_status status = kn_store_open(s, false, &root);
    if (status != KN_OK || root < 0) return status;
    DIR *names = NULL;
    const char *name = NULL;
    int list = -1;
    int err = kn_openat(root, ".", O_RDONLY | O_DIRECTORY, 0, &list);
    if (err == 0) err = kn_fdopendir(list, &names);
    while (status == KN_OK && err == 0 && (err = kn_readdir(names, &name)) == 0 && name) {
        unsigned sub;
        char again[3];
        if (strlen(name) != 2 || sscanf(name, "%2x", &sub) != 1) continue;
        snprintf(again, sizeof again, "%02x", sub & 0xff);
        if (strcmp(again, name) == 0) status = walk_sub(s, root, sub, visit, user);
    }
    if (err != 0) status = fail_errno("cannot list", s->path, err);
    kn_closedir(names);
    kn_close(root);
    return status;
}
