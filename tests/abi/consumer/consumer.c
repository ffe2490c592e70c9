/* The smallest program that does something: a context of the simulator. */
#include <kiln/kiln.h>

#include <stdio.h>

int main(void) {
    kiln_context *ctx = NULL;
    if (kiln_abi_version() != KILN_ABI_VERSION || kiln_context_create("sim", NULL, &ctx) != KILN_OK ||
        kiln_context_destroy(ctx) != KILN_OK) {
        fprintf(stderr, "failed: %s\n", kiln_error_message());
        return 1;
    }
    printf("kiln %s\n", kiln_version());
    return 0;
}
