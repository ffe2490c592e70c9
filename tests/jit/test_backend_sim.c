/* jit/backend_sim.c, backend_null.c, backend_host.c, device_facts.c: a kernel through the backend's table. */
#include "jit/backend.h"
#include "support/suite.h"

#include <string.h>

static const char ptx[] = ".version 8.0\n.target sm_90a\n.address_size 64\n"
                          ".visible .entry add_one(.param .u64 in, .param .u64 out) .reqntid 32, 1, 1 {\n"
                          ".reg .b32 %r<4>; .reg .b64 %rd<4>;\n"
                          "mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];\n"
                          "mad.wide.u32 %rd0, %r0, 4, %rd0; mad.wide.u32 %rd1, %r0, 4, %rd1;\n"
                          "ld.global.u32 %r1, [%rd0];\n"
                          "add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1; ret;\n}\n";

static const kn_kernel_meta meta = {
    .entry = "add_one", .target = "sm_90a", .ptx_version = 80, .threads = {32, 1, 1}, .cluster = {1, 1, 1}};

typedef struct fixture {
    kn_backend *b;
    kn_module *m;
    uint32_t *in, *out;
    kn_extent extent[2];
    kn_launch_args args;
    uint64_t params[2];
} fixture;

static void *device_memory(kn_backend *b, size_t bytes) {
    void *p = NULL;
    ck_assert_ok(b->ops->alloc(b, bytes, &p));
    ck_assert_uint_eq((uintptr_t)p % 256, 0);
    return p;
}

static void begin(fixture *f, kn_backend *b) {
    uint32_t data[32];
    for (uint32_t k = 0; k < 32; k++) data[k] = k;
    memset(f, 0, sizeof *f);
    f->b = b;
    f->in = device_memory(b, sizeof data);
    f->out = device_memory(b, sizeof data);
    ck_assert_ok(b->ops->copy_in(b, f->in, data, sizeof data));
    ck_assert_ok(b->ops->fill(b, f->out, 0xee, sizeof data, NULL));
    ck_assert_ok(b->ops->module_load(b, ptx, sizeof ptx - 1, &meta, &f->m));
    f->extent[0] = (kn_extent){.name = "in", .data = f->in, .item = 4, .ndim = 1, .shape = {32}, .stride = {1}};
    f->extent[1] = f->extent[0];
    f->extent[1].name = "out";
    f->extent[1].data = f->out;
    f->extent[1].writable = f->extent[1].poison = true;
    f->params[0] = (uint64_t)(uintptr_t)f->in;
    f->params[1] = (uint64_t)(uintptr_t)f->out;
    f->args = (kn_launch_args){
        .module = f->m, .grid = {1, 1, 1}, .params = f->params, .params_len = 16, .extents = f->extent, .n_extents = 2};
}

static void end(fixture *f) {
    f->b->ops->module_unload(f->b, f->m);
    ck_assert_ok(f->b->ops->free(f->b, f->in));
    ck_assert_ok(f->b->ops->free(f->b, f->out));
    f->b->ops->destroy(f->b);
}

START_TEST(runs_a_kernel) {
    kn_backend *b = NULL;
    fixture f;
    kn_sim_counters c;
    uint32_t got[32];
    ck_assert_ok(kn_backend_sim_create("sm_90a", &b));
    ck_assert_str_eq(b->ops->kind, "sim");
    ck_assert(b->runs_ptx && b->dl_device_type == 1 && b->facts.multiprocessors == 132);
    begin(&f, b);
    ck_assert_ok(b->ops->launch(b, &f.args));
    ck_assert_ok(b->ops->copy_out(b, got, f.out, sizeof got));
    for (uint32_t k = 0; k < 32; k++) ck_assert_uint_eq(got[k], k + 1);
    kn_backend_sim_counters(b, &c);
    ck_assert_uint_eq(c.launches, 1);
    ck_assert_uint_eq(c.warp_instructions, 9);
    end(&f);
}
END_TEST

START_TEST(faults_name_the_template) {
    kn_backend *b = NULL;
    fixture f;
    ck_assert_ok(kn_backend_sim_create("sm_90a", &b));
    begin(&f, b);
    f.extent[0].shape[0] = 16;
    ck_assert_fails(b->ops->launch(b, &f.args), KN_E_SIM, "PTX line 8: CTA (0,0,0) warp 0 lane 16: ld.global.u32");
    b->ops->module_line_map(b, f.m, "1 a.ptxt:1\n7 a.ptxt:40 [i=2]\n9 a.ptxt:41\n");
    ck_assert_fails(b->ops->launch(b, &f.args), KN_E_SIM, "a.ptxt:40 [i=2]: CTA (0,0,0)");
    f.args.dependent = true;
    ck_assert_fails(b->ops->launch(b, &f.args), KN_E_LAUNCH, "griddepcontrol.wait");
    f.args.dependent = false;
    f.args.stream = &f;
    ck_assert_fails(b->ops->launch(b, &f.args), KN_E_ARG, "pass NULL");
    kn_module *m = NULL;
    ck_assert_fails(b->ops->module_load(b, "x", 1, &meta, &m), KN_E_SIM, "add_one: PTX line 1");
    ck_assert_fails(kn_backend_sim_map_error(KN_E_SIM, "1 b.ptxt:7\n"), KN_E_SIM, "add_one: b.ptxt:7: a directive");
    end(&f);
}
END_TEST

/* What the first launch of a program wrote the second may read; in a program of its own it may not. */
START_TEST(programs_share_what_is_written) {
    kn_backend *b = NULL;
    fixture f;
    void *program = NULL;
    ck_assert_ok(kn_backend_sim_create("sm_90a", &b));
    begin(&f, b);
    uint64_t back[2] = {f.params[1], f.params[0]};
    kn_extent swapped[2] = {f.extent[1], f.extent[0]};
    swapped[1].writable = true;
    kn_launch_args second = f.args;
    second.params = back;
    second.extents = swapped;
    ck_assert_ok(b->ops->program_begin(b, &program));
    f.args.program = second.program = program;
    ck_assert_ok(b->ops->launch(b, &f.args));
    ck_assert_ok(b->ops->launch(b, &second));
    ck_assert_uint_eq(f.in[31], 33);
    b->ops->program_end(b, program);
    second.program = NULL;
    ck_assert_fails(b->ops->launch(b, &second), KN_E_SIM, "uninitialised");
    end(&f);
}
END_TEST

START_TEST(null_does_nothing) {
    kn_backend *b = NULL;
    fixture f;
    ck_assert_ok(kn_backend_null_create("sm_80", &b));
    ck_assert_str_eq(b->ops->kind, "null");
    ck_assert_str_eq(b->target->name, "sm_80");
    begin(&f, b);
    ck_assert_ok(b->ops->launch(b, &f.args));
    ck_assert_uint_eq(f.out[0], 0xeeeeeeee);
    uint8_t map[128];
    ck_assert_ok(b->ops->encode_tensor_map(b, &(kn_tensor_map){.rank = 1}, map));
    end(&f);
}
END_TEST

START_TEST(streams_events_mapped) {
    kn_backend *b = NULL;
    void *stream = &b, *start = NULL, *stop = NULL, *host = NULL, *device = NULL;
    bool capturing = true;
    uint64_t id = 0;
    double us = -1;
    ck_assert_ok(kn_backend_sim_create("sm_80", &b));
    ck_assert_ok(b->ops->stream_create(b, &stream));
    ck_assert_ptr_null(stream);
    ck_assert_ok(b->ops->stream_id(b, stream, &id));
    ck_assert_uint_eq(id, 1);
    ck_assert_ok(b->ops->stream_capturing(b, stream, &capturing));
    ck_assert(!capturing);
    ck_assert_ok(b->ops->event_create(b, &start));
    ck_assert_ok(b->ops->event_create(b, &stop));
    ck_assert_fails(b->ops->event_elapsed_us(b, start, stop, &us), KN_E_ARG, "not been recorded");
    ck_assert_ok(b->ops->event_record(b, start, stream));
    ck_assert_ok(b->ops->event_record(b, stop, stream));
    ck_assert_ok(b->ops->event_elapsed_us(b, start, stop, &us));
    ck_assert(us >= 0);
    ck_assert_ok(b->ops->event_destroy(b, start));
    ck_assert_ok(b->ops->event_destroy(b, stop));
    ck_assert_ok(b->ops->alloc_mapped(b, 8, &host, &device));
    ck_assert(host == device && *(uint64_t *)host == 0);
    ck_assert_ok(b->ops->free_mapped(b, host));
    ck_assert_fails(b->ops->check_pointer(b, NULL), KN_E_DEVICE, "NULL");
    ck_assert_ok(b->ops->stream_synchronize(b, stream));
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->destroy(b);
}
END_TEST

START_TEST(reference_devices) {
    static const struct {
        const char *name, *target;
        uint32_t multiprocessors, smem;
    } want[] = {{"h200", "sm_90a", 132, 232448}, {"h100-pcie", "sm_90a", 114, 232448}, {"h20", "sm_90a", 78, 232448},
                {"a100", "sm_80", 108, 166912},  {"sm_90a", "sm_90a", 132, 232448},    {"sm_80", "sm_80", 108, 166912}};
    kn_device_facts f;
    const kn_target *t = NULL;
    for (size_t k = 0; k < sizeof want / sizeof want[0]; k++) {
        ck_assert_ok(kn_device_facts_by_name(want[k].name, &f, &t));
        ck_assert_str_eq(t->name, want[k].target);
        ck_assert_uint_eq(f.multiprocessors, want[k].multiprocessors);
        ck_assert_uint_eq(f.smem_per_block, want[k].smem);
        ck_assert(f.hbm_bytes_per_s > 1e12 && f.bf16_flops > 1e14 && f.driver_version == 0);
    }
    ck_assert_fails(kn_device_facts_by_name("gtx", &f, &t), KN_E_UNSUPPORTED, "h100-pcie (sm_90a)");
    kn_backend *b = NULL;
    ck_assert_fails(kn_backend_sim_create("sm_70", &b), KN_E_UNSUPPORTED, "no reference device sm_70");
}
END_TEST

int main(void) {
    Suite *s = suite_create("jit/backend_sim");
    TCase *t = tcase_create("backend_sim");
    tcase_add_test(t, runs_a_kernel);
    tcase_add_test(t, faults_name_the_template);
    tcase_add_test(t, programs_share_what_is_written);
    tcase_add_test(t, null_does_nothing);
    tcase_add_test(t, streams_events_mapped);
    tcase_add_test(t, reference_devices);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
