/* backend_null: everything but the work. Launches return at once, so that what remains is Kiln's own cost on the host.
 */
#include "jit/backend_host.h"

#include "base/alloc.h"

#include <string.h>

struct kn_module {
    uint32_t grid_dependency;
};

static void destroy(kn_backend *b) {
    kn_free(b);
}

static kn_status module_load(kn_backend *b, const void *image, size_t len, const kn_kernel_meta *meta,
                             kn_module **out) {
    (void)b;
    (void)image;
    (void)len;
    KN_TRY(KN_NEW(out, 1, "a module"));
    (*out)->grid_dependency = meta->grid_dependency;
    return KN_OK;
}

static void module_unload(kn_backend *b, kn_module *m) {
    (void)b;
    kn_free(m);
}

static kn_status encode_tensor_map(kn_backend *b, const kn_tensor_map *map, uint8_t out[128]) {
    (void)b;
    memset(out, 0, 128);
    memcpy(out, &map->base, sizeof map->base);
    return KN_OK;
}

static kn_status launch(kn_backend *b, const kn_launch_args *args) {
    (void)b;
    KN_TRY(kn_host_check_stream(args->stream));
    KN_REQUIRE(!args->dependent || args->module->grid_dependency, KN_E_LAUNCH,
               "a dependent launch of a kernel without griddepcontrol.wait");
    return KN_OK;
}

static const kn_backend_ops ops = {.kind = "null",
                                   .destroy = destroy,
                                   KN_HOST_BACKEND_OPS,
                                   .module_load = module_load,
                                   .module_unload = module_unload,
                                   .encode_tensor_map = encode_tensor_map,
                                   .launch = launch};

kn_status kn_backend_null_create(const char *target, kn_backend **out) {
    kn_backend *b = NULL;
    KN_TRY(KN_NEW(&b, 1, "a backend"));
    kn_status st = kn_device_facts_by_name(target, &b->facts, &b->target);
    if (st != KN_OK) {
        kn_free(b);
        return st;
    }
    b->ops = &ops;
    b->dl_device_type = 1;
    b->runs_ptx = true;
    *out = b;
    return KN_OK;
}
