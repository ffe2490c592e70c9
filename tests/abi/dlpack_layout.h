/* Offsets and sizes of DLPack's types, as the including file sees them: compiled with DLPack's own header and with
 * kiln.h's declaration. */
#ifndef KN_TESTS_ABI_DLPACK_LAYOUT_H
#define KN_TESTS_ABI_DLPACK_LAYOUT_H

#include <stddef.h>

enum { DLPACK_FIGURES = 19 };
extern const size_t dlpack_layout_real[DLPACK_FIGURES], dlpack_layout_own[DLPACK_FIGURES];

#define DLPACK_LAYOUT                                                                                                  \
    {                                                                                                                  \
        sizeof(DLDevice), offsetof(DLDevice, device_type), offsetof(DLDevice, device_id),                              \
            sizeof(((DLDevice *)0)->device_type), sizeof(DLDataType), offsetof(DLDataType, code),                      \
            offsetof(DLDataType, bits), offsetof(DLDataType, lanes), sizeof(((DLDataType *)0)->lanes),                 \
            sizeof(DLTensor), offsetof(DLTensor, data), offsetof(DLTensor, device), offsetof(DLTensor, ndim),          \
            offsetof(DLTensor, dtype), offsetof(DLTensor, shape), offsetof(DLTensor, strides),                         \
            offsetof(DLTensor, byte_offset), sizeof(((DLTensor *)0)->byte_offset), sizeof(((DLTensor *)0)->ndim)       \
    }

#endif
