/* Overlap of strided views: against counting elements, over many small views. */
#include "ops/overlap.h"
#include "support/suite.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BASE = 0x10000, SPACE = 4096 };

static kn_tensor view(int64_t offset, kn_dtype dtype, int ndim, const int64_t *shape, const int64_t *stride) {
    kn_tensor t = {.dtype = dtype, .ndim = ndim, .data = (void *)(BASE + (uintptr_t)offset)};
    int64_t last = 0;
    for (int d = 0; d < ndim; d++) {
        t.shape[d] = shape[d];
        t.stride[d] = stride[d];
        last += (shape[d] - 1) * stride[d];
    }
    t.bytes = (uint64_t)(last + 1) * kn_dtype_size(dtype);
    return t;
}
#define VIEW(offset, dtype, ndim, ...)                                                                                 \
    view(offset, dtype, ndim, (int64_t[]){__VA_ARGS__}, (int64_t[]){__VA_ARGS__} + ndim)

/* Mark the bytes of `t`; false if one is marked already. */
static bool mark(const kn_tensor *t, unsigned char *bytes) {
    int64_t index[5] = {0};
    bool fresh = true;
    for (;;) {
        int64_t at = (int64_t)(uintptr_t)t->data - BASE;
        for (int d = 0; d < t->ndim; d++) at += index[d] * t->stride[d] * kn_dtype_size(t->dtype);
        for (uint32_t k = 0; k < kn_dtype_size(t->dtype); k++) {
            fresh = fresh && !bytes[at + k];
            bytes[at + k] = 1;
        }
        int d = t->ndim - 1;
        while (d >= 0 && ++index[d] == t->shape[d]) index[d--] = 0;
        if (d < 0) return fresh;
    }
}

static bool really_overlap(const kn_tensor *a, const kn_tensor *b) {
    static unsigned char bytes[SPACE], seen[SPACE];
    memset(bytes, 0, sizeof bytes);
    memset(seen, 0, sizeof seen);
    mark(a, bytes);
    mark(b, seen);
    for (int i = 0; i < SPACE; i++)
        if (bytes[i] && seen[i]) return true;
    return false;
}

START_TEST(halves_of_one_buffer) {
    kn_tensor gate = VIEW(0, KN_F32, 2, 4, 8, 16, 1), up = VIEW(32, KN_F32, 2, 4, 8, 16, 1);
    ck_assert(!kn_tensors_overlap(&gate, &up));
    up.data = (char *)up.data - 4;
    ck_assert(kn_tensors_overlap(&gate, &up));
    kn_tensor wide = VIEW(32, KN_F32, 2, 4, 9, 16, 1); /* reaches into the next row's gate */
    ck_assert(kn_tensors_overlap(&gate, &wide));
    kn_tensor fused_gate = VIEW(0, KN_BF16, 3, 2, 3, 8, 48, 8, 1), fused_up = VIEW(48, KN_BF16, 3, 2, 3, 8, 48, 8, 1);
    ck_assert(!kn_tensors_overlap(&fused_gate, &fused_up));
    kn_tensor whole = VIEW(0, KN_BF16, 3, 2, 6, 8, 48, 8, 1);
    ck_assert(kn_tensors_overlap(&whole, &fused_up));
    kn_tensor other = VIEW(96, KN_BF16, 1, 24, 1); /* exactly fused_gate's second expert */
    ck_assert(kn_tensors_overlap(&fused_gate, &other));
    ck_assert(!kn_tensors_overlap(&fused_up, &other));
}
END_TEST

/* Views of one parent must be judged exactly; any two views at least never be called disjoint when they are not. */
START_TEST(random_views) {
    int exact = 0, cautious = 0;
    srand(7);
    for (int n = 0; n < 40000; n++) {
        kn_tensor t[2];
        int64_t parent = 8 + rand() % 24, plane = parent * (2 + rand() % 3);
        bool same = rand() % 4 != 0;
        for (int i = 0; i < 2; i++) {
            int64_t row = same ? parent : 8 + rand() % 24, outer = same ? plane : row * (2 + rand() % 3);
            int64_t rows = 1 + rand() % (outer / row), columns = 1 + rand() % row, planes = 1 + rand() % 3;
            int64_t offset = 4 * (rand() % (2 * parent));
            t[i] = VIEW(offset, KN_F32, 3, planes, rows, columns, outer, row, 1);
        }
        bool said = kn_tensors_overlap(&t[0], &t[1]), truth = really_overlap(&t[0], &t[1]);
        ck_assert_msg(said || !truth, "views %d overlap and were called disjoint", n);
        ck_assert(said == kn_tensors_overlap(&t[1], &t[0]));
        exact += said == truth;
        cautious += said != truth;
        ck_assert_msg(!same || said == truth, "views %d of one parent are disjoint and were called overlapping", n);
    }
    ck_assert_int_gt(exact, 30000);
    ck_assert_int_gt(cautious, 0);
}
END_TEST

START_TEST(self_overlap) {
    static unsigned char bytes[SPACE];
    int seen[2] = {0, 0};
    srand(11);
    for (int n = 0; n < 20000; n++) {
        int64_t columns = 1 + rand() % 6, rows = 1 + rand() % 4, row = rand() % 8, plane = rand() % 30;
        kn_tensor t = VIEW(0, KN_F32, 3, 1 + rand() % 3, rows, columns, plane, row, 1);
        memset(bytes, 0, sizeof bytes);
        bool clean = mark(&t, bytes), said = kn_tensor_overlaps_itself(&t);
        ck_assert_msg(said || clean, "view %d overlaps itself and was accepted", n);
        seen[said]++;
    }
    ck_assert_int_gt(seen[0], 1000);
    ck_assert_int_gt(seen[1], 1000);
}
END_TEST

START_TEST(identity) {
    kn_tensor a = VIEW(0, KN_F32, 2, 4, 8, 16, 1), b = a;
    ck_assert(kn_tensors_identical(&a, &b));
    b.stride[0] = 8;
    ck_assert(!kn_tensors_identical(&a, &b));
    b = a;
    b.dtype = KN_I32;
    ck_assert(!kn_tensors_identical(&a, &b));
    b = a;
    b.shape[0] = 3;
    ck_assert(!kn_tensors_identical(&a, &b));
    b = a;
    b.data = (char *)b.data + 4;
    ck_assert(!kn_tensors_identical(&a, &b));
}
END_TEST

int main(void) {
    Suite *s = suite_create("overlap");
    TCase *t = tcase_create("views");
    tcase_add_test(t, halves_of_one_buffer);
    tcase_add_test(t, random_views);
    tcase_add_test(t, self_overlap);
    tcase_add_test(t, identity);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
