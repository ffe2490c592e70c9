/* kiln cache: stat, ls, show, verify, trim, pack and merge, over a cache directory or a pack. */
#include "abi/library.h"
#include "commands.h"
#include "common/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct cache_call {
    const char *library, *out;
    int64_t max_bytes; /* -1: not given */
    bool json;
    kt_list operands; /* the verb first */
    kt_library *lib;
} cache_call;

/* The one path that a verb may have; NULL is the default directory. */
static int one_path(const cache_call *c, size_t at, const char **path) {
    if (c->operands.n > at + 1)
        return kt_fail(KT_USAGE, "kiln cache %s takes one path; it got %zu", c->operands.item[0], c->operands.n - at);
    *path = c->operands.n > at ? c->operands.item[at] : NULL;
    return KT_GOOD;
}

static int list_entries(const cache_call *c, const char *path, json_t **out) {
    return KT_CALL_JSON(c->lib, out, "kiln_cache_json", KT_STR(path));
}

static int run_stat(const cache_call *c) {
    const char *path = NULL;
    KT_TRY(one_path(c, 1, &path));
    json_t *list = NULL, *entry;
    KT_TRY(list_entries(c, path, &list));
    size_t i, n = 0, bad = 0;
    double bytes = 0, payload = 0;
    json_array_foreach(json_object_get(list, "entries"), i, entry) {
        n++;
        bad += json_object_get(entry, "error") != NULL;
        bytes += kt_json_number(entry, "bytes", 0);
        payload += kt_json_number(entry, "payload_bytes", 0);
    }
    json_t *stat = json_pack("{s:s, s:I, s:I, s:f, s:f}", "path", kt_json_text(list, "path", ""), "entries",
                             (json_int_t)n, "damaged", (json_int_t)bad, "bytes", bytes, "payload_bytes", payload);
    json_decref(list);
    if (c->json) return kt_print_json(stat);
    printf("%s: %zu entries, %s (%s unpacked), %zu damaged\n", kt_json_text(stat, "path", "?"), n, kt_bytes_text(bytes),
           kt_bytes_text(payload), bad);
    json_decref(stat);
    return KT_GOOD;
}

static const char *age_text(double last_used, char *buf, size_t cap) {
    if (last_used <= 0) return "-";
    double age = difftime(time(NULL), (time_t)last_used);
    if (age < 120)
        snprintf(buf, cap, "%.0f s", age > 0 ? age : 0.0);
    else if (age < 7200)
        snprintf(buf, cap, "%.0f min", age / 60);
    else if (age < 172800)
        snprintf(buf, cap, "%.0f h", age / 3600);
    else
        snprintf(buf, cap, "%.0f days", age / 86400);
    return buf;
}

static int run_ls(const cache_call *c) {
    const char *path = NULL;
    KT_TRY(one_path(c, 1, &path));
    json_t *list = NULL, *entry;
    KT_TRY(list_entries(c, path, &list));
    if (c->json) return kt_print_json(list);
    kt_table t = kt_table_begin(5, (const char *const[]){"entry", ">bytes", ">last used", "assembler", "kernel"});
    size_t i;
    json_array_foreach(json_object_get(list, "entries"), i, entry) {
        char buf[32];
        kt_table_cell(&t, "%s", kt_json_text(entry, "name", "?"));
        kt_table_cell(&t, "%.0f", kt_json_number(entry, "bytes", 0));
        kt_table_cell(&t, "%s", age_text(kt_json_number(entry, "last_used", 0), buf, sizeof buf));
        kt_table_cell(&t, "%s", kt_json_text(entry, "assembler", "-"));
        const char *error = kt_json_text(entry, "error", NULL);
        kt_table_cell(&t, "%s%s", error ? "DAMAGED: " : "", error ? error : kt_json_text(entry, "kernel", "-"));
    }
    kt_table_end(&t, 0);
    json_decref(list);
    return KT_GOOD;
}

static void print_object(json_t *object, const char *title) {
    if (json_object_size(object) == 0) return;
    printf("  %s\n", title);
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        char *text = json_is_string(value) ? kt_copy(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
        printf("    %s = %s\n", name, text ? text : "?");
        free(text);
    }
}

/* One entry, named by the start of its name, in full. */
static int run_show(const cache_call *c) {
    if (c->operands.n < 2) return kt_fail(KT_USAGE, "kiln cache show needs the start of an entry's name");
    const char *path = NULL, *start = c->operands.item[1];
    KT_TRY(one_path(c, 2, &path));
    json_t *list = NULL, *entry, *found = NULL;
    KT_TRY(list_entries(c, path, &list));
    size_t i, n = 0;
    json_array_foreach(json_object_get(list, "entries"), i, entry) {
        if (strncmp(kt_json_text(entry, "name", ""), start, strlen(start)) != 0) continue;
        found = entry;
        n++;
    }
    int code = KT_GOOD;
    if (n != 1) {
        code = kt_fail(KT_USAGE, "%zu entries of %s have names that start with \"%s\"; wanted one", n,
                       kt_json_text(list, "path", "?"), start);
    } else if (c->json) {
        code = kt_print_json(json_incref(found));
    } else {
        printf("%s\n  %.0f bytes, made by %s\n", kt_json_text(found, "name", "?"), kt_json_number(found, "bytes", 0),
               kt_json_text(found, "assembler", "?"));
        if (json_object_get(found, "error")) printf("  DAMAGED: %s\n", kt_json_text(found, "error", "?"));
        print_object(json_object_get(found, "key"), "key");
        print_object(json_object_get(found, "meta"), "metadata");
    }
    json_decref(list);
    return code;
}

static int run_verify(const cache_call *c) {
    const char *path = NULL;
    KT_TRY(one_path(c, 1, &path));
    enum { REPORT_BYTES = 256 << 10 };
    char *report = kt_alloc(1, REPORT_BYTES);
    uint64_t checked = 0, bad = 0;
    int code = kt_status(c->lib, KT_CALL(c->lib, "kiln_cache_verify", KT_STR(path), KT_PTR(&checked), KT_PTR(&bad),
                                         KT_PTR(report), KT_U64(REPORT_BYTES)));
    if (code == KT_GOOD && c->json) {
        code = kt_print_json(
            json_pack("{s:I, s:I, s:s}", "checked", (json_int_t)checked, "bad", (json_int_t)bad, "report", report));
    } else if (code == KT_GOOD) {
        fputs(report, stdout);
        printf("%" PRIu64 " entries expanded again and compared, %" PRIu64 " bad\n", checked, bad);
    }
    if (code == KT_GOOD && bad) code = kt_fail(KT_CHECK, "%" PRIu64 " cache entries are bad", bad);
    free(report);
    return code;
}

static int run_trim(const cache_call *c) {
    const char *path = NULL;
    KT_TRY(one_path(c, 1, &path));
    if (c->max_bytes < 0) return kt_fail(KT_USAGE, "kiln cache trim needs --max BYTES");
    uint64_t removed = 0, bytes = 0;
    KT_TRY(kt_status(c->lib, KT_CALL(c->lib, "kiln_cache_trim", KT_STR(path), KT_I64(c->max_bytes), KT_PTR(&removed),
                                     KT_PTR(&bytes))));
    if (c->json)
        return kt_print_json(
            json_pack("{s:I, s:I}", "removed", (json_int_t)removed, "removed_bytes", (json_int_t)bytes));
    printf("%" PRIu64 " entries removed, %s\n", removed, kt_bytes_text((double)bytes));
    return KT_GOOD;
}

/* pack: the default directory or one path; merge: at least one path. Both write one pack. */
static int run_merge(const cache_call *c) {
    bool pack = strcmp(c->operands.item[0], "pack") == 0;
    if (!c->out) return kt_fail(KT_USAGE, "kiln cache %s needs -o PACK", c->operands.item[0]);
    size_t n = c->operands.n - 1;
    if (!pack && n < 1) return kt_fail(KT_USAGE, "kiln cache merge needs directories or packs to merge");
    json_t *list = NULL;
    const char *const *paths = c->operands.item + 1;
    const char *only = NULL;
    if (pack) {
        KT_TRY(one_path(c, 1, &only));
        if (!only) { /* ask where the default directory is */
            KT_TRY(list_entries(c, NULL, &list));
            only = kt_json_text(list, "path", "");
        }
        paths = &only;
        n = 1;
    }
    uint64_t entries = 0;
    int code = kt_status(c->lib, KT_CALL(c->lib, "kiln_cache_merge", KT_PTR(paths), KT_I32((int32_t)n), KT_STR(c->out),
                                         KT_PTR(&entries)));
    json_decref(list);
    KT_TRY(code);
    if (c->json) return kt_print_json(json_pack("{s:s, s:I}", "path", c->out, "entries", (json_int_t)entries));
    printf("%s: %" PRIu64 " entries\n", c->out, entries);
    return KT_GOOD;
}

static int run(cache_call *c) {
    static const struct {
        const char *verb;
        int (*run)(const cache_call *c);
    } verbs[] = {{"stat", run_stat}, {"ls", run_ls},      {"show", run_show},  {"verify", run_verify},
                 {"trim", run_trim}, {"pack", run_merge}, {"merge", run_merge}};
    if (c->operands.n < 1)
        return kt_fail(KT_USAGE, "kiln cache needs one of stat, ls, show, verify, trim, pack, merge");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verbs[i].verb, c->operands.item[0]) != 0) continue;
        KT_TRY(kt_library_open(c->library, &c->lib));
        return verbs[i].run(c);
    }
    return kt_fail(KT_USAGE, "kiln cache has no \"%s\"; it has stat, ls, show, verify, trim, pack, merge",
                   c->operands.item[0]);
}

int kt_cmd_cache(const kt_command *self, int argc, char **argv) {
    cache_call c = {.max_bytes = -1};
    const kt_option options[] = {
        {"o", KT_TEXT, &c.out, "PACK", "pack, merge: the pack to write"},
        {"max", KT_BYTES, &c.max_bytes, "BYTES", "trim: keep at most that much (suffixes K, M, G, T)"},
        KT_OPTION_JSON(&c.json),
        KT_OPTION_LIBRARY(&c.library),
        KT_OPTIONS_END,
    };
    int code = kt_args_parse(self, options, argc, argv, &c.operands);
    if (code == KT_GOOD) code = run(&c);
    kt_list_free(&c.operands);
    kt_library_close(c.lib);
    return code;
}
