/* jit/program: the builders that planners fill a program with, and the table of element types. */
#include "jit/program.h"

#include <stdio.h>
#include <string.h>

static const struct {
    uint32_t size;
    const char *name;
} dtypes[KN_DTYPE_COUNT] = {
    [KN_DTYPE_NONE] = {0, "none"}, [KN_BF16] = {2, "bf16"}, [KN_F16] = {2, "f16"}, [KN_F32] = {4, "f32"},
    [KN_F64] = {8, "f64"},         [KN_I32] = {4, "i32"},   [KN_I64] = {8, "i64"}, [KN_BOOL] = {1, "bool"},
    [KN_U8] = {1, "u8"},           [KN_I8] = {1, "i8"},
};

uint32_t kn_dtype_size(kn_dtype t) {
    return t < KN_DTYPE_COUNT ? dtypes[t].size : 0;
}

const char *kn_dtype_name(kn_dtype t) {
    return t < KN_DTYPE_COUNT ? dtypes[t].name : "?";
}

static void fail(kn_program_builder *b, const char *what, int most) {
    if (b->status == KN_OK) b->status = kn_fail(KN_E_INTERNAL, "a program has more than %d %s", most, what);
}

kn_params *kn_add_kernel(kn_program_builder *b, const char *template_name, int *index) {
    kn_program *p = b->program;
    *index = 0;
    if (b->status == KN_OK && p->n_kernels == KN_MAX_KERNELS) fail(b, "kernels", KN_MAX_KERNELS);
    if (b->status != KN_OK) {
        memset(&b->lost_params, 0, sizeof b->lost_params);
        return &b->lost_params;
    }
    *index = (int)p->n_kernels++;
    kn_kernel_spec *k = &p->kernel[*index];
    int n = snprintf(k->template_name, sizeof k->template_name, "%s", template_name);
    if (n < 0 || (size_t)n >= sizeof k->template_name)
        b->status = kn_fail(KN_E_INTERNAL, "template name %s is too long", template_name);
    return &k->params;
}

kn_launch_spec *kn_add_launch(kn_program_builder *b, int kernel, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z) {
    kn_program *p = b->program;
    if (b->status == KN_OK && p->n_launches == KN_MAX_LAUNCHES) fail(b, "launches", KN_MAX_LAUNCHES);
    if (b->status != KN_OK) {
        memset(&b->lost_launch, 0, sizeof b->lost_launch);
        return &b->lost_launch;
    }
    kn_launch_spec *l = &p->launch[p->n_launches++];
    l->kernel = (uint8_t)kernel;
    l->grid[0] = grid_x;
    l->grid[1] = grid_y;
    l->grid[2] = grid_z;
    return l;
}

int64_t kn_add_workspace(kn_program_builder *b, uint64_t bytes) {
    kn_program *p = b->program;
    if (b->status == KN_OK && p->n_slices == KN_MAX_SLICES) fail(b, "workspace slices", KN_MAX_SLICES);
    if (b->status == KN_OK && (bytes > INT64_MAX / 2 || p->workspace_bytes > INT64_MAX / 2))
        b->status = kn_fail(KN_E_SHAPE, "the workspace would be larger than 2^62 bytes");
    if (b->status != KN_OK) return 0;
    uint64_t offset = p->workspace_bytes;
    p->slice[p->n_slices++] = (kn_slice){offset, bytes};
    p->workspace_bytes = offset + ((bytes + 255) & ~(uint64_t)255);
    return (int64_t)offset;
}

int kn_add_map(kn_program_builder *b, const kn_map_spec *map) {
    kn_program *p = b->program;
    if (b->status == KN_OK && p->n_maps == KN_MAX_MAPS) fail(b, "tensor maps", KN_MAX_MAPS);
    if (b->status != KN_OK) return 0;
    p->map[p->n_maps] = *map;
    return (int)p->n_maps++;
}

/* One binding too many is counted, so that jit/plan_make.c sees it (n_bind > KN_MAX_BINDINGS) and refuses. */
static void bind(kn_launch_spec *l, kn_binding binding) {
    if (l->n_bind < KN_MAX_BINDINGS) l->bind[l->n_bind] = binding;
    l->n_bind++;
}

void kn_bind_tensor(kn_launch_spec *l, int arg, int64_t offset_bytes) {
    bind(l, (kn_binding){.kind = KN_BIND_TENSOR, .arg = (uint8_t)arg, .value = offset_bytes});
}

void kn_bind_workspace(kn_launch_spec *l, int64_t offset_bytes) {
    bind(l, (kn_binding){.kind = KN_BIND_WORKSPACE, .value = offset_bytes});
}

void kn_bind_stride(kn_launch_spec *l, int arg, int dim) {
    bind(l, (kn_binding){.kind = KN_BIND_STRIDE, .arg = (uint8_t)arg, .dim = (uint8_t)dim});
}

void kn_bind_i64(kn_launch_spec *l, int64_t v) {
    bind(l, (kn_binding){.kind = KN_BIND_I64, .value = v});
}

void kn_bind_i32(kn_launch_spec *l, int32_t v) {
    bind(l, (kn_binding){.kind = KN_BIND_I32, .value = v});
}

void kn_bind_f32(kn_launch_spec *l, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bind(l, (kn_binding){.kind = KN_BIND_F32, .value = bits});
}

void kn_bind_map(kn_launch_spec *l, int map) {
    bind(l, (kn_binding){.kind = KN_BIND_MAP, .arg = (uint8_t)map});
}

void kn_bind_faults(kn_launch_spec *l) {
    bind(l, (kn_binding){.kind = KN_BIND_FAULTS});
}
