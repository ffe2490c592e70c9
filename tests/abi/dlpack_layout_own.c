/* The layout that kiln.h declares where there is no DLPack header (compiled with KILN_NO_DLPACK_HEADER). */
#include "kiln/kiln.h"

#include "dlpack_layout.h"

#ifdef KILN_HAS_DLPACK
#error "this file must see kiln.h's own declaration"
#endif

const size_t dlpack_layout_own[DLPACK_FIGURES] = DLPACK_LAYOUT;
