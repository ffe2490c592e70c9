/* ops/op_gemm: the products as operations of their own, kiln_gemm and kiln_grouped_gemm. */
#ifndef KN_OPS_OP_GEMM_H
#define KN_OPS_OP_GEMM_H

#include "jit/program.h"

/* kn_problem.axis[]. */
enum { KN_GEMM_M, KN_GEMM_N, KN_GEMM_K, KN_GEMM_G };

kn_status kn_gemm_describe(const kn_call *call, kn_problem *p);
kn_status kn_gemm_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target, kn_program *out);
kn_status kn_grouped_gemm_describe(const kn_call *call, kn_problem *p);
kn_status kn_grouped_gemm_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                               kn_program *out);

#endif
