/* Time: a monotonic clock for durations and the calendar for time stamps. */
#ifndef KN_BASE_CLOCK_H
#define KN_BASE_CLOCK_H

#include <stdint.h>

uint64_t kn_clock_ns(void); /* monotonic, nanoseconds */
int64_t kn_time_s(void);    /* seconds since 1970, UTC */

#endif
