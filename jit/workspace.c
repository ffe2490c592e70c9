/* Workspaces of an engine: one buffer a stream, held under its own lock for a whole program, so that two threads on one
 * stream do not share it. Grown on the stream: what runs there goes on using the old memory until it is done. */
#include "base/alloc.h"
#include "base/thread.h"
#include "jit/launch.h"

enum { MAX_BUFFERS = 64 }; /* streams come and go; the buffer that was used longest ago is given up beyond that */

struct kn_workspace {
    struct kn_workspace *next;
    struct kn_workspaces *owner;
    uint64_t stream_id, used;
    int users; /* under the owner's lock */
    kn_mutex lock;
    void *data;
    uint64_t bytes;
};

typedef struct kn_workspaces {
    kn_mutex lock;
    kn_workspace *first;
    int count;
    uint64_t clock;
} kn_workspaces;

kn_status kn_workspaces_new(kn_workspaces **out) {
    KN_TRY(KN_NEW(out, 1, "a list of workspaces"));
    kn_mutex_init(&(*out)->lock);
    return KN_OK;
}

static void free_workspace(kn_engine *e, kn_workspace *w) {
    if (w->data) (void)e->backend->ops->free(e->backend, w->data); /* a context that is gone took its memory along */
    kn_mutex_destroy(&w->lock);
    kn_free(w);
}

void kn_workspaces_free(kn_engine *e) {
    kn_workspaces *all = e->workspaces;
    if (!all) return;
    while (all->first) {
        kn_workspace *w = all->first;
        all->first = w->next;
        free_workspace(e, w);
    }
    kn_mutex_destroy(&all->lock);
    kn_free(all);
    e->workspaces = NULL;
}

/* Unlink the unused buffer that was used longest ago, if there are too many. The lock is held. */
static kn_workspace *take_surplus(kn_workspaces *all) {
    if (all->count <= MAX_BUFFERS) return NULL;
    kn_workspace **oldest = NULL;
    for (kn_workspace **link = &all->first; *link; link = &(*link)->next)
        if ((*link)->users == 0 && (!oldest || (*link)->used < (*oldest)->used)) oldest = link;
    if (!oldest) return NULL;
    kn_workspace *w = *oldest;
    *oldest = w->next;
    all->count--;
    return w;
}

static kn_status find(kn_engine *e, uint64_t stream_id, kn_workspace **out) {
    kn_workspaces *all = e->workspaces;
    kn_status st = KN_OK;
    kn_lock(&all->lock);
    kn_workspace *w = all->first;
    while (w && w->stream_id != stream_id) w = w->next;
    if (!w) {
        st = KN_NEW(&w, 1, "a workspace");
        if (st == KN_OK) {
            kn_mutex_init(&w->lock);
            w->stream_id = stream_id;
            w->owner = all;
            w->next = all->first;
            all->first = w;
            all->count++;
        }
    }
    if (w) {
        w->users++;
        w->used = ++all->clock;
    }
    kn_workspace *surplus = take_surplus(all);
    kn_unlock(&all->lock);
    if (surplus) free_workspace(e, surplus);
    *out = w;
    return st;
}

static kn_status grow(kn_engine *e, kn_workspace *w, void *stream, uint64_t bytes) {
    void *data = NULL;
    KN_TRY(e->backend->ops->alloc_async(e->backend, bytes, stream, &data));
    if (w->data) (void)e->backend->ops->free_async(e->backend, w->data, stream);
    w->data = data;
    w->bytes = bytes;
    return KN_OK;
}

kn_status kn_workspace_take(kn_engine *e, void *stream, uint64_t bytes, kn_workspace **out, void **data) {
    uint64_t id = 0;
    kn_workspace *w;
    KN_TRY(e->backend->ops->stream_id(e->backend, stream, &id));
    KN_TRY(find(e, id, &w));
    kn_lock(&w->lock);
    kn_status st = w->bytes < bytes ? grow(e, w, stream, bytes) : KN_OK;
    if (st != KN_OK) {
        kn_workspace_give(w);
        return st;
    }
    *out = w;
    *data = w->data;
    return KN_OK;
}

void kn_workspace_give(kn_workspace *w) {
    kn_workspaces *all = w->owner;
    kn_unlock(&w->lock);
    kn_lock(&all->lock);
    w->users--;
    kn_unlock(&all->lock);
}
