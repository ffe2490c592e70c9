/* jit/tuning: measured choices between the ways in which a product may be made, from a file that `kiln tune` wrote. A
 * context reads the file that it is told (an option, KILN_TUNING) when it is made, and none otherwise. What is in it
 * reaches kernels, and so cache keys, only as the parameters that it chose.
 *
 *     kiln-tuning 1
 *     gpu NVIDIA H200
 *     driver 580.159.03
 *     date 2026-11-29T22:00:00Z
 *     product wgmma:bf16:k.mn:store.bf16:256x4096x28672 pingpong-128x128-swap # 93.1 us; planned ...
 *
 * The first line says what the file is; `gpu` must be the context's device. A `product` line has the product's key and
 * the chosen candidate, as `kiln plan --explain` shows them. `#` starts a comment. */
#ifndef KN_JIT_TUNING_H
#define KN_JIT_TUNING_H

#include "base/status.h"

#include <stddef.h>

typedef struct kn_tuning kn_tuning;

/** Read `path` for a device named `gpu`. KN_E_IO, KN_E_FORMAT and KN_E_DEVICE name file and line. */
kn_status kn_tuning_read(const char *path, const char *gpu, kn_tuning **out);
void kn_tuning_free(kn_tuning *t); /* NULL is fine */
/** The candidate that the file chooses for a product, or NULL. `t` may be NULL. */
const char *kn_tuning_find(const kn_tuning *t, const char *key);
/** "FILE:LINE" of that choice, for error messages. */
void kn_tuning_where(const kn_tuning *t, const char *key, char *out, size_t cap);

#endif
