/* How products were chosen: see plan_explain.h. */
#include "plan/plan_explain.h"

#include "common/report.h"

#include <stdio.h>
#include <string.h>

static void cell_clocks(kt_table *t, const json_t *c, const char *key) {
    kt_table_cell(t, "%.0f", kt_json_number(c, key, 0));
}

static void add_row(kt_table *t, const json_t *c, bool chosen) {
    kt_table_cell(t, "%s%s", chosen ? "> " : "  ", kt_json_text(c, "name", "?"));
    cell_clocks(t, c, "stages");
    cell_clocks(t, c, "tiles");
    cell_clocks(t, c, "waves");
    cell_clocks(t, c, "tensor");
    cell_clocks(t, c, "l2");
    cell_clocks(t, c, "hbm");
    cell_clocks(t, c, "epilogues");
    cell_clocks(t, c, "clocks");
    kt_table_cell(t, "%.1f us", kt_json_number(c, "us", 0));
}

/* "not possible: pingpong-128x128-swap, ... (reason)", candidates with the same reason together. */
static void print_refused(const json_t *candidates) {
    for (size_t i = 0; i < json_array_size(candidates); i++) {
        const char *reason = kt_json_text(json_array_get(candidates, i), "refused", "");
        bool seen = !*reason;
        for (size_t j = 0; j < i && !seen; j++)
            seen = strcmp(reason, kt_json_text(json_array_get(candidates, j), "refused", "")) == 0;
        if (seen) continue;
        printf("    not possible (%s):", reason);
        for (size_t j = i; j < json_array_size(candidates); j++) {
            const json_t *c = json_array_get(candidates, j);
            if (strcmp(reason, kt_json_text(c, "refused", "")) == 0) printf(" %s", kt_json_text(c, "name", "?"));
        }
        printf("\n");
    }
}

static void print_product(const json_t *product, size_t most) {
    static const char *const head[] = {"candidate", ">stages", ">tiles",     ">waves",  ">tensor",
                                       ">L2",       ">HBM",    ">epilogues", ">clocks", ">at 1.7 GHz"};
    const json_t *candidates = json_object_get(product, "candidates");
    const char *chosen = kt_json_text(product, "chosen", "?"), *by = kt_json_text(product, "by", "?");
    printf("%s, %s (M x N x K): %s on the path %s", kt_json_text(product, "product", "?"),
           kt_json_text(product, "sizes", "?"), chosen, kt_json_text(product, "path", "?"));
    if (json_array_size(candidates) == 0) {
        printf(": %s\n", kt_json_text(product, "reason", "?"));
        return;
    }
    printf(", %s\n  key %s\n",
           strcmp(by, "tuning") == 0    ? "as the tuning file says"
           : strcmp(by, "generic") == 0 ? "the cheapest for the token count that generic kernels are planned for"
                                        : "the cheapest",
           kt_json_text(product, "key", "?"));
    kt_table t = kt_table_begin(10, head);
    size_t rows = 0, possible = 0;
    for (size_t i = 0; i < json_array_size(candidates); i++) {
        const json_t *c = json_array_get(candidates, i);
        if (*kt_json_text(c, "refused", "")) continue;
        bool is_chosen = strcmp(chosen, kt_json_text(c, "name", "?")) == 0;
        possible++;
        if (most && rows >= most && !is_chosen) continue;
        add_row(&t, c, is_chosen);
        rows++;
    }
    kt_table_end(&t, 2);
    if (possible > rows) printf("    and %zu more\n", possible - rows);
    print_refused(candidates);
}

void kt_print_products(const json_t *plan, size_t most) {
    size_t i;
    json_t *product;
    json_array_foreach(json_object_get(plan, "products"), i, product) print_product(product, most);
}
