/* Logging. A library is mute: only level 1 (failures that are not returned, warnings) is on by default. Levels are
 * defined by how often a line comes: 1 exceptional, 2 once per plan, 3 once per launch, 4 everything. */
#ifndef KN_BASE_LOG_H
#define KN_BASE_LOG_H

enum { KN_LOG_WARN = 1, KN_LOG_PLAN = 2, KN_LOG_LAUNCH = 3, KN_LOG_ALL = 4 };

/** Current level, from KILN_LOG at the first use. Leaves the thread's error sentence alone, as all of this file does.
 */
int kn_log_level(void);
/** Overrides KILN_LOG; a negative one has it read again. */
void kn_log_set_level(int level);

/** Lines go to `fn` instead of the file; NULL restores it. The callback may come from any thread and must not call
 *  Kiln. Set it before the first context is created. */
typedef void kn_log_fn(void *user, int level, const char *line);
void kn_log_set_callback(kn_log_fn *fn, void *user);

void kn_log_write(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define kn_log(level, ...)                                                                                             \
    do {                                                                                                               \
        if ((level) <= kn_log_level()) kn_log_write((level), __VA_ARGS__);                                             \
    } while (0)

#endif
