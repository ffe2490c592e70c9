/* sim/exec_double: the kernels of f64 arithmetic, in every rounding mode. */
#ifndef KN_SIM_EXEC_DOUBLE_H
#define KN_SIM_EXEC_DOUBLE_H

#include "sim/lanes.h"

kn_kernel kn_add_f64, kn_sub_f64, kn_mul_f64, kn_fma_f64, kn_div_f64, kn_rcp_f64, kn_sqrt_f64;
kn_kernel kn_neg_f64, kn_abs_f64, kn_min_f64, kn_max_f64, kn_copysign_f64;

#endif
