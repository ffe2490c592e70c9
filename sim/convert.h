/* sim/convert: the conversion of one value, as cvt does it. */
#ifndef KN_SIM_CONVERT_H
#define KN_SIM_CONVERT_H

#include "sim/machine.h"

/** `bits` of type `from` as type `to`, with the rounding and saturation that `i` carries. */
uint64_t kn_convert(const kn_insn *i, kn_type to, kn_type from, uint64_t bits);

#endif
