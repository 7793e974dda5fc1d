/* JSON out (json_write.h) and the search for faults (json_scan.h), both against jansson. */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "worker/lines/json_scan.h"
#include "worker/lines/json_write.h"

static void assert_written(const char *text, size_t n, const char *want)
{
    struct buf b = BUF_EMPTY;

    json_add_text(&b, text, n);
    assert_string_equal(buf_text(&b), want);
    buf_fini(&b);
}

static void strings_are_escaped(void **state)
{
    (void)state;
    assert_written("", 0, "\"\"");
    assert_written("plain text, no escapes at all", 29, "\"plain text, no escapes at all\"");
    assert_written("a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\"");
    assert_written("\b\f\n\r\t\x01\x1f\x7f", 8, "\"\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"");
    assert_written("a\0b", 3, "\"a\\u0000b\"");
    assert_written("caf\xc3\xa9 \xf0\x9f\x98\x8a", 10, "\"caf\xc3\xa9 \xf0\x9f\x98\x8a\"");
    /* what some readers take for the end of a line */
    assert_written("\xc2\x85\xe2\x80\xa8\xe2\x80\xa9", 8, "\"\\u0085\\u2028\\u2029\"");
    /* one U+FFFD for each maximal invalid part: Unicode 3.9, table 3-8 */
    assert_written("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", 13,
                   "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" "b\xef\xbf\xbd" "c\xef\xbf\xbd\xef\xbf\xbd" "d\"");
    assert_written("\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    assert_written("\xf0\x9f\x98", 3, "\"\xef\xbf\xbd\"");
}

/* Every escape at every place of an eight-byte word. */
static void words_are_scanned_whole(void **state)
{
    (void)state;
    for (int byte = 0; byte < 128; byte++) {
        for (size_t at = 0; at < 24; at++) {
            struct buf b = BUF_EMPTY;
            char text[24];
            json_t *v;

            memset(text, 'x', sizeof text);
            text[at] = (char)byte;
            json_add_text(&b, text, sizeof text);
            v = json_loadb(b.data, b.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            assert_non_null(v);
            assert_int_equal(json_string_length(v), sizeof text);
            assert_memory_equal(json_string_value(v), text, sizeof text);
            json_decref(v);
            buf_fini(&b);
        }
    }
}

static void random_bytes_make_valid_strings(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        struct buf b = BUF_EMPTY;
        char text[40];
        size_t n = hash64(&i, sizeof i, 1) % sizeof text;
        json_t *v;

        for (size_t k = 0; k < n; k++)
            text[k] = (char)(hash64(&i, sizeof i, 100 + k) >> 7 | ((i & 1) != 0 ? 0x80 : 0));
        json_add_text(&b, text, n);
        v = json_loadb(b.data, b.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(v);
        if (utf8_valid(text, n) == n) {
            assert_int_equal(json_string_length(v), n);
            assert_memory_equal(json_string_value(v), text, n);
        }
        json_decref(v);
        buf_fini(&b);
    }
}

static void assert_float(float f, const char *want)
{
    struct buf b = BUF_EMPTY;

    json_add_float(&b, f);
    assert_string_equal(buf_text(&b), want);
    buf_fini(&b);
}

static void floats_are_short(void **state)
{
    (void)state;
    assert_float(0, "0.0");
    assert_float(-0.0f, "0.0");
    assert_float(-1, "-1.0");
    assert_float(0.1f, "0.1");
    assert_float(-0.25f, "-0.25");
    assert_float(123456.7f, "123456.7");
    assert_float(16777216, "16777216.0");
    assert_float(1e8f, "100000000.0");
    assert_float(-1.1920929e-07f, "-1.1920929e-7");
    assert_float(1e-5f, "0.00001");
    assert_float(-9999, "-9999.0");
    assert_float(-12.345678f, "-12.345678");
}

static void assert_reads_back(float f)
{
    struct buf b = BUF_EMPTY;
    json_t *v;

    json_add_float(&b, f);
    v = json_loadb(b.data, b.n, JSON_DECODE_ANY, NULL);
    assert_true(json_is_real(v));
    assert_true((float)json_real_value(v) == f);
    json_decref(v);
    buf_fini(&b);
}

static void floats_read_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 400000; i++) {
        uint32_t bits = (uint32_t)hash64(&i, sizeof i, 7);
        float f;

        memcpy(&f, &bits, sizeof f);
        if (isfinite(f))
            assert_reads_back(f);
        assert_reads_back(-(float)(bits >> 8) / 1e6f);
    }
    assert_reads_back(FLT_MAX);
    assert_reads_back(FLT_MIN);
    assert_reads_back(FLT_TRUE_MIN);
}

static void logprobs_have_a_floor(void **state)
{
    static const float odd[] = { -INFINITY, INFINITY, NAN };
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        struct buf b = BUF_EMPTY;

        json_add_logprob(&b, odd[i]);
        assert_string_equal(buf_text(&b), "-9999.0");
        buf_fini(&b);
    }
}

static void integers(void **state)
{
    struct buf b = BUF_EMPTY;
    (void)state;

    json_add_int(&b, 0);
    json_add_int(&b, INT64_MIN);
    json_add_int(&b, INT64_MAX);
    assert_string_equal(buf_text(&b), "0-92233720368547758089223372036854775807");
    buf_fini(&b);
}

static const struct { const char *text; enum json_fault fault; size_t at; } faults[] = {
    { "{}", JSON_SOUND, 0 },
    { " {\"a\": [1, -2.5e+3, true, false, null, \"x\\u00e9\\ud83d\\ude00\"], \"b\": {}} ", JSON_SOUND, 0 },
    { "", JSON_CUT, 0 },
    { "{", JSON_CUT, 1 },
    { "{\"a\": \"b", JSON_CUT, 8 },
    { "{\"a\": tru", JSON_CUT, 9 },
    { "{\"a\" 1}", JSON_SYNTAX, 5 },
    { "{\"a\": 1,}", JSON_SYNTAX, 8 },
    { "{'a': 1}", JSON_SYNTAX, 1 },
    { "{\"a\": NaN}", JSON_SYNTAX, 6 },
    { "{\"a\": -Infinity}", JSON_SYNTAX, 7 },
    { "{\"a\": 01}", JSON_SYNTAX, 6 },
    { "{\"a\": 1.}", JSON_SYNTAX, 8 },
    { "{\"a\": .5}", JSON_SYNTAX, 6 },
    { "{\"a\": 1} {\"b\": 2}", JSON_SYNTAX, 9 },
    { "{\"a\": \"\\x\"}", JSON_SYNTAX, 8 },
    { "{\"a\": \"\\u12g4\"}", JSON_SYNTAX, 11 },
    { "{\"a\": \"x\ty\"}", JSON_SYNTAX, 8 },
    { "[1, 2}", JSON_SYNTAX, 5 },
    { "{\"a\": \"xy\\ud800z\"}", JSON_SURROGATE, 9 },
    { "{\"a\": \"\\udc00\"}", JSON_SURROGATE, 7 },
    { "{\"a\": \"\\ud800\\ud800\\udc00\"}", JSON_SURROGATE, 7 },
    { "{\"a\": \"\\ud800\", ", JSON_CUT, 16 },
    { "{\"a\": 9223372036854775808}", JSON_NUMBER, 6 },
    { "{\"a\": -9223372036854775808}", JSON_SOUND, 0 },
    { "{\"a\": 1e999}", JSON_NUMBER, 6 },
    { "{\"a\": 1e-999}", JSON_SOUND, 0 },
    { "{\"a\\u0000b\": 1}", JSON_KEY_NUL, 3 },
    { "{\"a\": \"\\u0000\"}", JSON_SOUND, 0 },
};

static void faults_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        size_t n = strlen(faults[i].text);
        json_t *v = json_loadb(faults[i].text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        struct json_scan scan;

        json_scan(faults[i].text, n, &scan);
        if (scan.fault != faults[i].fault || (scan.fault != JSON_SOUND && scan.at != faults[i].at))
            fail_msg("%s: fault %d at %zu", faults[i].text, (int)scan.fault, scan.at);
        assert_int_equal(v != NULL, faults[i].fault == JSON_SOUND);
        json_decref(v);
    }
}

static void depth_is_bounded(void **state)
{
    (void)state;
    for (size_t n = JSON_DEPTH_MAX - 1; n <= JSON_DEPTH_MAX + 2; n++) {
        char *text = malloc(2 * n);
        struct json_scan scan;
        json_t *v;

        memset(text, '[', n);
        memset(text + n, ']', n);
        json_scan(text, 2 * n, &scan);
        v = json_loadb(text, 2 * n, JSON_DECODE_ANY, NULL);
        assert_int_equal(scan.fault, v != NULL ? JSON_SOUND : JSON_DEEP);
        json_decref(v);
        free(text);
    }
}

static void custom_id_is_found(void **state)
{
    static const struct { const char *text, *id; } ids[] = {
        { "{\"custom_id\": \"a\\n\", \"x\": 1e999}", "\"a\\n\"" },
        { "{\"x\": {\"custom_id\": \"in\"}, \"custom_id\": 12.50, \"y\": 1}", "12.50" },
        { "{\"x\": [{\"custom_id\": \"in\"}]}", NULL },
        { "{\"custom_id\": \"a\", \"custom_id\": \"b\"}", NULL },
        { "{\"custom_id\": {\"a\": 1}}", NULL },
        { "{\"custom_id\": null}", NULL },
        { "{\"x\": \"\\ud800\", \"custom_id\": \"a\\ud800\"}", NULL },
        { "{\"custom_id\": 1e999}", NULL },
    };
    (void)state;

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct json_scan scan;

        json_scan(ids[i].text, strlen(ids[i].text), &scan);
        if (ids[i].id == NULL) {
            assert_null(scan.custom_id);
        } else {
            assert_non_null(scan.custom_id);
            assert_int_equal(scan.custom_id_n, strlen(ids[i].id));
            assert_memory_equal(scan.custom_id, ids[i].id, scan.custom_id_n);
        }
    }
}

/* jansson and the scan must agree on what is JSON, whatever is done to a text. */
static void mutations_are_judged_alike(void **state)
{
    static const char seed[] = "{\"custom_id\": \"a\", \"n\": [1, -2.5e+3, 0, true, false, null, \"\\u00e9\\ud83d\\ude00\\n\"], "
                               "\"b\": {\"c\": {}, \"d\": []}}";
    static const char bytes[] = "{}[]\",:\\ud800\\0123456789eE+-.tfn \t\x01";
    (void)state;

    for (uint64_t i = 0; i < 100000; i++) {
        char text[sizeof seed];
        size_t n = sizeof seed - 1;
        struct json_scan scan;
        json_t *v;

        memcpy(text, seed, n);
        for (uint64_t k = 0; k <= i % 3; k++)
            text[hash64(&i, sizeof i, 2 * k) % n] = bytes[hash64(&i, sizeof i, 2 * k + 1) % (sizeof bytes - 1)];
        if (i % 5 == 0)
            n = hash64(&i, sizeof i, 99) % n;
        v = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        json_scan(text, n, &scan);
        if ((v != NULL) != (scan.fault == JSON_SOUND))
            fail_msg("%.*s: jansson %s, scan %d at %zu", (int)n, text, v != NULL ? "reads it" : "refuses it",
                     (int)scan.fault, scan.at);
        json_decref(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(words_are_scanned_whole),
        cmocka_unit_test(random_bytes_make_valid_strings),
        cmocka_unit_test(floats_are_short),
        cmocka_unit_test(floats_read_back),
        cmocka_unit_test(logprobs_have_a_floor),
        cmocka_unit_test(integers),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(custom_id_is_found),
        cmocka_unit_test(mutations_are_judged_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
