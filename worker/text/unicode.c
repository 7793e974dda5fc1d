#include "worker/text/unicode.h"

#include <string.h>

void unicode_expand(uint8_t table[UNICODE_TABLE_END])
{
    memset(table, UNICODE_BEYOND, UNICODE_TABLE_END);
    for (size_t i = 0; i < unicode_runs_n; i++)
        memset(table + unicode_runs[i].first, unicode_runs[i].flags, unicode_runs[i].n);
}
