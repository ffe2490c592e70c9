/* ops/api_context: handles. A kiln_context is a number that names a row of a table, never an address: what is not a
 * live row's number is refused. A call holds a reference while it runs, so that a concurrent destroy frees nothing
 * under its feet. */
#ifndef KN_OPS_API_CONTEXT_H
#define KN_OPS_API_CONTEXT_H

#include "jit/engine.h"
#include "kiln/kiln.h"

/** The engine behind a handle, with a reference; KN_E_HANDLE, or KN_E_FORK in a child of the process that made it. */
kn_status kn_context_enter(kiln_context *handle, kn_engine **out);
void kn_context_leave(kiln_context *handle);

/* Run `expr` (a kn_status) with `e` bound to the engine of `ctx`, and give the reference back. */
#define KN_WITH_ENGINE(ctx, e, st, expr)                                                                               \
    do {                                                                                                               \
        kn_engine *e = NULL;                                                                                           \
        (st) = kn_context_enter((ctx), &e);                                                                            \
        if ((st) != KN_OK) break;                                                                                      \
        (st) = (expr);                                                                                                 \
        kn_context_leave(ctx);                                                                                         \
    } while (0)

#endif
