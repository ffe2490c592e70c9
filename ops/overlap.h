/* ops/overlap: do two strided tensors share an element? Exact for views of one parent (equal strides where both have
 * more than one index); otherwise tensors whose address ranges meet count as overlapping. */
#ifndef KN_OPS_OVERLAP_H
#define KN_OPS_OVERLAP_H

#include "jit/program.h"

#include <stdbool.h>

bool kn_tensors_overlap(const kn_tensor *a, const kn_tensor *b);
/** Same address, element type, shape and strides. */
bool kn_tensors_identical(const kn_tensor *a, const kn_tensor *b);
/** True if two indices of `t` may share an element: a stride that is smaller than what lies inside it. */
bool kn_tensor_overlaps_itself(const kn_tensor *t);

#endif
