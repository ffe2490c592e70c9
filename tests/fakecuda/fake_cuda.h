/* A libcuda.so.1 for tests: every function of jit/driver.def over host memory, with a call log, checks of how it is
 * used, and a script of what goes wrong. A test points KILN_LIBCUDA at it and reaches the functions below with dlsym.
 *
 * Script: words separated by blanks, from the variable FAKECUDA when the library is loaded and from fakecuda_script():
 *
 *   version=12040             what cuDriverGetVersion says (13000)
 *   devices=2                 number of devices (1); at most 4
 *   device=1:8.6:84:101376    compute capability, multiprocessors, opt-in shared memory of one device (9.0:132:232448)
 *   stub                      every call returns CUDA_ERROR_STUB_LIBRARY
 *   init=100                  result of cuInit
 *   deinit                    every call returns CUDA_ERROR_DEINITIALIZED, as at the end of a process
 *   nopools                   no stream-ordered allocation
 *   pageable                  devices read any host memory
 *   nolog                     cuLink writes no log, as on a hit of the driver's cache
 *   fail=3:999                the third call from now fails with code 999
 *   fail=cuMemAlloc_v2:1:2    the first call of that function from now fails with code 2
 *   reset                     forget failures and misuses, empty the log */
#ifndef KN_TESTS_FAKE_CUDA_H
#define KN_TESTS_FAKE_CUDA_H

#include "jit/driver_api.h"

#define FAKECUDA_CONTROL(X)                                                                                            \
    X(void, fakecuda_script, (const char *words))                                                                      \
    X(unsigned long, fakecuda_calls, (void))             /* calls so far that a script can make fail */                \
    X(unsigned long, fakecuda_count, (const char *name)) /* log lines that begin with `name` */                        \
    X(const char *, fakecuda_log, (void))                /* one line a call, newest last */                            \
    X(long, fakecuda_live, (void))                       /* objects that nobody has freed, primary references too */   \
    X(long, fakecuda_misuses, (void))        /* stale handles, unbalanced pops, work in the wrong context */           \
    X(const char *, fakecuda_misuse, (void)) /* the first of them */                                                   \
    X(void, fakecuda_capture, (kn_cu_stream stream, int on)) /* as if another thread captured it in global mode */     \
    X(int, fakecuda_capture_intact, (void))                  /* 0 once an unsafe call was made during a capture */     \
    X(void, fakecuda_on_launch, (void (*hook)(const char *kernel, const kn_cu_launch_config *, void **params)))

#endif
