/* Fuzz target: the safetensors reader on any bytes. It must refuse or accept; what it accepts must lie inside the bytes
 * and fill them. */
#include "tensors/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kt_safetensors file;
    int code = kt_safetensors_parse(data, size, &file);
    if (code != KT_GOOD) {
        require(code == KT_USAGE && *kt_message() && !file.tensor && !file.header);
        return 0;
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < file.n; i++) {
        const kt_st_tensor *t = &file.tensor[i];
        const uint8_t *begin = t->data;
        require(begin >= data + 8 && begin + t->bytes <= data + size);
        require(t->bytes == t->elements * (t->dtype->bits / 8u));
        if (t->elements) (void)kt_element(t->dtype, t->data, t->elements - 1);
        bytes += t->bytes;
    }
    uint64_t header = 0;
    for (int i = 0; i < 8; i++) header |= (uint64_t)data[i] << 8 * i;
    require(bytes == size - 8 - header);
    kt_safetensors_close(&file);
    return 0;
}
