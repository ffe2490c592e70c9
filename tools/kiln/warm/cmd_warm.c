/* kiln warm: build the kernels of a list of calls ahead of time, into the cache or a pack. */
#include "commands.h"
#include "common/report.h"
#include "plan/plan_variants.h"
#include "shapes/models.h"
#include "warm/warm_run.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct warm_call {
    const char *library, *arch, *device, *pack, *cache, *tokens, *ops;
    int64_t threads;
    bool json, exact, list_models, plan_only;
    kt_list models, operands;
    kt_sizes sizes;
    kt_library *lib;
    kt_warm_list list;
    kt_warm_result result;
    char *ops_text, *devices_text, *parts; /* own what lists borrow; where a pack grows */
    uint64_t entries;
} warm_call;

/* ---- the table of models ----------------------------------------------------------------------------------------- */

static int list_models(const warm_call *c) {
    json_t *file = NULL;
    const json_t *models, *model;
    KT_TRY(kt_models_read(&file, &models));
    if (c->json) {
        json_t *copy = json_deep_copy(models);
        json_decref(file);
        return kt_print_json(copy);
    }
    kt_table t = kt_table_begin(
        9, (const char *const[]){"model", ">H", ">I", ">shared I", ">E", ">K", "score", "activation", "operations"});
    size_t i;
    json_array_foreach(models, i, model) {
        char ops[256] = "";
        for (int o = 0; kt_op_at(o); o++) {
            const char *why, *name = kt_op_at(o)->name;
            json_t *call = kt_model_call(model, kt_op_at(o), 1, &why);
            size_t used = strlen(ops);
            if (call) snprintf(ops + used, sizeof ops - used, "%s%.*s", used ? " " : "", (int)strcspn(name, "_"), name);
            json_decref(call);
        }
        static const char *const numbers[] = {"hidden", "intermediate", "shared_intermediate", "experts", "top_k"};
        kt_table_cell(&t, "%s", kt_json_text(model, "model", "?"));
        for (int k = 0; k < 5; k++) kt_table_cell(&t, "%.0f", kt_json_number(model, numbers[k], 0));
        kt_table_cell(&t, "%s", kt_json_text(model, "score", "?"));
        kt_table_cell(&t, "%s", kt_json_text(model, "activation", "?"));
        kt_table_cell(&t, "%s", ops);
    }
    kt_table_end(&t, 0);
    json_decref(file);
    return KT_GOOD;
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

/* The words of "a,b,c", which stay in *text. */
static void split(const char *from, char **text, kt_list *out) {
    char *rest = *text = kt_copy(from), *word;
    while ((word = strsep(&rest, ",")))
        if (*word) kt_list_add(out, word);
}

/* sm_90a and h200 are machines that are not here; sim, sim:ARCH, cuda:N and the like are what contexts know. */
static void add_machine(const char *word, kt_list *out, char *room, size_t cap) {
    bool here = strchr(word, ':') || strcmp(word, "sim") == 0 || strcmp(word, "null") == 0;
    snprintf(room, cap, "%s%s", here ? "" : "offline:", word);
    kt_list_add(out, room);
}

static int read_machines(warm_call *c, kt_warm_job *job) {
    enum { ROOM = 64 };
    kt_list words = {0};
    char *texts[2] = {NULL, NULL};
    const char *from[2] = {c->arch, c->device};
    for (int i = 0; i < 2; i++)
        if (from[i]) split(from[i], &texts[i], &words);
    c->devices_text = kt_alloc(words.n, ROOM);
    bool simulated = words.n > 0;
    for (size_t i = 0; i < words.n; i++) {
        char *room = c->devices_text + i * ROOM;
        add_machine(words.item[i], &job->devices, room, ROOM);
        simulated = simulated && (strncmp(room, "sim", 3) == 0 || strncmp(room, "null", 4) == 0);
    }
    /* What runs PTX needs no assembler: plans would ask it for registers alone. */
    if (simulated) setenv("KILN_LIBNVJITLINK", "off", 1);
    kt_list_free(&words);
    for (int i = 0; i < 2; i++) free(texts[i]);
    if (job->devices.n > 0) return KT_GOOD;
    return kt_fail(KT_USAGE, "kiln warm needs --arch (sm_90a,sm_80) or --device (h200,a100,cuda:0,sim)");
}

static int nothing_to_build(const warm_call *c) {
    const json_t *row = json_array_get(c->list.skipped, 0);
    if (!row) return kt_fail(KT_USAGE, "there is nothing to build: no call is listed");
    return kt_fail(KT_USAGE, "there is nothing to build: %s is nothing that %s does: %s", kt_json_text(row, "op", "?"),
                   kt_json_text(row, "model", "?"), kt_json_text(row, "why", "?"));
}

static int read_calls(warm_call *c) {
    int64_t *tokens = NULL;
    kt_warm_models m = {.names = c->models, .sizes = &c->sizes};
    if (c->operands.n == 0 && c->models.n == 0)
        return kt_fail(KT_USAGE, "kiln warm needs files of recorded shapes, or --model NAME (--model all)");
    if (c->models.n == 0 && (c->tokens || c->ops))
        return kt_fail(KT_USAGE, "--tokens and --op go with --model; lines of files have both");
    if (c->ops) split(c->ops, &c->ops_text, &m.ops);
    int code = kt_parse_tokens(c->tokens ? c->tokens : KT_USUAL_TOKENS, &tokens, &m.n_tokens);
    m.tokens = tokens;
    for (size_t i = 0; i < c->operands.n && code == KT_GOOD; i++)
        code = kt_warm_list_file(&c->list, c->operands.item[i]);
    if (code == KT_GOOD && c->models.n > 0) code = kt_warm_list_models(&c->list, &m);
    free(tokens);
    kt_list_free(&m.ops);
    return code == KT_GOOD && c->list.n == 0 ? nothing_to_build(c) : code;
}

static int64_t usable_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* ---- packs ------------------------------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at) {
    (void)st, (void)flag, (void)at;
    return remove(path);
}

/* A pack grows in a directory beside it, where an interrupted run goes on; what the pack had stays in it. */
static int write_pack(warm_call *c) {
    const char *from[2];
    int32_t n = 0;
    if (access(c->pack, F_OK) == 0) from[n++] = c->pack;
    if (access(c->parts, F_OK) == 0) from[n++] = c->parts;
    /* Nothing new (a pack that is complete may lie where nobody can write), or nothing at all. */
    if (n == 0 || (n == 1 && from[0] == c->pack)) return KT_GOOD;
    KT_TRY(kt_status(
        c->lib, KT_CALL(c->lib, "kiln_cache_merge", KT_PTR(from), KT_I32(n), KT_STR(c->pack), KT_PTR(&c->entries))));
    if (nftw(c->parts, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return kt_fail(KT_ENVIRONMENT, "%s: %s", c->parts, strerror(errno));
    return KT_GOOD;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static int print_json(const warm_call *c) {
    const kt_warm_result *r = &c->result;
    json_t *out = json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:O, s:O, s:O}", "calls", (json_int_t)r->calls, "kernels",
                            (json_int_t)r->kernels, "built", (json_int_t)r->built, "cached", (json_int_t)r->cached,
                            "failed", (json_int_t)r->failed, "seconds", r->seconds, "groups", r->groups, "failures",
                            r->failures, "skipped", c->list.skipped);
    if (c->pack)
        json_object_set_new(out, "pack", json_pack("{s:s, s:I}", "path", c->pack, "entries", (json_int_t)c->entries));
    return kt_print_json(out);
}

static int print_text(const warm_call *c) {
    const kt_warm_result *r = &c->result;
    size_t i, n_skipped = json_array_size(c->list.skipped);
    const json_t *row;
    json_array_foreach(r->failures, i, row) {
        printf("failed: %s of %s on %s\n  %s\n", kt_json_text(row, "op", "?"), kt_json_text(row, "what", "?"),
               kt_json_text(row, "device", "?"), kt_json_text(row, "error", "?"));
        const char *line = kt_json_text(row, "line", NULL);
        if (line) printf("  %s\n", line);
    }
    if (n_skipped > 5) printf("%zu operations are nothing that their model does (--json lists them)\n", n_skipped);
    for (i = 0; i < n_skipped && n_skipped <= 5; i++) {
        row = json_array_get(c->list.skipped, i);
        printf("%s is nothing that %s does: %s\n", kt_json_text(row, "op", "?"), kt_json_text(row, "model", "?"),
               kt_json_text(row, "why", "?"));
    }
    printf("%" PRIu64 " calls, %" PRIu64 " kernels: %" PRIu64 " built, %" PRIu64 " cached, %" PRIu64 " failed, in %s\n",
           r->calls, r->kernels, r->built, r->cached, r->failed, kt_time_text(r->seconds));
    if (c->pack && c->entries) printf("%s: %" PRIu64 " entries\n", c->pack, c->entries);
    return KT_GOOD;
}

static int print_groups(const warm_call *c) {
    const kt_warm_result *r = &c->result;
    kt_table t = kt_table_begin(4, (const char *const[]){"for", "operation", "device", ">kernels"});
    size_t i;
    const json_t *row;
    json_array_foreach(r->groups, i, row) {
        kt_table_cell(&t, "%s", kt_json_text(row, "group", "?"));
        kt_table_cell(&t, "%s", kt_json_text(row, "op", "?"));
        kt_table_cell(&t, "%s, %s", kt_json_text(row, "device", "?"), kt_json_text(row, "shapes", "?"));
        kt_table_cell(&t, "%.0f", kt_json_number(row, "kernels", 0));
    }
    kt_table_end(&t, 0);
    printf("%" PRIu64 " calls, %" PRIu64 " kernels\n", r->calls, r->kernels);
    return KT_GOOD;
}

static int run(warm_call *c, kt_warm_job *job) {
    if (c->list_models) return list_models(c);
    if (c->pack && c->cache) return kt_fail(KT_USAGE, "--pack and --cache exclude each other");
    KT_TRY(read_machines(c, job));
    KT_TRY(read_calls(c));
    KT_TRY(kt_library_open(c->library, &c->lib));
    job->lib = c->lib;
    job->exact = c->exact;
    job->plan_only = c->plan_only;
    job->threads = c->threads > 0 ? c->threads : usable_cores();
    job->on_terminal = isatty(STDERR_FILENO);
    job->cache_dir = c->cache;
    job->read_only = "";
    if (c->pack) {
        job->cache_dir = c->parts = kt_format("%s.parts", c->pack);
        if (access(c->pack, F_OK) == 0) job->read_only = c->pack;
        unsetenv("KILN_CACHE_MAX"); /* which bounds caches, not what becomes a pack */
    }
    int code = kt_warm_run(job, &c->list, &c->result);
    if (code != KT_GOOD && code != KT_CHECK) return code;
    if (c->pack && !c->plan_only) {
        int written = write_pack(c);
        if (written != KT_GOOD) return written;
    }
    KT_TRY(c->json ? print_json(c) : c->plan_only ? print_groups(c) : print_text(c));
    return code;
}

int kt_cmd_warm(const kt_command *self, int argc, char **argv) {
    warm_call c = {0};
    kt_warm_job job = {0};
    const kt_option options[] = {
        {"model", KT_LIST, &c.models, "NAME", "build for a published model, or all (as often as wanted)"},
        {"tokens", KT_TEXT, &c.tokens, "LIST", "token counts of a model's calls (" KT_USUAL_TOKENS ")"},
        {"op", KT_TEXT, &c.ops, "LIST", "operations of a model (all that it does)"},
        {"option", KT_LIST, &c.sizes.settings, "NAME=VALUE", "with one --op: an option of it"},
        {"dtype", KT_LIST, &c.sizes.dtypes, "[ARG=]TYPE", "with --model: type of an argument, or of all that are free"},
        {"with", KT_LIST, &c.sizes.with, "ARG", "with one --op: an optional input is present"},
        {"without", KT_LIST, &c.sizes.without, "ARG", "with one --op: an optional input or an output is absent"},
        {"arch", KT_TEXT, &c.arch, "LIST", "build for these architectures' reference devices: " KT_ARCHITECTURES},
        {"device", KT_TEXT, &c.device, "LIST", "build for these machines: " KT_MACHINES ",cuda:0,sim"},
        {"exact", KT_FLAG, &c.exact, NULL, "also the kernels of the very token counts"},
        {"pack", KT_TEXT, &c.pack, "FILE", "write a pack (and add to it if it is there) instead of the cache"},
        {"o", KT_TEXT, &c.pack, "FILE", "the same"},
        {"cache", KT_TEXT, &c.cache, "DIR", "fill this directory instead of KILN_CACHE_DIR"},
        {"j", KT_NUMBER, &c.threads, "N", "threads (as many as there are cores)"},
        {"dry-run", KT_FLAG, &c.plan_only, NULL, "build nothing; count the kernels"},
        {"models", KT_FLAG, &c.list_models, NULL, "list the models and their operations"},
        KT_OPTION_JSON(&c.json),
        KT_OPTION_LIBRARY(&c.library),
        KT_OPTIONS_END,
    };
    kt_warm_list_begin(&c.list);
    int code = kt_args_parse(self, options, argc, argv, &c.operands);
    if (code == KT_GOOD) code = run(&c, &job);
    kt_warm_result_free(&c.result);
    kt_warm_list_free(&c.list);
    kt_sizes_free(&c.sizes);
    kt_list_free(&job.devices);
    kt_list_free(&c.models);
    kt_list_free(&c.operands);
    free(c.ops_text);
    free(c.devices_text);
    free(c.parts);
    kt_library_close(c.lib);
    return code;
}
