/* Making a failing case small: one change after the other is kept if the case still fails in the same way. */
#include "fuzz/fuzz_shrink.h"

#include <string.h>

typedef struct shrink {
    kt_fuzz_machine *machine;
    kt_fuzz_case *best;
    kt_fuzz_finding *finding;
    int runs, most_runs;
} shrink;

/* Keep the changed case if it fails in the same way. */
static bool try_case(shrink *s, kt_fuzz_case *changed) {
    kt_fuzz_finding f = {.kind = KT_FUZZ_PASSED};
    kt_fuzz_case_mend(changed);
    bool better = false;
    if (s->runs < s->most_runs) {
        s->runs++;
        better =
            kt_fuzz_run(s->machine, changed, &f) == KT_GOOD && f.kind == s->finding->kind && f.arg == s->finding->arg;
    }
    if (better) {
        kt_fuzz_case_free(s->best);
        *s->best = *changed;
        *s->finding = f;
    } else {
        kt_fuzz_case_free(changed);
    }
    return better;
}

static bool shrink_options(shrink *s) {
    bool better = false;
    json_t *keys = json_array();
    const char *key;
    json_t *value;
    json_object_foreach(s->best->settings, key, value) json_array_append_new(keys, json_string(key));
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const char *name = json_string_value(json_array_get(keys, i));
        if (strcmp(name, "top_k") == 0) continue;
        kt_fuzz_case changed = kt_fuzz_case_copy(s->best);
        json_object_del(changed.settings, name);
        better = try_case(s, &changed) || better;
    }
    json_decref(keys);
    return better;
}

static void drop_tensor(kt_fuzz_case *c, int i) {
    c->dtype[i] = NULL;
    json_t *accumulate = json_object_get(c->settings, "accumulate");
    for (size_t k = json_array_size(accumulate); k-- > 0;)
        if (strcmp(json_string_value(json_array_get(accumulate, k)), c->op->args[i].name) == 0)
            json_array_remove(accumulate, k);
}

/* Without these the case would be another one, or not one at all. */
static bool is_needed(const kt_fuzz_case *c, int i) {
    const kt_arg *arg = &c->op->args[i];
    if (arg->role == KT_IN || !c->dtype[i]) return true;
    bool limited = json_object_get(json_object_get(c->settings, "activation"), "limit") != NULL;
    return strcmp(arg->name, "topk_indices") == 0 || strcmp(arg->name, "expert_offsets") == 0 ||
           (limited && strncmp(arg->name, "saved_", 6) == 0);
}

static bool shrink_tensors(shrink *s) {
    bool better = false;
    const kt_op *op = s->best->op;
    for (int i = 0; i < op->n_args; i++) {
        if (is_needed(s->best, i) || i == s->finding->arg) continue;
        kt_fuzz_case changed = kt_fuzz_case_copy(s->best);
        drop_tensor(&changed, i);
        better = try_case(s, &changed) || better;
    }
    return better;
}

static bool is_plain(const kt_fuzz_layout *l) {
    return kt_fuzz_is_compact(l) && !l->at_end;
}

static bool shrink_layouts(shrink *s) {
    static const kt_fuzz_layout compact = {0};
    bool better = false, all = false;
    kt_fuzz_case changed = kt_fuzz_case_copy(s->best);
    for (int i = 0; i < KT_MAX_ARGS; i++) {
        all = all || !is_plain(&changed.layout[i]);
        changed.layout[i] = compact;
    }
    if (!all) {
        kt_fuzz_case_free(&changed);
        return false;
    }
    if (try_case(s, &changed)) return true;
    for (int i = 0; i < s->best->op->n_args; i++) {
        if (!s->best->dtype[i] || is_plain(&s->best->layout[i])) continue;
        changed = kt_fuzz_case_copy(s->best);
        changed.layout[i] = compact;
        better = try_case(s, &changed) || better;
    }
    return better;
}

static bool shrink_values(shrink *s) {
    bool better = false;
    for (int what = 0; what < 8; what++) {
        kt_fuzz_case changed = kt_fuzz_case_copy(s->best);
        switch (what) {
        case 0: changed.values = KT_VALUES_NORMAL; break;
        case 1: changed.ids = KT_IDS_UNIFORM; break;
        case 2: changed.skip_percent = 0; break;
        case 3: changed.wild_percent = 0; break;
        case 4: changed.poison = KT_FUZZ_FINITE; break;
        case 5: changed.scale = 1; break;
        case 6: changed.path = KT_FUZZ_PATH_AUTO; break;
        default: changed.in_place = false;
        }
        bool same = changed.values == s->best->values && changed.ids == s->best->ids &&
                    changed.skip_percent == s->best->skip_percent && changed.wild_percent == s->best->wild_percent &&
                    changed.poison == s->best->poison && changed.scale >= s->best->scale &&
                    changed.scale <= s->best->scale && changed.path == s->best->path &&
                    changed.in_place == s->best->in_place;
        if (same)
            kt_fuzz_case_free(&changed);
        else
            better = try_case(s, &changed) || better;
    }
    return better;
}

/* Smaller sizes, the smallest first. */
static bool shrink_size(shrink *s, int letter) {
    int64_t n = s->best->size[letter], tries[] = {0, 1, 2, 8, 16, 64, 128, n / 4, n / 2, n / 2 + 1, n - 8, n - 1};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        if (tries[i] < 0 || tries[i] >= n) continue;
        kt_fuzz_case changed = kt_fuzz_case_copy(s->best);
        changed.size[letter] = tries[i];
        if (try_case(s, &changed)) return true;
    }
    return false;
}

static bool shrink_sizes(shrink *s) {
    bool better = false;
    for (int letter = 0; letter < 26; letter++)
        if (s->best->size[letter] > 0) better = shrink_size(s, letter) || better;
    return better;
}

int kt_fuzz_shrink(kt_fuzz_machine *machine, kt_fuzz_case *c, kt_fuzz_finding *finding, int most_runs) {
    shrink s = {machine, c, finding, 0, most_runs};
    bool better = true;
    while (better && s.runs < s.most_runs) {
        better = shrink_options(&s);
        better = shrink_tensors(&s) || better;
        better = shrink_layouts(&s) || better;
        better = shrink_values(&s) || better;
        better = shrink_sizes(&s) || better;
    }
    return s.runs;
}
