/* Any bytes as commit metadata. What must hold: a text that is taken is written again byte for byte, and its tracker works. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "queue/tracker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_take(size + 1), *again = mem_take(size + 64), hash[9];
    int64_t window = size > 0 ? 1 + data[size - 1] : 1;
    struct tracker *t;
    struct error err;

    memcpy(text, data, size);
    text[size] = '\0';
    if (tracker_decode(text, 1000, window, hash, &t, &err) == ST_OK) {
        ASSERT(tracker_encode(t, hash, again, size + 64) == ST_OK && strcmp(text, again) == 0);
        for (int64_t o = 1000; o < 1000 + 2 * window; o++) {
            bool done = tracker_is_done(t, o);
            status st = tracker_receive(t, o);

            ASSERT((st == ST_REJECT) == done || st == ST_AGAIN);
            if (st == ST_OK && o % 3 == 0)
                tracker_done(t, o);
            ASSERT(tracker_lwm(t) <= o + 1 || tracker_open_n(t) == 0);
        }
        tracker_close(t);
    }
    free(text);
    free(again);
    return 0;
}
