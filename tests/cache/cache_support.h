/* What the cache's tests share: a directory of their own that goes away with them, counted warnings, keys and payloads
 * by number. */
#ifndef KN_TESTS_CACHE_SUPPORT_H
#define KN_TESTS_CACHE_SUPPORT_H

#include "cache/cache.h"
#include "support/suite.h"

#include <stdbool.h>
#include <stddef.h>

/** A test case whose tests each begin with an empty directory of their own and a watched log. The directories are
 *  removed when all have ended, by the process that runs the tests: also after a crash or a change of user. */
TCase *scratch_case(Suite *s, const char *name);
/** "<scratch>/<name>", in one of a few static buffers. */
const char *in_scratch(const char *name);
void remove_tree(const char *path);

/** From now on log lines are kept, not written; the number of those of level 1. */
void watch_log(void);
int warnings(void);
const char *last_warning(void);

/** A key with one number in it. Free it with kn_key_free. */
kn_key key_of(int number);
/** Deterministic bytes that do not compress much; the caller's buffer. */
void fill_payload(unsigned char *p, size_t len, unsigned seed);

/** Open a cache on `dir`, without read-only layers. */
kn_cache *open_cache(const char *dir);
/** Publish key number `n` with payload seed `n` of `len` bytes and metadata "n=<n>". */
void publish_number(kn_cache *c, int n, size_t len);
/** Look key number `n` up; checks the payload if it is there. */
bool has_number(kn_cache *c, int n, size_t len);
kn_cache_stats stats_of(kn_cache *c);

/** Path of the one file of the cache directory `dir` whose name ends in `suffix`; fails the test if there is not
 *  exactly one. */
const char *only_file(const char *dir, const char *suffix);
/** Number of files below `dir` whose name contains `part`. */
int count_files(const char *dir, const char *part);
/** Bytes below `dir`, as du counts them. */
size_t disk_usage(const char *dir);
/** The whole file, malloc'd. */
unsigned char *slurp(const char *path, size_t *len);
void spew(const char *path, const void *data, size_t len);

extern const char assembler_a[], assembler_b[];

/** KN_LONG=1: run the long form of a torture test. */
bool run_long(void);
/** Become user 12345, who has no passwd entry and no groups. False if the process may not (not root). */
bool become_nobody(void);
/** The process runs as root. */
bool is_root(void);

#endif
