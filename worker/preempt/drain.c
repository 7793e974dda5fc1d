#include "worker/preempt/drain.h"

#include "base/clock.h"

#define RESERVE_LONG_S 20          /* notices of 30 s and more: a slow store or broker gets more time */
#define BUDGET_SHORT_S 15          /* between this and the long one the reserve grows evenly */
#define BUDGET_LONG_S 30
#define LEAVE_NS (3 * NS_PER_S)
#define LEAVE_END_NS (NS_PER_S * 9 / 2)

static int64_t reserve_ns(int64_t budget_ns)
{
    const int64_t least_ms = DRAIN_RESERVE_S * 1000, most_ms = RESERVE_LONG_S * 1000;
    const int64_t from_ms = BUDGET_SHORT_S * 1000, to_ms = BUDGET_LONG_S * 1000;
    int64_t budget_ms = budget_ns / NS_PER_MS;

    if (budget_ms <= least_ms)
        return budget_ns;
    if (budget_ms <= from_ms)
        return least_ms * NS_PER_MS;
    if (budget_ms >= to_ms)
        return most_ms * NS_PER_MS;
    return (least_ms + (most_ms - least_ms) * (budget_ms - from_ms) / (to_ms - from_ms)) * NS_PER_MS;
}

struct drain_times drain_times_make(int64_t now_ns, int64_t deadline_ns)
{
    int64_t budget_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0, reserve = reserve_ns(budget_ns);
    int64_t begin_ns = now_ns + budget_ns - reserve;

    return (struct drain_times){
        .plan = { .finish_until_ns = begin_ns, .save_until_ns = begin_ns + reserve / 3,
                  .commit_until_ns = begin_ns + reserve / 12 * 7, .leave_until_ns = begin_ns + reserve / 6 * 5 },
        .end_ns = now_ns + budget_ns };
}

struct drain_times drain_times_leave(int64_t now_ns)
{
    return (struct drain_times){
        .plan = { .finish_until_ns = now_ns, .save_until_ns = now_ns, .commit_until_ns = now_ns,
                  .leave_until_ns = now_ns + LEAVE_NS },
        .end_ns = now_ns + LEAVE_END_NS };
}
