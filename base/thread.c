/* Locks and the parallel loop: see thread.h. */
#define _GNU_SOURCE
#include "base/thread.h"

#include "base/alloc.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A lock call fails only on misuse, which is a bug in Kiln: stop at once. */
static void must(int rc) {
    if (rc != 0) abort();
}

void kn_mutex_init(kn_mutex *m) {
    must(pthread_mutex_init(m, NULL));
}
void kn_mutex_destroy(kn_mutex *m) {
    must(pthread_mutex_destroy(m));
}
void kn_lock(kn_mutex *m) {
    must(pthread_mutex_lock(m));
}
void kn_unlock(kn_mutex *m) {
    must(pthread_mutex_unlock(m));
}
void kn_call_once(kn_once *once, void (*fn)(void)) {
    must(pthread_once(once, fn));
}

int kn_cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

typedef struct loop {
    kn_status (*fn)(void *user, int64_t i);
    void *user;
    int64_t n;
    atomic_int_fast64_t next;
    atomic_bool stop;
    kn_mutex lock; /* guards the three below */
    kn_status status;
    int64_t failed_at;
    char message[KN_ERROR_CAP];
} loop;

static void *loop_worker(void *arg) {
    loop *l = arg;
    for (;;) {
        int64_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->n || atomic_load(&l->stop)) return NULL;
        kn_status st = l->fn(l->user, i);
        if (st == KN_OK) continue;
        kn_lock(&l->lock);
        if (l->status == KN_OK || i < l->failed_at) {
            l->status = st;
            l->failed_at = i;
            memcpy(l->message, kn_error_message(), strlen(kn_error_message()) + 1);
        }
        kn_unlock(&l->lock);
        atomic_store(&l->stop, true);
    }
}

kn_status kn_parallel_for(int threads, int64_t n, kn_status (*fn)(void *user, int64_t i), void *user) {
    if (threads > n) threads = (int)n;
    if (threads <= 1) {
        for (int64_t i = 0; i < n; i++) KN_TRY(fn(user, i));
        return KN_OK;
    }
    loop *l = NULL;
    pthread_t *ids = NULL;
    KN_TRY(KN_NEW(&l, 1, "a parallel loop"));
    kn_status st = KN_NEW(&ids, threads, "a parallel loop's threads");
    if (st != KN_OK) {
        kn_free(l);
        return st;
    }
    l->fn = fn;
    l->user = user;
    l->n = n;
    kn_mutex_init(&l->lock);
    int started = 0;
    /* A thread that cannot be started only makes the loop slower: the caller's own thread does the work. */
    while (started < threads - 1 && pthread_create(&ids[started], NULL, loop_worker, l) == 0) started++;
    loop_worker(l);
    for (int i = 0; i < started; i++) must(pthread_join(ids[i], NULL));
    st = l->status == KN_OK ? KN_OK : kn_fail(l->status, "%s", l->message);
    kn_mutex_destroy(&l->lock);
    kn_free(ids);
    kn_free(l);
    return st;
}
