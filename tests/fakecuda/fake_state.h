/* What the files of the fake driver share: script, log, live objects, the calling thread's contexts. */
#ifndef KN_TESTS_FAKE_STATE_H
#define KN_TESTS_FAKE_STATE_H

#include "fakecuda/fake_cuda.h"

#include <stdbool.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500 };
enum { MAX_DEVICES = 4 };

typedef struct fake_device {
    int major, minor, multiprocessors, smem;
} fake_device;

typedef struct kn_cu_context_st {
    int device;
    unsigned long long id;
    long references; /* of a primary context; 0 = inactive */
    bool primary, alive;
} fake_context;

typedef enum fake_kind { MEMORY, HOST, MODULE, LINK, STREAM, EVENT, CONTEXT } fake_kind;

typedef struct fake_object {
    fake_kind kind;
    char *address;
    size_t bytes;
    fake_context *context;
    unsigned long long context_id;
    void *block; /* that `address` lies in */
    void *extra; /* freed with it */
    struct fake_object *next;
} fake_object;

typedef struct fake_setup {
    int version, devices, init_code;
    fake_device device[MAX_DEVICES];
    bool stub, deinit, pools, pageable, link_log;
} fake_setup;

extern fake_setup fake;

/** Begin a call: log it, count it, fail it if the script says so. What it returns other than OK the call returns. */
int fake_begin(const char *name);
/** ... of a function that is not allowed while some thread captures in global mode, unless this thread is relaxed. */
int fake_begin_unsafe(const char *name);
#define BEGIN(name)                                                                                                    \
    do {                                                                                                               \
        int begin_rc_ = fake_begin(name);                                                                              \
        if (begin_rc_ != OK) return begin_rc_;                                                                         \
    } while (0)
#define BEGIN_UNSAFE(name)                                                                                             \
    do {                                                                                                               \
        int begin_rc_ = fake_begin_unsafe(name);                                                                       \
        if (begin_rc_ != OK) return begin_rc_;                                                                         \
    } while (0)

void fake_logf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/** Note a misuse; returns `rc`. */
int fake_wrong(int rc, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool fake_is_initialised(void);
void fake_set_initialised(void);

/** The calling thread's context, NULL without one. */
fake_context *fake_current(void);
kn_cu_enum *fake_capture_mode(void); /* of the calling thread */

/** A live object of `bytes` (zeroed) in the current context; NULL only when out of memory. */
void *fake_new(fake_kind kind, size_t bytes);
/** The object that `address` points into; NULL if there is none. */
fake_object *fake_find(fake_kind kind, const void *address);
/** Check that `address` is a live object of the current context. */
int fake_check(fake_kind kind, const void *address, const char *what);
int fake_delete(fake_kind kind, void *address, const char *what);
/** All objects of a context, with it. */
void fake_delete_context(fake_context *c);

bool fake_stream_capturing(kn_cu_stream stream);
extern void (*fake_launch_hook)(const char *kernel, const kn_cu_launch_config *, void **params);
void fake_note_reference(long delta); /* primary context references count as live objects */

#endif
