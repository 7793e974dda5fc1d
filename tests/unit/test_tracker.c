/* The tracker against a naive set: each step of many random histories compared; then its text, sound and hostile. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "queue/tracker.h"

#define HORIZON 40000

static uint64_t state_word;

static uint64_t random_next(void)      /* splitmix64 */
{
    uint64_t z = (state_word += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int64_t below(int64_t n)
{
    return (int64_t)(random_next() % (uint64_t)n);
}

/* What a person would write: one byte an offset, everything searched from the start. */
struct naive {
    int64_t base, last;
    bool received[HORIZON], done[HORIZON];      /* at offset - base */
};

static struct naive naive;

static int64_t naive_lwm(void)
{
    int64_t o;

    for (o = naive.base; o <= naive.last; o++)
        if (naive.received[o - naive.base] && !naive.done[o - naive.base])
            return o;
    while (naive.done[o - naive.base])           /* known to be done from before: passed over, too */
        o++;
    return o;
}

static int64_t naive_open(int64_t *some)
{
    int64_t n = 0;

    for (int64_t o = naive.base; o <= naive.last; o++)
        if (naive.received[o - naive.base] && !naive.done[o - naive.base] && below(++n) == 0)
            *some = o;
    return n;
}

static void assert_same(const struct tracker *t, int64_t window)
{
    int64_t some = 0, lwm = naive_lwm(), open_n = naive_open(&some);
    int64_t last = naive.last > lwm - 1 ? naive.last : lwm - 1;

    assert_int_equal(tracker_lwm(t), lwm);
    assert_int_equal(tracker_open_n(t), open_n);
    assert_int_equal(tracker_ahead(t), last + 1 - lwm);
    for (int64_t o = naive.base; o < lwm + window + 70 && o - naive.base < HORIZON; o++) {
        assert_int_equal(tracker_is_done(t, o), o < lwm || naive.done[o - naive.base]);
        assert_int_equal(tracker_is_open(t, o), naive.received[o - naive.base] && !naive.done[o - naive.base] && o <= naive.last);
    }
}

/* Puts the tracker through its text, as a restart would. Received and not done is forgotten. */
static struct tracker *restart(struct tracker *t, int64_t *window)
{
    char text[8192], hash[9];
    int64_t lwm = tracker_lwm(t);
    struct tracker *back;
    struct error err;
    bool open = tracker_open_n(t) > 0;

    assert_int_equal(tracker_encode(t, open ? "0123abcd" : "-", text, sizeof text), ST_OK);
    *window = 1 + below(300);
    assert_int_equal(tracker_decode(text, lwm, *window, hash, &back, &err), ST_OK);
    assert_string_equal(hash, open ? "0123abcd" : "-");
    tracker_close(t);
    memmove(naive.done, naive.done + (lwm - naive.base), sizeof naive.done - (size_t)(lwm - naive.base));
    memset(naive.done + (HORIZON - (lwm - naive.base)), 0, (size_t)(lwm - naive.base));
    memset(naive.received, 0, sizeof naive.received);
    naive.base = lwm;
    naive.last = lwm - 1;
    return back;
}

static void history(uint64_t seed)
{
    int64_t window = 1 + (int64_t)(seed % 200), next, some = 0;
    struct tracker *t;
    int64_t gap_in = 2 + (int64_t)(seed % 20);

    state_word = seed;
    memset(&naive, 0, sizeof naive);
    naive.base = below(1000);
    naive.last = naive.base - 1;
    next = naive.base;
    t = tracker_open(naive.base, window);
    for (int step = 0; step < 400 && next - naive.base < HORIZON - 2000; step++) {
        if (below(100) < 55) {
            int64_t at = next - naive.base, lwm = naive_lwm(), open_n = naive_open(&some);
            status st = tracker_receive(t, next);

            if (at < 0 || next < lwm || naive.done[at] || naive.received[at]) {
                assert_int_equal(st, ST_REJECT);
            } else if (open_n > 0 && next >= lwm + window) {
                assert_int_equal(st, ST_AGAIN);
                step += 5;
                if (naive_open(&some) > 0) {
                    tracker_done(t, some);
                    naive.done[some - naive.base] = true;
                }
                continue;
            } else {
                assert_int_equal(st, ST_OK);
                naive.received[at] = true;
            }
            if (next > naive.last)
                naive.last = next;
            next += below(gap_in) == 0 ? 1 + below(below(8) == 0 ? 900 : 20) : 1;
        } else if (naive_open(&some) > 0) {
            struct tracker *copy = tracker_copy(t);

            assert_same(copy, window);
            tracker_done(t, some);
            tracker_done(copy, some);
            naive.done[some - naive.base] = true;
            assert_same(copy, window);
            tracker_close(copy);
        }
        assert_same(t, window);
        if (below(60) == 0) {
            t = restart(t, &window);
            next = naive.base;
            assert_same(t, window);
        }
    }
    tracker_close(t);
}

static void equals_a_naive_set(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++)
        history(seed);
}

/* Histories of hundreds of thousands of offsets in a moment: nothing is searched from the start. */
static void long_history_is_cheap(void **state)
{
    struct tracker *t = tracker_open(0, 16384);
    int64_t oldest = 0;

    (void)state;
    for (int64_t o = 0; o < 2000000; o++) {
        assert_int_equal(tracker_receive(t, o), ST_OK);
        if (o % 16000 != 0 || o == 0) {
            if (o > 0)
                tracker_done(t, o);
        } else {
            tracker_done(t, oldest);                                 /* held the LWM all the while */
            oldest = o;
        }
        assert_int_equal(tracker_lwm(t), o > 0 && oldest == o ? o : oldest);
    }
    tracker_close(t);
}

static void gaps_never_block(void **state)
{
    struct tracker *t = tracker_open(10, 100);

    (void)state;
    assert_int_equal(tracker_receive(t, 1000000), ST_OK);            /* wider than the window, nothing open */
    assert_int_equal(tracker_lwm(t), 1000000);
    assert_int_equal(tracker_receive(t, 1000050), ST_OK);
    assert_int_equal(tracker_receive(t, 1000100), ST_AGAIN);
    tracker_done(t, 1000000);
    assert_int_equal(tracker_lwm(t), 1000050);
    assert_int_equal(tracker_receive(t, 1000100), ST_OK);
    tracker_done(t, 1000100);
    assert_int_equal(tracker_lwm(t), 1000050);
    tracker_done(t, 1000050);
    assert_int_equal(tracker_lwm(t), 1000101);
    assert_int_equal(tracker_open_n(t), 0);
    assert_int_equal(tracker_ahead(t), 0);
    tracker_close(t);
}

static void text_is_as_designed(void **state)
{
    char text[64], small[16], hash[9];
    struct tracker *t = tracker_open(100, 64), *back;
    struct error err;

    (void)state;
    assert_int_equal(tracker_encode(t, "-", text, sizeof text), ST_OK);
    assert_string_equal(text, "W1:-:");
    for (int64_t o = 100; o < 130; o++)
        assert_int_equal(tracker_receive(t, o), ST_OK);
    tracker_done(t, 101);
    tracker_done(t, 108);
    tracker_done(t, 123);
    assert_int_equal(tracker_encode(t, "00c0ffee", text, sizeof text), ST_OK);
    assert_string_equal(text, "W1:00c0ffee:AgGA");                   /* 02 01 80 */
    assert_int_equal(tracker_encode(t, "00c0ffee", small, 16), ST_REJECT);
    tracker_done(t, 124);
    assert_int_equal(tracker_encode(t, "00c0ffee", text, 20), ST_REJECT);      /* its end needs one more */
    assert_int_equal(tracker_encode(t, "00c0ffee", text, 21), ST_OK);
    assert_string_equal(text, "W1:00c0ffee:AgGAAQ==");
    assert_int_equal(tracker_decode(text, 100, 8, hash, &back, &err), ST_OK);   /* a smaller window keeps every bit */
    assert_true(tracker_is_done(back, 124) && tracker_is_done(back, 123) && !tracker_is_done(back, 122));
    assert_int_equal(tracker_receive(back, 100), ST_OK);
    assert_int_equal(tracker_receive(back, 123), ST_REJECT);
    assert_int_equal(tracker_receive(back, 125), ST_AGAIN);
    tracker_close(back);
    tracker_close(t);
}

/* The widest window still fits into a broker's 4096 bytes. */
static void full_window_fits_a_commit(void **state)
{
    char text[4096];
    struct tracker *t = tracker_open(5, 16384);

    (void)state;
    for (int64_t o = 5; o < 5 + 16384; o++)
        assert_int_equal(tracker_receive(t, o), ST_OK);
    assert_int_equal(tracker_receive(t, 5 + 16384), ST_AGAIN);
    for (int64_t o = 6; o < 5 + 16384; o++)
        tracker_done(t, o);
    assert_int_equal(tracker_encode(t, "01234567", text, sizeof text), ST_OK);
    assert_int_equal(strlen(text), 12 + 2732);
    tracker_close(t);
}

static void foreign_text_is_refused(void **state)
{
    static const char *const texts[] = {
        "", "W", "W1", "W1:", "W1:-", "W2:-:", "w1:-:", "meta", "W1::", "W1:x:", "W1:0123456:", "W1:012345678:", "W1:0123456G:",
        "W1:ABCDEF01:", "W1:-:A", "W1:-:AA", "W1:-:AAA", "W1:-:AQ=", "W1:-:=Q==", "W1:-:AQ==AQ==", "W1:-:AR==", "W1:-:AAF=",
        "W1:-:AA==", "W1:-:AQAA", "W1:-:A Q=", "W1:-:AQ==\n", "W1:-:AQ==:", "W1:-:A\xff==",
    };
    char hash[9], *big;
    struct tracker *t;
    struct error err;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        t = (struct tracker *)&err;
        if (tracker_decode(texts[i], 0, 64, hash, &t, &err) != ST_REJECT || t != NULL)
            fail_msg("\"%s\" is taken", texts[i]);
        assert_non_null(strstr(err.text, "metadata"));
    }
    assert_int_equal(tracker_decode("W1:-:AQ==", 7, 64, hash, &t, &err), ST_OK);
    assert_true(tracker_is_done(t, 7) && !tracker_is_done(t, 8));
    tracker_close(t);
    big = malloc(2000009);
    memset(big, 'A', 2000008);
    memcpy(big, "W1:-:", 5);
    big[2000005] = '\0';
    assert_int_equal(tracker_decode(big, 0, 64, hash, &t, &err), ST_REJECT);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_a_naive_set),
        cmocka_unit_test(long_history_is_cheap),
        cmocka_unit_test(gaps_never_block),
        cmocka_unit_test(text_is_as_designed),
        cmocka_unit_test(full_window_fits_a_commit),
        cmocka_unit_test(foreign_text_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
