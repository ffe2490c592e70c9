/* Locks, once, and a small worker helper over pthreads. Kiln starts threads only while a call that asked for them runs
 * (the simulator's CTAs, kiln warm), never on load. */
#ifndef KN_BASE_THREAD_H
#define KN_BASE_THREAD_H

#include "base/status.h"

#include <pthread.h>

typedef pthread_mutex_t kn_mutex;
typedef pthread_cond_t kn_cond;
typedef pthread_once_t kn_once;
#define KN_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define KN_ONCE_INIT PTHREAD_ONCE_INIT

void kn_mutex_init(kn_mutex *m);
void kn_mutex_destroy(kn_mutex *m);
void kn_lock(kn_mutex *m);
void kn_unlock(kn_mutex *m);
void kn_call_once(kn_once *once, void (*fn)(void));

/** Number of processors this process may run on, at least 1. */
int kn_cpu_count(void);

/** Run fn(user, i) for i in [0, n) on up to `threads` threads, the caller's among them; indices are handed out in
 * order. Returns when all are done: KN_OK, or the failure with the lowest index (its sentence becomes the caller's).
 * After a failure no new index is started. */
kn_status kn_parallel_for(int threads, int64_t n, kn_status (*fn)(void *user, int64_t i), void *user);

#endif
