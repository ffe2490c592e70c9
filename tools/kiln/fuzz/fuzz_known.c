/* The ledger of known findings: see fuzz_known.h. */
#include "fuzz/fuzz_known.h"

#include "common/report.h"

#include <string.h>

static int check_row(const char *path, size_t i, const json_t *row) {
    static const char *const keys[] = {"op", "kind", "argument", "message", "why"};
    const char *key;
    json_t *value;
    if (!json_is_object(row)) return kt_fail(KT_USAGE, "%s: row %zu is not an object", path, i + 1);
    json_object_foreach((json_t *)(uintptr_t)row, key, value) {
        bool known = false;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) known = known || strcmp(keys[k], key) == 0;
        if (!known || !json_is_string(value))
            return kt_fail(KT_USAGE,
                           "%s: row %zu: \"%s\" is not a text that a row has; wanted op, kind, argument, message, why",
                           path, i + 1, key);
    }
    const char *why = json_string_value(json_object_get(row, "why"));
    if (!why || !*why) return kt_fail(KT_USAGE, "%s: row %zu does not say why", path, i + 1);
    if (json_object_size(row) < 2) return kt_fail(KT_USAGE, "%s: row %zu would match every finding", path, i + 1);
    return KT_GOOD;
}

int kt_fuzz_known_read(const char *path, json_t **out) {
    *out = path ? NULL : json_array();
    if (!path) return KT_GOOD;
    KT_TRY(kt_read_json(path, out));
    if (!json_is_array(*out)) return kt_fail(KT_USAGE, "%s is not a list", path);
    for (size_t i = 0; i < json_array_size(*out); i++) KT_TRY(check_row(path, i, json_array_get(*out, i)));
    return KT_GOOD;
}

static bool says(const json_t *row, const char *key, const char *seen) {
    const char *wanted = json_string_value(json_object_get(row, key));
    return !wanted || strcmp(wanted, seen) == 0;
}

json_t *kt_fuzz_known_find(json_t *ledger, const kt_fuzz_case *c, const kt_fuzz_finding *finding) {
    const char *argument = finding->arg >= 0 ? c->op->args[finding->arg].name : "";
    for (size_t i = 0; i < json_array_size(ledger); i++) {
        json_t *row = json_array_get(ledger, i);
        const char *part = json_string_value(json_object_get(row, "message"));
        if (!says(row, "op", c->op->name) || !says(row, "kind", kt_fuzz_kind_names[finding->kind]) ||
            !says(row, "argument", argument) || (part && !strstr(finding->message, part)))
            continue;
        json_object_set_new(row, "seen", json_integer(1 + json_integer_value(json_object_get(row, "seen"))));
        return row;
    }
    return NULL;
}
