/* Crashes and hangs of fuzz cases: see fuzz_crash.h. */
#include "fuzz/fuzz_crash.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char current[256];
static unsigned limit_s;

static void handler(int signal_number) {
    const char *what = signal_number == SIGALRM ? "\nfinding: hang: the case did not end in time: "
                                                : "\nfinding: crash: the process died in: ";
    /* nothing to be done if this cannot be written */
    if (write(STDERR_FILENO, what, strlen(what)) < 0 || write(STDERR_FILENO, current, strlen(current)) < 0)
        _exit(KT_CHECK);
    _exit(KT_CHECK);
}

void kt_fuzz_crash_watch(unsigned seconds) {
    static char stack[64 << 10];
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    limit_s = seconds;
    sigaltstack(&own, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction action = {.sa_flags = SA_ONSTACK};
        action.sa_handler = handler;
        sigaction(signals[i], &action, NULL);
    }
}

void kt_fuzz_crash_case(const char *op, uint64_t seed, uint64_t number) {
    snprintf(current, sizeof current, "kiln fuzz %s --seed %" PRIu64 " --case %" PRIu64 "\n", op, seed, number);
    alarm(limit_s);
}

void kt_fuzz_crash_end(void) {
    alarm(0);
}
