/* The records that the Kafka queue writes: headers, marks of what was left out, sizes; JSON that is cut and stays JSON. */
#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "queue/kafka/internal.h"
#include "tests/support/kafka_script.h"

static struct script s;
static struct record *r;

static int setup(void **state)
{
    (void)state;
    script_init(&s);
    r = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kafka_record_free(r);
    script_fini(&s);
    return 0;
}

static const struct produced *written(const struct kafka_message *m, const struct result *as)
{
    struct result result = *as;
    bool durable = false;
    int64_t not_before;

    script_open(&s);
    script_assign(&s, 0, 1);
    s.event = (struct kafka_event){ .kind = KAFKA_MESSAGE, .message = *m };
    r = script_poll(&s);
    assert_non_null(r);
    result.record = r;
    kafka_commit_begin(s.core, &result, 1, &durable);
    while (kafka_commit_step(s.core, &not_before))
        ;
    assert_int_equal(kafka_commit_end(s.core, &(struct error){ "" }), ST_OK);
    assert_true(durable && s.produced_n == 1);
    return &s.produced[0];
}

static void assert_header(const struct produced *p, const char *name, const char *value)
{
    const struct header *h = produced_header(p, name);

    if (h == NULL)
        fail_msg("no header %s", name);
    if (h->value_n != strlen(value) || memcmp(h->value, value, h->value_n) != 0)
        fail_msg("header %s is \"%.*s\" and not \"%s\"", name, (int)h->value_n, (const char *)h->value, value);
}

static const struct header finish[] = { { "ns-finish", "stop", 4 } };
static const struct header failure[] = { { "ns-error", "no such field", 13 }, { "ns-error-class", "rejected", 8 } };

static void an_output(void **state)
{
    const struct header in[] = { { "trace", "\x01\x02", 2 }, { "trace", NULL, 0 }, { "ns-job", "j1", 2 } };
    const struct kafka_message m = { 0, 42, 1234, "key", 3, "prompt", 6, in, 3 };
    const struct result out = { NULL, RESULT_OUTPUT, "{\"id\":\"i\"}", 10, finish, 1 };
    const struct produced *p = written(&m, &out);

    (void)state;
    assert_int_equal(p->topic, KAFKA_RESULTS);
    assert_true(p->key_n == 3 && memcmp(p->key, "key", 3) == 0 && p->value_n == 10 && memcmp(p->value, out.value, 10) == 0);
    assert_int_equal(p->headers_n, 6);
    assert_memory_equal(p->headers[0].value, "\x01\x02", 2);
    assert_true(strcmp(p->headers[1].name, "trace") == 0 && p->headers[1].value == NULL);
    assert_header(p, "ns-job", "j1");
    assert_header(p, "ns-id", "t.prompts/0/42");
    assert_header(p, "ns-src-ts", "1234");
    assert_header(p, "ns-finish", "stop");
}

static void a_dead_letter_carries_the_original(void **state)
{
    const struct kafka_message m = { 0, 1, -1, NULL, 0, "\xff not even JSON", 15, NULL, 0 };
    const struct result out = { NULL, RESULT_FAILURE, "{\"id\":\"i\",\"error\":1}", 20, failure, 2 };
    const struct produced *p = written(&m, &out);

    (void)state;
    assert_int_equal(p->topic, KAFKA_DEAD);
    assert_true(p->key == NULL && p->value_n == 15 && memcmp(p->value, m.value, 15) == 0);
    assert_header(p, "ns-error-class", "rejected");
    assert_null(produced_header(p, "ns-src-ts"));
}

static void headers_beyond_64_kb(void **state)
{
    static char big[40000];
    const struct header in[] = { { "one", big, sizeof big }, { "two", big, sizeof big }, { "three", "3", 1 },
                                 { "full", big, 65536 - 40013 - 16 - 14 }, { "four", "4", 1 }, { "ns-job", "j", 1 } };
    const struct kafka_message m = { 0, 1, 5, "", 0, "v", 1, in, 6 };
    const struct result out = { NULL, RESULT_OUTPUT, "{\"id\":\"i\"}", 10, finish, 1 };
    const struct produced *p = written(&m, &out);

    (void)state;
    assert_true(p->key != NULL && p->key_n == 0);
    assert_true(produced_header(p, "one") != NULL && produced_header(p, "two") == NULL);
    assert_header(p, "three", "3");
    assert_true(produced_header(p, "full") != NULL && produced_header(p, "four") == NULL);
    assert_header(p, "ns-job", "j");
    assert_header(p, "ns-headers-dropped", "2");
}

static char *long_line(size_t n)
{
    char *line = mem_take(n + 200);
    int head = sprintf(line, "{\"id\":\"i\",\"custom_id\":\"c\",\"choices\":[{\"text\":\"");

    memset(line + head, 'x', n);
    strcpy(line + head + n, "\"}]}");
    return line;
}

static void oversize_goes_to_the_dead(void **state)
{
    char *line = long_line(5000);
    const struct kafka_message m = { 0, 1, 5, "k", 1, "the prompt", 10, NULL, 0 };
    const struct result out = { NULL, RESULT_OUTPUT, line, strlen(line), finish, 1 };
    struct queue_counts counts;
    const struct produced *p;

    (void)state;
    s.results_max = 4000;
    p = written(&m, &out);
    assert_int_equal(p->topic, KAFKA_DEAD);
    assert_true(p->value_n == 10 && memcmp(p->value, "the prompt", 10) == 0);
    assert_header(p, "ns-error-class", "oversize");
    assert_non_null(strstr((const char *)produced_header(p, "ns-error")->value, "max.message.bytes"));
    kafka_core_counts(s.core, &counts);
    assert_int_equal(counts.dead_n, 1);
    free(line);
}

static void oversize_is_truncated(void **state)
{
    char *line = long_line(5000);
    const struct kafka_message m = { 0, 1, 5, "k", 1, "p", 1, NULL, 0 };
    const struct result out = { NULL, RESULT_OUTPUT, line, strlen(line), finish, 1 };
    const struct produced *p;
    json_t *json;
    size_t bytes;

    (void)state;
    s.results_max = 4000;
    strcpy(s.cfg.kafka_oversize, "truncate");
    p = written(&m, &out);
    assert_int_equal(p->topic, KAFKA_RESULTS);
    assert_header(p, "ns-finish", "truncated");
    bytes = p->value_n + p->key_n;
    for (size_t i = 0; i < p->headers_n; i++)
        bytes += strlen(p->headers[i].name) + p->headers[i].value_n;
    assert_true(bytes <= 4000 && bytes > 3800);
    json = json_loadb(p->value, p->value_n, 0, NULL);
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "custom_id")), "c");
    json_decref(json);
    free(line);
}

/* Original, headers, key: each is left out in turn until something fits. */
static void a_dead_letter_fits(void **state)
{
    static char value[3000], header[3000], key[3000];
    const struct header in[] = { { "h", header, sizeof header } };
    const struct kafka_message m = { 0, 1, 5, key, sizeof key, value, sizeof value, in, 1 };
    const struct result out = { NULL, RESULT_FAILURE, "{\"id\":\"i\",\"error\":1}", 20, failure, 2 };
    static const int64_t max[] = { 20000, 8000, 5000, 1000 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        const struct produced *p;

        setup(NULL);
        s.dead_max = max[i];
        p = written(&m, &out);
        assert_int_equal(p->topic, KAFKA_DEAD);
        assert_int_equal(p->value_n, i == 0 ? sizeof value : out.value_n);
        assert_true((produced_header(p, "ns-value-dropped") != NULL) == (i >= 1));
        assert_true((produced_header(p, "h") == NULL) == (i >= 2));
        assert_true((produced_header(p, "ns-headers-dropped") != NULL) == (i >= 2));
        assert_true((p->key == NULL) == (i == 3));
        assert_header(p, "ns-id", "t.prompts/0/1");
        teardown(NULL);
    }
    setup(NULL);
}

/* ---- json_shorten ---- */

static uint64_t dice = 3;

static unsigned roll(unsigned n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(dice >> 33) % n;
}

static void random_string(struct buf *b)
{
    static const char *const piece[] = { "a", "\\n", "\\u00e9", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\\ud83d\\ude00", "\\\"",
                                         "\\\\", " : ", "{[" };

    buf_add_byte(b, '"');
    for (unsigned n = roll(2) ? roll(20) : roll(400); n > 0; n--)
        buf_add_text(b, piece[roll(sizeof piece / sizeof piece[0])]);
    buf_add_byte(b, '"');
}

static void random_value(struct buf *b, int depth)
{
    unsigned kind = depth > 3 ? roll(3) : roll(5), n = roll(5);

    if (kind == 0) {
        buf_add_format(b, "%u", roll(1000));
    } else if (kind <= 2) {
        random_string(b);
    } else {
        buf_add_byte(b, kind == 3 ? '[' : '{');
        for (unsigned i = 0; i < n; i++) {
            if (i > 0)
                buf_add_text(b, ", ");
            if (kind == 4)
                buf_add_format(b, "\"name %u\" : ", i);
            random_value(b, depth + 1);
        }
        buf_add_byte(b, kind == 3 ? ']' : '}');
    }
}

static void shortened_json_is_json(void **state)
{
    struct buf in = BUF_EMPTY, out = BUF_EMPTY;
    int cut_n = 0;

    (void)state;
    for (int i = 0; i < 3000; i++) {
        json_error_t error;
        json_t *json;
        size_t max;

        buf_reset(&in);
        buf_add_text(&in, "{\"id\":\"i\",\"v\":");
        random_value(&in, 0);
        buf_add_byte(&in, '}');
        max = roll((unsigned)in.n + 20);
        if (!json_shorten(in.data, in.n, max, &out))
            continue;
        assert_true(out.n <= max);
        cut_n += out.n < in.n;
        json = json_loadb(out.data, out.n, 0, &error);
        if (json == NULL)
            fail_msg("%s in %s", error.text, buf_text(&out));
        json_decref(json);
    }
    assert_true(cut_n > 200);
    buf_fini(&in);
    buf_fini(&out);
}

static void ids_are_not_cut(void **state)
{
    struct buf out = BUF_EMPTY;
    char text[400];

    (void)state;
    sprintf(text, "{\"id\":\"%0100d\",\"custom_id\":\"%0120d\",\"text\":\"%090d\"}", 1, 2, 3);
    assert_true(json_shorten(text, strlen(text), strlen(text) - 20, &out));
    assert_non_null(strstr(buf_text(&out), "0002"));
    assert_false(json_shorten(text, strlen(text), 200, &out));
    buf_fini(&out);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_output), TEST(a_dead_letter_carries_the_original), TEST(headers_beyond_64_kb), TEST(oversize_goes_to_the_dead),
        TEST(oversize_is_truncated), TEST(a_dead_letter_fits), cmocka_unit_test(shortened_json_is_json), cmocka_unit_test(ids_are_not_cut),
    };

    log_level_set(LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
