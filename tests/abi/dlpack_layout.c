/* The layout of DLPack's own header. */
#include "dlpack_layout.h"

#include <dlpack/dlpack.h>

const size_t dlpack_layout_real[DLPACK_FIGURES] = DLPACK_LAYOUT;
