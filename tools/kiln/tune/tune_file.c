/* The result of tuning: the file that the library reads, a table, JSON: see tune.h. */
#include "tune/tune.h"

#include "common/replace.h"
#include "common/report.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

size_t kt_tune_best(const kt_tune_product *p) {
    size_t best = p->planned;
    for (size_t i = 0; i < p->n; i++)
        if (p->candidate[i].us < p->candidate[best].us) best = i;
    bool better = p->candidate[best].us < (1 - KT_TUNE_MARGIN) * p->candidate[p->planned].us;
    return better ? best : p->planned;
}

static void write_head(const kt_tune *t, FILE *f) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fprintf(f, "kiln-tuning 1\ngpu %s\n", kt_json_text(t->bench.device_json, "name", ""));
    if (t->bench.gpu && *kt_gpu_driver(t->bench.gpu)) fprintf(f, "driver %s\n", kt_gpu_driver(t->bench.gpu));
    fprintf(f, "date %s\n", date);
}

int kt_tune_write(const kt_tune *t, const char *path) {
    kt_replacement r;
    KT_TRY(kt_replace_begin(&r, path));
    write_head(t, r.file);
    for (size_t i = 0; i < t->n; i++) {
        const kt_tune_product *p = &t->product[i];
        const kt_tune_candidate *best = &p->candidate[p->best], *planned = &p->candidate[p->planned];
        fprintf(r.file, "product %s %s # %s: %.2f us; by cost %s: %.2f us; %zu measured\n", p->key, best->name,
                p->product, best->us, planned->name, planned->us, p->n);
    }
    return kt_replace_end(&r, true);
}

static double loss(const kt_tune_product *p) {
    double best = p->candidate[p->planned].us;
    for (size_t i = 0; i < p->n; i++)
        if (p->candidate[i].us < best) best = p->candidate[i].us;
    return best > 0 ? p->candidate[p->planned].us / best : 1;
}

void kt_tune_print(const kt_tune *t) {
    static const char *const head[] = {"product", "sizes", "by cost", ">us", "best", ">us", ">of", ">loss"};
    kt_table table = kt_table_begin(8, head);
    double sum = 0, worst = 1;
    for (size_t i = 0; i < t->n; i++) {
        const kt_tune_product *p = &t->product[i];
        const kt_tune_candidate *best = &p->candidate[p->best], *planned = &p->candidate[p->planned];
        double l = loss(p);
        sum += log(l);
        worst = l > worst ? l : worst;
        kt_table_cell(&table, "%s", p->product);
        kt_table_cell(&table, "%s", p->sizes);
        kt_table_cell(&table, "%s", planned->name);
        kt_table_cell(&table, "%.2f", planned->us);
        kt_table_cell(&table, "%s", p->best == p->planned ? "the same" : best->name);
        kt_table_cell(&table, "%.2f", best->us);
        kt_table_cell(&table, "%zu", p->n);
        kt_table_cell(&table, "%.1f%%", 100 * (l - 1));
    }
    kt_table_end(&table, 2);
    if (t->n)
        printf(
            "%zu products: the choices by cost are %.1f%% slower than the best measured ones on average, %.1f%% in the "
            "worst case\n",
            t->n, 100 * (exp(sum / (double)t->n) - 1), 100 * (worst - 1));
}

json_t *kt_tune_json(const kt_tune *t) {
    json_t *products = json_array();
    for (size_t i = 0; i < t->n; i++) {
        const kt_tune_product *p = &t->product[i];
        json_t *candidates = json_array();
        for (size_t k = 0; k < p->n; k++)
            json_array_append_new(candidates, json_pack("{s:s, s:f, s:f}", "name", p->candidate[k].name, "planned_us",
                                                        p->candidate[k].planned_us, "us", p->candidate[k].us));
        json_array_append_new(products, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:o}", "product", p->product,
                                                  "call", p->call, "sizes", p->sizes, "key", p->key, "by_cost",
                                                  p->candidate[p->planned].name, "best", p->candidate[p->best].name,
                                                  "loss", loss(p) - 1, "candidates", candidates));
    }
    return json_pack("{s:s, s:s, s:o}", "gpu", kt_json_text(t->bench.device_json, "name", ""), "driver",
                     t->bench.gpu ? kt_gpu_driver(t->bench.gpu) : "", "products", products);
}
