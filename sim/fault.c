/* The words of a fault: where, who, which instruction, what. */
#include "sim/fault.h"
#include "sim/ptx_module.h"

#include <stdarg.h>
#include <stdio.h>

/* "template.ptxt:12" or "PTX line 34". */
static void origin_text(const kn_run *run, uint32_t line, char *out, size_t cap) {
    const kn_sim_launch *launch = run->launch;
    if (launch->origin)
        launch->origin(launch->origin_user, line, out, cap);
    else
        snprintf(out, cap, "PTX line %u", line);
}

kn_status kn_fault(kn_machine *m, const kn_warp *w, const kn_insn *i, int lane, const char *fmt, ...) {
    char where[192], who[32] = "", text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    origin_text(m->run, i->line, where, sizeof where);
    if (lane >= 0) snprintf(who, sizeof who, " lane %d", lane);
    const kn_cta *c = w->cta;
    return kn_fail(KN_E_SIM, "%s: CTA (%u,%u,%u) warp %u%s: %s: %s", where, c->id[0], c->id[1], c->id[2], w->id, who,
                   i->text, text);
}

/* One row of the deadlock report for each group of lanes of each warp that still lives. */
kn_status kn_deadlock(kn_machine *m) {
    const kn_cluster *c = m->cluster;
    const kn_warp *first = NULL;
    char text[1800], where[192];
    size_t at = 0;
    uint32_t more = 0;
    for (uint32_t k = 0; k < c->n_warps; k++) {
        const kn_warp *w = &c->warps[k];
        for (uint32_t g = 0; g < w->n_groups; g++) {
            const kn_group *gr = &w->group[g];
            const kn_insn *i = &m->entry->code[gr->pc];
            if (!first) first = w;
            if (at + 200 > sizeof text) {
                more++;
                continue;
            }
            origin_text(m->run, i->line, where, sizeof where);
            where[80] = 0;
            int n =
                snprintf(text + at, sizeof text - at, "\n  CTA (%u,%u,%u) warp %u lanes %08x at %s: %.48s, %.40s %llu",
                         w->cta->id[0], w->cta->id[1], w->cta->id[2], w->id, gr->mask, where, i->text,
                         gr->state == KN_G_ALIGN ? "waits for its warp's other lanes"
                         : gr->wait              ? gr->wait
                                                 : "waits",
                         (unsigned long long)gr->wait_arg);
            at += n > 0 && (size_t)n < sizeof text - at ? (size_t)n : 0;
        }
    }
    if (!first) return kn_fail(KN_E_INTERNAL, "deadlock without a live warp");
    if (more) snprintf(text + at, sizeof text - at, "\n  and %u more", more);
    return kn_fault(m, first, &m->entry->code[first->group[0].pc], -1,
                    "deadlock: every warp of the cluster waits for something that cannot happen:%s", text);
}
