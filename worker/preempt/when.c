/* Times of the clouds. Wall clocks of a metadata service and of this machine may differ by seconds, so nothing here is
 * trusted to be in the future or near. */
#include <stdio.h>
#include <string.h>

#include "worker/preempt/internal.h"

/* Days since 1970-01-01 of a date of the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date algorithms",
 * days_from_civil). */
static int64_t days_from_civil(int64_t y, int m, int d)
{
    int64_t era;
    int yoe, doy, doe;

    y -= m <= 2;
    era = (y >= 0 ? y : y - 399) / 400;
    yoe = (int)(y - era * 400);
    doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return era * 146097 + doe - 719468;
}

static status time_make(int y, int mon, int d, int h, int min, int s, int64_t *unix_s)
{
    if (y < 1970 || y > 9999 || mon < 1 || mon > 12 || d < 1 || d > 31 || h < 0 || h > 23 || min < 0 || min > 59 || s < 0 || s > 60)
        return ST_REJECT;
    *unix_s = ((days_from_civil(y, mon, d) * 24 + h) * 60 + min) * 60 + s;
    return ST_OK;
}

status when_parse(const char *text, int64_t *unix_s)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int y, mon, d, h, min, s, end = -1;
    char month[4];
    const char *at;

    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &y, &mon, &d, &h, &min, &s, &end) == 6 && end > 0) {
        if (text[end] == '.')
            end += 1 + (int)strspn(text + end + 1, "0123456789");
        return strcmp(text + end, "Z") == 0 ? time_make(y, mon, d, h, min, s, unix_s) : ST_REJECT;
    }
    if (sscanf(text, "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT%n", &d, month, &y, &h, &min, &s, &end) == 6 && end > 0 &&
        text[end] == '\0' && strlen(month) == 3) {
        at = strstr(months, month);
        if (at == NULL || (at - months) % 3 != 0)
            return ST_REJECT;
        return time_make(y, (int)(at - months) / 3 + 1, d, h, min, s, unix_s);
    }
    return ST_REJECT;
}

int64_t when_deadline_ns(int64_t unix_s, int64_t longest_s)
{
    int64_t left_s = unix_s - clock_wall_ns() / NS_PER_S;

    left_s = left_s < 0 ? 0 : left_s > longest_s ? longest_s : left_s;
    return clock_mono_ns() + left_s * NS_PER_S;
}
