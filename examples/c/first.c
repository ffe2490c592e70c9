/* cc -std=c11 examples/c/first.c -Iinclude -Lbuild/release -lkiln -Wl,-rpath,$PWD/build/release -o first && ./first
 * The smallest whole program: one backward pass on host memory, on the simulator. */
#include <kiln/kiln.h>

#include <math.h>
#include <stdio.h>

enum { B = 4, E = 8, K = 2 };
static float tokens[E], mask[B][E], loss = 2, out[B][E];
static unsigned char training = 1;

static DLTensor tensor(void *data, DLDataType type, int32_t rank, int64_t *shape) {
    return (DLTensor){.data = data, .device = {1, 0}, .dtype = type, .ndim = rank, .shape = shape}; /* host memory */
}

int main(void) {
    kiln_context *ctx;
    if (kiln_context_create("sim", NULL, &ctx)) return fprintf(stderr, "%s\n", kiln_error_message()), 1;
    for (int b = 0; b < B; b++)
        for (int e = 0; e < E; e++) mask[b][e] = (float)(b - e) / 4, tokens[e] = (float)e;

    int64_t e[] = {E}, be[] = {B, E}, one[] = {1};
    DLDataType f32 = {2, 32, 1}, boolean = {6, 8, 1};
    DLTensor grad_tokens = tensor(tokens, f32, 1, e), grad_mask = tensor(mask, f32, 2, be);
    DLTensor grad_loss = tensor(&loss, f32, 1, one), is_training = tensor(&training, boolean, 1, one);
    DLTensor result = tensor(out, f32, 2, be);
    kiln_load_balance_backward_options options = {.common.struct_size = sizeof options, .top_k = K};
    if (kiln_load_balance_backward(ctx, &grad_tokens, &grad_mask, &grad_loss, NULL, NULL, NULL, &is_training, &result,
                                   &options, NULL))
        return fprintf(stderr, "%s\n", kiln_error_message()), 1;

    for (int b = 0; b < B; b++)
        for (int i = 0; i < E; i++)
            if (fabsf(out[b][i] - (mask[b][i] + tokens[i] + loss / (B * K))) > 1e-5f) return puts("wrong"), 1;
    printf("kiln %s gave the right [%d, %d]\n", kiln_version(), B, E);
    return kiln_context_destroy(ctx);
}
