/* kiln_plan_json: what a call would run. */
#include "base/alloc.h"
#include "jit/kernel.h"
#include "jit/plan.h"
#include "jit/plan_make.h"
#include "jit/user_function.h"
#include "kiln/kiln_tools.h"
#include "ops/api_call.h"
#include "ops/api_context.h"

#include <string.h>

/* What there is to say of one kernel. */
typedef struct kernel_report {
    kn_kernel_info info;
    const char *cache; /* where it came from */
    uint64_t expand_us, assemble_us;
    bool assembled;
} kernel_report;

/* ---- one kernel -------------------------------------------------------------------------------------------------- */

/* Assemble for the real target, for the numbers alone; devices that run PTX need no assembler otherwise. */
static kn_status assemble_for_report(const kn_expansion *x, kernel_report *r) {
    const kn_assembler_id *id = NULL;
    void *cubin = NULL;
    size_t len = 0;
    kn_status st = kn_nvjitlink_id(&id);
    if (st == KN_E_UNAVAILABLE) return KN_OK; /* the plan says so, once */
    if (st == KN_OK) st = kn_nvjitlink_assemble(x, &cubin, &len, &r->info.report);
    r->assembled = st == KN_OK;
    r->assemble_us = r->info.report.assemble_ns / 1000;
    kn_free(cubin);
    return st;
}

static kn_status look(kn_engine *e, const kn_kernel_spec *spec, kernel_report *r) {
    kn_key_inputs in = kn_kernel_inputs(e, spec);
    in.ptx = true;
    kn_expansion x;
    uint64_t before = atomic_load(&e->count.expand_ns);
    KN_TRY(kn_kernel_make(e, &in, &x, &r->info, NULL, NULL));
    r->expand_us = (atomic_load(&e->count.expand_ns) - before) / 1000;
    r->cache = "not looked for";
    kn_status st = assemble_for_report(&x, r);
    kn_expansion_free(&x);
    return st;
}

static kn_status build(kn_engine *e, const kn_kernel_spec *spec, kernel_report *r) {
    kn_kernel *k = NULL;
    uint64_t expand = atomic_load(&e->count.expand_ns);
    KN_TRY(kn_kernel_acquire(e, spec, KN_WANT_BUILT, &k));
    r->info = k->info;
    r->cache = k->built ? "built" : "cached";
    r->expand_us = k->built ? (atomic_load(&e->count.expand_ns) - expand) / 1000 : 0;
    r->assemble_us = k->built ? k->info.report.assemble_ns / 1000 : 0;
    r->assembled = k->info.report.registers > 0;
    kn_kernel_release(e, k);
    if (r->assembled || !e->backend->runs_ptx) return KN_OK;
    kn_expansion x;
    const kn_key_inputs in = kn_kernel_inputs(e, spec);
    KN_TRY(kn_kernel_expand(&in, &x));
    kn_status st = assemble_for_report(&x, r);
    kn_expansion_free(&x);
    return st;
}

static void add_u64(kn_buf *b, const char *name, uint64_t v) {
    kn_buf_addf(b, ",\"%s\":", name);
    kn_buf_add_u64(b, v);
}

static void add_dims(kn_buf *b, const char *name, const uint32_t d[3]) {
    kn_buf_addf(b, ",\"%s\":[%u,%u,%u]", name, d[0], d[1], d[2]);
}

static void add_params(kn_buf *b, const kn_params *params) {
    kn_buf_add(b, ",\"params\":{");
    for (int i = 0; i < params->count; i++) {
        const kn_param *p = &params->item[i];
        kn_buf_addf(b, "%s\"%s\":", i ? "," : "", p->name);
        if (p->is_name)
            kn_buf_add_json(b, p->text);
        else
            kn_buf_add_i64(b, p->value);
    }
    kn_buf_add_char(b, '}');
}

/* What names a kernel, without a line of it being expanded: equal keys are one kernel. */
static kn_status add_kernel_name(kn_engine *e, const kn_kernel_spec *spec, kn_buf *b) {
    const kn_key_inputs in = kn_kernel_inputs(e, spec);
    kn_key key;
    char hex[33];
    KN_TRY(kn_kernel_key(&in, &key));
    kn_digest_hex(kn_hash(key.bytes.data, key.bytes.len), hex);
    kn_key_free(&key);
    kn_buf_addf(b, "{\"template\":\"%s\",\"key\":\"%s\"", spec->template_name, hex);
    add_params(b, &spec->params);
    kn_buf_add_char(b, '}');
    return KN_OK;
}

static void add_kernel(kn_buf *b, const kn_kernel_spec *spec, const kernel_report *r) {
    const kn_kernel_meta *m = &r->info.meta;
    const kn_asm_report *a = &r->info.report;
    char hex[33];
    kn_digest_hex(r->info.ptx, hex);
    kn_buf_addf(b, "{\"name\":\"%s\",\"template\":\"%s\"", m->entry, spec->template_name);
    add_params(b, &spec->params);
    add_dims(b, "threads", m->threads);
    add_dims(b, "cluster", m->cluster);
    add_u64(b, "smem_bytes", (uint64_t)m->smem_dynamic + m->smem_static);
    add_u64(b, "ptx_lines", m->ptx_lines);
    kn_buf_addf(b, ",\"ptx_version\":\"%u.%u\",\"ptx_digest\":\"%s\"", m->ptx_version / 10, m->ptx_version % 10, hex);
    if (r->assembled) {
        add_u64(b, "registers", a->registers);
        add_u64(b, "spill_bytes", (uint64_t)a->spill_stores + a->spill_loads);
        add_u64(b, "stack_bytes", a->stack);
        add_u64(b, "remarks", a->remarks);
    } else {
        kn_buf_add(b, ",\"registers\":null,\"spill_bytes\":null,\"stack_bytes\":null,\"remarks\":null");
    }
    if (a->remark[0]) {
        kn_buf_add(b, ",\"remark\":");
        kn_buf_add_json(b, a->remark);
    }
    add_u64(b, "expand_us", r->expand_us);
    add_u64(b, "assemble_us", r->assemble_us);
    kn_buf_addf(b, ",\"cache\":\"%s\"}", r->cache);
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static void add_assembler(kn_buf *b) {
    const kn_assembler_id *id = NULL;
    if (kn_nvjitlink_id(&id) == KN_OK) {
        kn_buf_addf(b, ",\"assembler\":\"%s %u.%u\"", id->kind, id->version / 1000, id->version % 1000 / 10);
    } else {
        kn_buf_add(b, ",\"assembler\":\"\",\"assembler_reason\":");
        kn_buf_add_json(b, kn_error_message());
    }
}

/* Time that moving the bytes or doing the arithmetic takes, whichever is longer; 0 where the rates are not known. */
static uint64_t floor_ns(const kn_engine *e, const kn_program *p) {
    const kn_device_facts *f = &e->backend->facts;
    double bytes_s = f->hbm_bytes_per_s > 0 ? p->floor_bytes / f->hbm_bytes_per_s : 0;
    double flops_s = f->bf16_flops > 0 ? p->floor_flops / f->bf16_flops : 0;
    return (uint64_t)(1e9 * (bytes_s > flops_s ? bytes_s : flops_s));
}

static void add_header(kn_buf *b, kn_engine *e, const kn_api_call *c, const kn_program *program, bool generic,
                       uint32_t flags) {
    uint64_t ns = floor_ns(e, program);
    kn_buf_addf(b, "{\"op\":\"%s\",\"device\":", c->call.op->name);
    kn_buf_add_json(b, e->backend->facts.name);
    kn_buf_addf(b, ",\"kind\":\"%s\",\"target\":\"%s\",\"shapes\":\"%s\"", e->backend->ops->kind,
                e->backend->target->name, generic ? "generic" : "exact");
    if (!(flags & KILN_PLAN_LIST)) add_assembler(b);
    add_u64(b, "workspace_bytes", program->workspace_bytes);
    add_u64(b, "floor_bytes", (uint64_t)program->floor_bytes);
    add_u64(b, "floor_flops", (uint64_t)program->floor_flops);
    kn_buf_addf(b, ",\"floor_us\":%u.%03u", (unsigned)(ns / 1000), (unsigned)(ns % 1000));
    kn_buf_add(b, ",\"note\":");
    kn_buf_add_json(b, program->note);
    kn_buf_add(b, ",\"record\":");
    (void)kn_api_record_line(c, b);
}

/* The variant that a call would use now: an existing plan's, else the one that a cache has, else what the policy would
 * build. Only who builds looks into caches. */
static kn_status variant_of(kn_engine *e, const kn_api_call *c, bool builds, bool *generic) {
    kn_plan *plan = kn_plan_find(e, &c->problem);
    uint32_t variants = kn_plan_variants(e, c->call.op);
    *generic = plan ? plan->generic : variants == 2;
    bool known = plan || variants != 3 || !builds;
    kn_plan_release(e, plan);
    for (uint8_t v = 0; v < 2 && !known; v++) {
        kn_problem p = c->problem;
        p.generic = v;
        KN_TRY(kn_plan_make(e, c->call.op, &p, KN_WANT_CACHED, &plan));
        known = plan != NULL;
        if (known) *generic = v;
        kn_plan_free(e, plan);
    }
    return KN_OK;
}

static kn_status write_kernel(kn_engine *e, const kn_kernel_spec *spec, uint32_t flags, kernel_report *report,
                              kn_buf *b) {
    if (flags & KILN_PLAN_LIST) return add_kernel_name(e, spec, b);
    memset(report, 0, sizeof *report);
    KN_TRY(flags & KILN_PLAN_BUILD ? build(e, spec, report) : look(e, spec, report));
    add_kernel(b, spec, report);
    return KN_OK;
}

static kn_status write_plan(kn_engine *e, const kn_api_call *c, uint32_t flags, kn_program *program,
                            kernel_report *report, kn_buf *explain, kn_buf *b) {
    kn_problem p = c->problem;
    bool generic = false;
    KN_TRY(variant_of(e, c, flags & KILN_PLAN_BUILD, &generic));
    p.generic = generic;
    KN_TRY(kn_plan_explain(e, c->call.op, &p, program, flags & KILN_PLAN_EXPLAIN ? explain : NULL));
    add_header(b, e, c, program, p.generic, flags);
    kn_buf_add(b, ",\"kernels\":[");
    for (uint32_t i = 0; i < program->n_kernels; i++) {
        if (i) kn_buf_add_char(b, ',');
        KN_TRY(write_kernel(e, &program->kernel[i], flags, report, b));
    }
    kn_buf_add(b, "],\"launches\":[");
    for (uint32_t i = 0; i < program->n_launches; i++) {
        const kn_launch_spec *l = &program->launch[i];
        kn_buf_addf(b, "%s{\"kernel\":%u", i ? "," : "", l->kernel);
        add_dims(b, "grid", l->grid);
        kn_buf_addf(b, ",\"dependent\":%s", l->dependent ? "true" : "false");
        if (l->floor_bytes > 0) add_u64(b, "floor_bytes", (uint64_t)l->floor_bytes);
        kn_buf_add_char(b, '}');
    }
    kn_buf_add_char(b, ']');
    if (flags & KILN_PLAN_EXPLAIN) {
        KN_TRY(kn_buf_status(explain));
        kn_buf_add(b, ",\"products\":[");
        kn_buf_add(b, explain->data);
        kn_buf_add_char(b, ']');
    }
    kn_buf_add_char(b, '}');
    return KN_OK;
}

static kn_status plan_json(kn_engine *e, const kn_op *op, const DLTensor *const *args, int32_t n_args,
                           const void *options, uint32_t flags, kn_buf *b) {
    kn_api_call c;
    kn_program *program = NULL;
    kernel_report *report = NULL;
    KN_REQUIRE((flags & ~KILN_PLAN_EXPLAIN) <= KILN_PLAN_LIST, KN_E_ARG,
               "flags is 0x%x; wanted KILN_PLAN_BUILD (1), KILN_PLAN_LIST (2) or 0, and KILN_PLAN_EXPLAIN (4) or not",
               flags);
    kn_buf explain;
    kn_buf_init(&explain, 1 << 24);
    KN_TRY(kn_api_describe(e, op, args, n_args, options, true, &c));
    kn_status st = KN_NEW(&program, 1, "a program");
    if (st == KN_OK) st = KN_NEW(&report, 1, "a kernel's report");
    if (st == KN_OK) st = kn_api_add_warm_line(&c, write_plan(e, &c, flags, program, report, &explain, b));
    kn_buf_free(&explain);
    kn_free(report);
    kn_free(program);
    return st;
}

int32_t kiln_plan_json(kiln_context *ctx, const char *op_name, const DLTensor *const *args, int32_t n_args,
                       const void *options, uint32_t flags, char *buf, uint64_t cap, uint64_t *needed) {
    const kn_op *op = NULL;
    kn_buf b;
    kn_status st;
    KN_TRY(kn_api_find_op(op_name, &op));
    kn_buf_init(&b, 1 << 24);
    KN_WITH_ENGINE(ctx, e, st, plan_json(e, op, args, n_args, options, flags, &b));
    if (st == KN_OK) return kn_api_give_text(&b, buf, cap, needed);
    kn_buf_free(&b);
    return kn_error_prefix(st, "%s: ", op->name);
}
