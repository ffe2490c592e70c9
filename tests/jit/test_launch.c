/* The walk over a plan: what every argument slot receives, what launches may touch, tensor maps, workspaces. */
#include "base/thread.h"
#include "engine_support.h"

/* Tensors of the made-up operation: two inputs, two outputs. */
enum { A, B, OUT, SUM, N_TENSORS };
static const kn_arg_info infos[N_TENSORS] = {{.name = "a"}, {.name = "b"}, {.name = "out"}, {.name = "sum"}};

static void (*planner)(kn_program_builder *b);

static kn_status plan_it(const kn_problem *p, const kn_device_facts *facts, const kn_target *target, kn_program *out) {
    (void)p, (void)facts, (void)target;
    kn_program_builder b = {.program = out};
    planner(&b);
    return b.status;
}

static const kn_op op = {
    .name = "walk", .args = infos, .n_args = N_TENSORS, .n_outputs = 2, .plan = plan_it, .token_axes = 0};

static kn_engine *e;
static kn_call call;
static float memory[4][64];

static void setup(void) {
    begin_dir();
    e = fake_engine(NULL);
    call = (kn_call){.op = &op, .n_tensors = N_TENSORS};
    for (int i = 0; i < N_TENSORS; i++)
        call.tensor[i] = (kn_tensor){
            .dtype = KN_F32, .ndim = 2, .data = memory[i], .shape = {4, 8}, .stride = {16, 1}, .bytes = (48 + 8) * 4};
}

static void teardown(void) {
    kn_engine_destroy(e);
    end_dir();
}

static kn_plan *make_plan(void (*with)(kn_program_builder *b)) {
    kn_problem p;
    bool fresh;
    kn_plan *plan = NULL;
    memset(&p, 0, sizeof p);
    planner = with;
    ck_assert_ok(kn_plan_add(e, &op, &p, false, &plan, &fresh));
    return plan;
}

static uint64_t u64_at(const seen_launch *l, size_t offset) {
    uint64_t v;
    memcpy(&v, l->params + offset, sizeof v);
    return v;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static void every_binding(kn_program_builder *b) {
    int kernel;
    kn_params_set(kn_add_kernel(b, "all.ptxt", &kernel), "N", 1);
    kn_add_workspace(b, 100);
    int64_t slice = kn_add_workspace(b, 8);
    kn_map_spec map = {
        .arg = B, .offset_bytes = 32, .map = {.rank = 2, .stride = {1, 2, 3, 4}}, .stride_dim = {0, -1, -1, -1}};
    int m = kn_add_map(b, &map);
    kn_launch_spec *l = kn_add_launch(b, kernel, 3, 4, 5);
    kn_bind_tensor(l, A, 12);
    kn_bind_i32(l, -7);
    kn_bind_stride(l, B, 0);
    kn_bind_f32(l, 1.5f);
    kn_bind_map(l, m);
    kn_bind_workspace(l, slice + 4);
    kn_bind_i64(l, -9);
    kn_bind_faults(l);
    kn_add_launch(b, kernel, 0, 1, 1)->n_bind = 0;
    *kn_add_launch(b, kernel, 3, 4, 5) = *l;
    b->program->launch[1] = *l; /* nothing to do: skipped */
    b->program->launch[1].grid[2] = 0;
    b->program->launch[2].bind[0].arg = OUT;
}

START_TEST(every_kind_of_argument) {
    write_template(
        "all.ptxt",
        ".param .u64 a, .param .s32 b, .param .u64 c, .param .f32 d, .param .align 64 .b8 e[128], .param .u64 f, "
        ".param .s64 g, .param .u64 h",
        "");
    _Alignas(256) static char workspace[1024];
    kn_plan *plan = make_plan(every_binding);
    ck_assert_uint_eq(plan->workspace_bytes, 512);
    call.tensor[OUT].dtype = KN_DTYPE_NONE; /* an output that nobody wants */
    ck_assert_ok(kn_launch_plan(e, plan, &call, workspace, (void *)0x77));
    ck_assert_int_eq(device.n_launches, 2);
    const seen_launch *l = &device.launch[0];
    ck_assert_str_eq(l->entry, "kiln_test_1");
    ck_assert_uint_eq(l->grid[0], 3);
    ck_assert_uint_eq(l->grid[1], 4);
    ck_assert_uint_eq(l->grid[2], 5);
    ck_assert_ptr_eq(l->stream, (void *)0x77);
    ck_assert_uint_eq(l->params_len, 216);
    ck_assert_uint_eq(u64_at(l, 0), (uint64_t)(uintptr_t)memory[A] + 12);
    ck_assert_uint_eq(u64_at(l, 8) & UINT32_MAX, (uint32_t)-7);
    ck_assert_uint_eq(u64_at(l, 16), 16);
    ck_assert_uint_eq(u64_at(l, 24) & UINT32_MAX, 0x3fc00000);
    ck_assert_uint_eq(u64_at(l, 64), (uint64_t)(uintptr_t)memory[B] + 32); /* the map's base, then its strides */
    ck_assert_uint_eq(u64_at(l, 72), 64);                                  /* 16 floats */
    ck_assert_uint_eq(u64_at(l, 80), 2);
    ck_assert_uint_eq(u64_at(l, 192), (uint64_t)(uintptr_t)workspace + 256 + 4);
    ck_assert_uint_eq(u64_at(l, 200), (uint64_t)-9);
    ck_assert_uint_eq(u64_at(l, 208), (uint64_t)(uintptr_t)e->faults_device);
    ck_assert_uint_eq(u64_at(&device.launch[1], 0), 0);
    ck_assert_uint_eq(e->count.launches, 2);
    kn_plan_release(e, plan);
}
END_TEST

START_TEST(tensor_maps_are_encoded_once_an_address) {
    write_template(
        "all.ptxt",
        ".param .u64 a, .param .s32 b, .param .u64 c, .param .f32 d, .param .align 64 .b8 e[128], .param .u64 f, "
        ".param .s64 g, .param .u64 h",
        "");
    _Alignas(256) static char workspace[1024];
    static float layers[8][1024];
    kn_plan *plan = make_plan(every_binding);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 4; i++) {
            call.tensor[B].data = layers[i];
            ck_assert_ok(kn_launch_plan(e, plan, &call, workspace, NULL));
            const seen_launch *l = &device.launch[(device.n_launches - 1) % MAX_SEEN];
            ck_assert_uint_eq(u64_at(l, 64), (uint64_t)(uintptr_t)layers[i] + 32);
        }
    }
    ck_assert_int_le(device.encodes, 40); /* 80 launches; slots may collide, but not all */
    int before = device.encodes;
    call.tensor[B].stride[0] = 24; /* other strides, another map */
    ck_assert_ok(kn_launch_plan(e, plan, &call, workspace, NULL));
    ck_assert_int_gt(device.encodes, before);
    ck_assert_uint_eq(u64_at(&device.launch[(device.n_launches - 1) % MAX_SEEN], 72), 96);
    kn_plan_release(e, plan);
}
END_TEST

START_TEST(device_errors_name_the_kernel) {
    write_template(
        "all.ptxt",
        ".param .u64 a, .param .s32 b, .param .u64 c, .param .f32 d, .param .align 64 .b8 e[128], .param .u64 f, "
        ".param .s64 g, .param .u64 h",
        "");
    _Alignas(256) static char workspace[1024];
    kn_plan *plan = make_plan(every_binding);
    device.launch_status = KN_E_LAUNCH;
    ck_assert_fails(kn_launch_plan(e, plan, &call, workspace, NULL), KN_E_LAUNCH, "kiln_test_1: the device is unwell");
    device.launch_status = KN_OK;
    ck_assert_ok(kn_launch_plan(e, plan, &call, workspace, NULL));
    kn_plan_release(e, plan);
}
END_TEST

/* ---- extents ----------------------------------------------------------------------------------------------------- */

/* First launch: a -> the first slice. Second: the first slice -> the second, sum. Third: both slices -> out. */
static void three_launches(kn_program_builder *b) {
    int kernel;
    kn_params_set(kn_add_kernel(b, "four.ptxt", &kernel), "N", 1);
    int64_t first = kn_add_workspace(b, 100), second = kn_add_workspace(b, 8);
    kn_launch_spec *l = kn_add_launch(b, kernel, 1, 1, 1);
    kn_bind_tensor(l, A, 0);
    kn_bind_workspace(l, first);
    kn_bind_tensor(l, A, 4);
    kn_bind_workspace(l, first + 96);
    l = kn_add_launch(b, kernel, 1, 1, 1);
    kn_bind_workspace(l, first);
    kn_bind_workspace(l, second);
    kn_bind_tensor(l, SUM, 0);
    kn_bind_faults(l);
    l = kn_add_launch(b, kernel, 1, 1, 1);
    kn_bind_workspace(l, first);
    kn_bind_workspace(l, second);
    kn_bind_tensor(l, OUT, 0);
    kn_bind_tensor(l, SUM, 0);
}

static const kn_extent *extent_of(int launch, const char *name, const void *data) {
    const seen_launch *l = &device.launch[launch];
    for (uint32_t i = 0; i < l->n_extents; i++)
        if (strcmp(l->extents[i].name, name) == 0 && l->extents[i].data == data) return &l->extents[i];
    ck_abort_msg("launch %d has no extent %s", launch, name);
    return NULL;
}

START_TEST(launches_may_touch_what_they_bind) {
    write_template("four.ptxt", ".param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d", "");
    _Alignas(256) static char workspace[512];
    kn_plan *plan = make_plan(three_launches);
    e->extents = true;
    plan->problem.accumulate = 2; /* sum is added to */
    ck_assert_ok(kn_launch_plan(e, plan, &call, workspace, NULL));
    ck_assert_uint_eq(device.launch[0].n_extents, 2); /* a once, the slice once */
    const kn_extent *a = extent_of(0, "a", memory[A]), *slice = extent_of(0, "workspace", workspace);
    ck_assert(!a->writable && !a->poison);
    ck_assert_uint_eq(a->ndim, 2);
    ck_assert_int_eq(a->stride[0], 16);
    ck_assert_int_eq(a->shape[1], 8);
    ck_assert_int_eq(slice->shape[0], 100);
    ck_assert(slice->writable && slice->poison);
    ck_assert_uint_eq(device.launch[1].n_extents, 4);
    ck_assert(extent_of(1, "workspace", workspace)->poison); /* but for what the launch before wrote */
    ck_assert(extent_of(1, "workspace", workspace + 256)->poison);
    ck_assert(extent_of(1, "sum", memory[SUM])->writable && !extent_of(1, "sum", memory[SUM])->poison);
    ck_assert(extent_of(1, "fault counter", e->faults_device)->writable);
    ck_assert(extent_of(2, "out", memory[OUT])->poison);
    ck_assert_int_eq(device.programs, 1);
    for (int i = 0; i < 3; i++) ck_assert_ptr_eq(device.launch[i].program, &device.programs);
    ck_assert_int_eq(device.ended, 1);
    call.tensor[OUT].data = memory[A]; /* in place: its contents are the input's */
    device.n_launches = 0;
    ck_assert_ok(kn_launch_plan(e, plan, &call, workspace, NULL));
    ck_assert(!extent_of(2, "out", memory[A])->poison);
    kn_plan_release(e, plan);
}
END_TEST

/* ---- workspaces -------------------------------------------------------------------------------------------------- */

START_TEST(one_buffer_a_stream) {
    kn_workspace *w[2];
    void *p[3];
    ck_assert_ok(kn_workspace_take(e, (void *)1, 1000, &w[0], &p[0]));
    ck_assert_ok(kn_workspace_take(e, (void *)2, 1000, &w[1], &p[1]));
    ck_assert_ptr_ne(p[0], p[1]);
    kn_workspace_give(w[0]);
    kn_workspace_give(w[1]);
    ck_assert_ok(kn_workspace_take(e, (void *)1, 10, &w[0], &p[2]));
    ck_assert_ptr_eq(p[0], p[2]);
    kn_workspace_give(w[0]);
    ck_assert_int_eq(device.allocs, 2);
    ck_assert_ok(kn_workspace_take(e, (void *)1, 5000, &w[0], &p[2])); /* grown: the old one is freed in order */
    kn_workspace_give(w[0]);
    ck_assert_int_eq(device.allocs, 3);
    ck_assert_int_eq(device.frees, 1);
    void *held;
    ck_assert_ok(kn_workspace_take(e, (void *)9, 10, &w[1], &held));
    for (uintptr_t i = 10; i < 200; i++) {
        ck_assert_ok(kn_workspace_take(e, (void *)i, 10, &w[0], &p[2]));
        kn_workspace_give(w[0]);
    }
    ck_assert_int_le(device.allocs - device.frees, 64);
    memset(held, 1, 10); /* in use: not given up for all of these */
    kn_workspace_give(w[1]);
    ck_assert_ok(kn_workspace_take(e, (void *)9, 10, &w[1], &p[2]));
    ck_assert_ptr_eq(p[2], held);
    kn_workspace_give(w[1]);
}
END_TEST

static void *use_workspace(void *arg) {
    for (int i = 0; i < 200; i++) {
        kn_workspace *w;
        void *p;
        if (kn_workspace_take(e, arg, 64 + (uint64_t)i, &w, &p) != KN_OK) abort();
        char mine = (char)i, *bytes = p;
        for (int k = 0; k < 64; k++) bytes[k] = mine;
        sched_yield();
        for (int k = 0; k < 64; k++)
            if (bytes[k] != mine) abort(); /* somebody else's program ran on it */
        kn_workspace_give(w);
    }
    return NULL;
}

START_TEST(threads_on_one_stream_take_turns) {
    pthread_t thread[8];
    for (int i = 0; i < 8; i++) pthread_create(&thread[i], NULL, use_workspace, (void *)(uintptr_t)(1 + i % 2));
    for (int i = 0; i < 8; i++) pthread_join(thread[i], NULL);
}
END_TEST

int main(void) {
    Suite *s = suite_create("launch");
    TCase *t = tcase_create("walk");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, every_kind_of_argument);
    tcase_add_test(t, tensor_maps_are_encoded_once_an_address);
    tcase_add_test(t, device_errors_name_the_kernel);
    tcase_add_test(t, launches_may_touch_what_they_bind);
    tcase_add_test(t, one_buffer_a_stream);
    tcase_add_test(t, threads_on_one_stream_take_turns);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
