/* kn_expand: expand one template on the command line, for whoever writes templates.
 *   kn_expand [-l] [-m] [-g] TEMPLATE target=sm_90a NAME=VALUE...    -l lint, -m print the line map, -g with .loc lines
 *   kn_expand [-l] -e N TEMPLATE                                     the template's N-th #example, from 1
 * The PTX goes to standard output, its metadata to standard error. KILN_TEMPLATE_DIR names the templates' directory. */
#include "jit/expand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const char *name;
    uint32_t flags;
    int example, seen;
    bool map;
} job;

static kn_status print(const job *j, const kn_params *params, const char *target) {
    kn_expansion x;
    KN_TRY(kn_expand(j->name, params, target, j->flags, &x));
    const kn_kernel_meta *m = &x.meta;
    fprintf(stderr,
            "%s: %s, PTX %u.%u, %u lines, threads %u x %u x %u, cluster %u x %u x %u, smem %u + %u static, %u "
            "arguments%s\n",
            m->entry, m->target, m->ptx_version / 10, m->ptx_version % 10, m->ptx_lines, m->threads[0], m->threads[1],
            m->threads[2], m->cluster[0], m->cluster[1], m->cluster[2], m->smem_dynamic, m->smem_static, m->n_args,
            m->grid_dependency ? ", waits for the grid before" : "");
    kn_buf map;
    kn_buf_init(&map, 64u << 20);
    kn_status st = j->map ? kn_expansion_write_map(&x, &map) : KN_OK;
    fputs(j->map ? map.data : x.ptx, stdout);
    kn_buf_free(&map);
    kn_expansion_free(&x);
    return st;
}

static kn_status visit(void *user, uint32_t line, const kn_params *params, const char *target) {
    job *j = user;
    (void)line;
    return ++j->seen == j->example ? print(j, params, target) : KN_OK;
}

static kn_status run(job *j, int argc, char **argv) {
    kn_params params = {0};
    const char *target = NULL;
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) return kn_fail(KN_E_ARG, "expected NAME=VALUE, not %s", argv[i]);
        *value++ = '\0';
        char *end = NULL;
        long long number = strtoll(value, &end, 0);
        if (strcmp(argv[i], "target") == 0) {
            target = value;
        } else if (*value && !*end) {
            kn_params_set(&params, argv[i], number);
        } else {
            kn_params_set_name(&params, argv[i], value);
        }
    }
    if (!j->example) return print(j, &params, target);
    KN_TRY(kn_template_examples(j->name, visit, j));
    return j->seen < j->example ? kn_fail(KN_E_ARG, "%s has %d examples", j->name, j->seen) : KN_OK;
}

int main(int argc, char **argv) {
    job j = {0};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (argv[i][1] == 'l') j.flags |= KN_EXPAND_LINT;
        if (argv[i][1] == 'g') j.flags |= KN_EXPAND_LINEINFO;
        if (argv[i][1] == 'm') j.map = true;
        if (argv[i][1] == 'e' && i + 1 < argc) j.example = atoi(argv[++i]);
    }
    if (i >= argc) {
        fprintf(stderr, "usage: kn_expand [-l] [-m] [-g] [-e N] TEMPLATE [target=sm_90a NAME=VALUE...]\n");
        return 2;
    }
    j.name = argv[i];
    if (run(&j, argc - i - 1, argv + i + 1) == KN_OK) return 0;
    fprintf(stderr, "%s\n", kn_error_message());
    return 1;
}
