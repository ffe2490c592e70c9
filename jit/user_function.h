/* jit/user_function: functions of the caller's, in CUDA C, that become part of kernels. A text is kept by its digest; a
 * kernel that contains it has the digest among its parameters (USER0, USER1), so that keys and plans need no text, and
 * a cached kernel neither text nor compiler. Only a build compiles the text and turns it into a macro that takes the
 * place of lib/activation_user.ptxi. (kn_user_function_keep: jit/program.h.) */
#ifndef KN_JIT_USER_FUNCTION_H
#define KN_JIT_USER_FUNCTION_H

#include "jit/kernel.h"

/** kn_expand for what `in` names, with the caller's function if its parameters name one. */
kn_status kn_kernel_expand(const kn_key_inputs *in, kn_expansion *out);

/** The library file that takes the place of lib/activation_user.ptxi: macro user_function of the kernel kiln_user in
 *  `ptx`, as NVRTC writes it. KN_E_UNSUPPORTED, naming activation.source, for what a macro cannot hold. */
kn_status kn_user_function_macro(const char *ptx, kn_buf *out);

#endif
