/* jit/launch: walks a plan's launches on a stream. The same walk on every backend. */
#ifndef KN_JIT_LAUNCH_H
#define KN_JIT_LAUNCH_H

#include "jit/plan.h"

/** Enqueue all launches of `plan` for the tensors of `call`. `workspace` has at least plan->workspace_bytes. */
kn_status kn_launch_plan(kn_engine *e, kn_plan *plan, const kn_call *call, void *workspace, void *stream);

/* Encoded tensor maps by address and strides, so that a repeated call encodes none. */
typedef struct kn_map_cache kn_map_cache;
kn_status kn_map_cache_new(uint32_t n_maps, kn_map_cache **out);
void kn_map_cache_free(kn_map_cache *c); /* NULL is fine */

/* ---- workspaces of an engine: one buffer a stream ---------------------------------------------------------------- */

typedef struct kn_workspace kn_workspace;

kn_status kn_workspaces_new(struct kn_workspaces **out);
void kn_workspaces_free(kn_engine *e);
/** Lock this stream's buffer, with at least `bytes` bytes, for a whole program. Unlock it with kn_workspace_give. */
kn_status kn_workspace_take(kn_engine *e, void *stream, uint64_t bytes, kn_workspace **out, void **data);
void kn_workspace_give(kn_workspace *w);

#endif
