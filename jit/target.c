/* jit/target: GPU architectures and PTX versions. The lowest .version of each target was found by assembling an empty
 * kernel with ptxas 13.0; shared memory and threads come from the CUDA programming guide's table of compute
 * capabilities. sm_90a stands before sm_90, so that a device of capability 9.0 gets wgmma. */
#include "jit/target.h"

#include <stddef.h>
#include <string.h>

static const kn_target table[] = {
    /* name     cc  ptx  wgmma  tma    cluster  block          SM */
    {"sm_80", 80, 70, false, false, false, 163 * 1024, 164 * 1024},
    {"sm_86", 86, 71, false, false, false, 99 * 1024, 100 * 1024},
    {"sm_87", 87, 74, false, false, false, 163 * 1024, 164 * 1024},
    {"sm_89", 89, 78, false, false, false, 99 * 1024, 100 * 1024},
    {"sm_90a", 90, 80, true, true, true, 227 * 1024, 228 * 1024},
    {"sm_90", 90, 78, false, true, true, 227 * 1024, 228 * 1024},
    {"sm_100", 100, 86, false, true, true, 227 * 1024, 228 * 1024},
    {"sm_103", 103, 88, false, true, true, 227 * 1024, 228 * 1024},
    {"sm_110", 110, 90, false, true, true, 227 * 1024, 228 * 1024},
    {"sm_120", 120, 87, false, true, true, 99 * 1024, 100 * 1024},
    {"sm_121", 121, 88, false, true, true, 99 * 1024, 100 * 1024},
};

enum { TARGETS = sizeof table / sizeof table[0] };

/* Newest PTX that a CUDA release brought, rising. */
static const struct {
    int cuda;
    uint32_t ptx;
} releases[] = {{11000, 70}, {11010, 71}, {11020, 72}, {11030, 73}, {11040, 74}, {11050, 75}, {11060, 76},
                {11070, 77}, {11080, 78}, {12000, 80}, {12010, 81}, {12020, 82}, {12030, 83}, {12040, 84},
                {12050, 85}, {12070, 86}, {12080, 87}, {12090, 88}, {13000, 90}, {13010, 91}};

int kn_target_count(void) {
    return TARGETS;
}

const kn_target *kn_target_at(int i) {
    return i >= 0 && i < TARGETS ? &table[i] : NULL;
}

/* "sm_80, sm_86, ..." */
static const char *write_names(char *out, size_t cap) {
    size_t n = 0;
    for (int i = 0; i < TARGETS; i++) {
        size_t len = strlen(table[i].name);
        if (n + len + 3 > cap) break;
        if (n) {
            memcpy(out + n, ", ", 2);
            n += 2;
        }
        memcpy(out + n, table[i].name, len);
        n += len;
    }
    out[n] = '\0';
    return out;
}

kn_status kn_target_by_name(const char *name, const kn_target **out) {
    char names[256];
    for (int i = 0; i < TARGETS; i++) {
        if (strcmp(table[i].name, name) == 0) {
            *out = &table[i];
            return KN_OK;
        }
    }
    return kn_fail(KN_E_UNSUPPORTED, "unknown architecture \"%.40s\": known are %s", name,
                   write_names(names, sizeof names));
}

kn_status kn_target_for_device(int cc_major, int cc_minor, const kn_target **out) {
    char names[256];
    for (int i = 0; i < TARGETS; i++) {
        if (table[i].cc == (uint32_t)(cc_major * 10 + cc_minor) && cc_minor < 10) {
            *out = &table[i];
            return KN_OK;
        }
    }
    return kn_fail(KN_E_UNSUPPORTED, "the device has compute capability %d.%d; kernels can be built for %s", cc_major,
                   cc_minor, write_names(names, sizeof names));
}

kn_status kn_ptx_version(const kn_target *target, uint32_t feature_ptx, uint32_t assembler_cap, uint32_t *out) {
    uint32_t need = feature_ptx > target->min_ptx ? feature_ptx : target->min_ptx;
    if (assembler_cap && need > assembler_cap) {
        return kn_fail(
            KN_E_UNSUPPORTED,
            "the kernel needs PTX %u.%u on %s, but the assembler or driver knows PTX up to %u.%u: a newer one "
            "is needed",
            need / 10, need % 10, target->name, assembler_cap / 10, assembler_cap % 10);
    }
    *out = need;
    return KN_OK;
}

uint32_t kn_ptx_version_of_cuda(int cuda_version) {
    uint32_t ptx = 0;
    for (size_t i = 0; i < sizeof releases / sizeof releases[0] && releases[i].cuda <= cuda_version; i++)
        ptx = releases[i].ptx;
    return ptx;
}

int kn_driver_for_cubin(int assembler_version) {
    return assembler_version / 1000 * 1000;
}
