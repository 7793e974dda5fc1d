/* What each error of table 1.6 makes the real client answer, injected into librdkafka's own mock broker. For classes of errors
 * only: the mock keeps no commits, fences nobody and shows aborted records, so nothing here speaks of exactly-once. */
#define _POSIX_C_SOURCE 200809L
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "queue/kafka/rdkafka_internal.h"

enum api { PRODUCE = 0, INIT_PRODUCER_ID = 22, ADD_PARTITIONS = 24, ADD_OFFSETS = 25, END_TXN = 26, TXN_OFFSET_COMMIT = 28 };

static struct config cfg;
static rd_kafka_t *host;                   /* of the mock */
static rd_kafka_mock_cluster_t *mock;
static struct rd_client *c;
static struct kafka_client *k;

static rd_kafka_conf_t *quiet_conf(void)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set_log_cb(conf, NULL);
    return conf;
}

static int group_setup(void **state)
{
    char text[256], url[300];
    struct error err;

    (void)state;
    host = rd_kafka_new(RD_KAFKA_PRODUCER, quiet_conf(), text, sizeof text);
    mock = rd_kafka_mock_cluster_new(host, 1);
    assert_non_null(mock);
    rd_kafka_mock_topic_create(mock, "m.prompts", 2, 1);
    rd_kafka_mock_topic_create(mock, "m.results", 1, 1);
    rd_kafka_mock_topic_create(mock, "m.dead", 1, 1);
    config_defaults(&cfg);
    cfg.txn_timeout_ms = 4000;
    snprintf(url, sizeof url, "kafka://%s/m", rd_kafka_mock_cluster_bootstraps(mock));
    if (rd_client_open(&cfg, url, clock_mono_ns() + 20 * NS_PER_S, &c, &err) != ST_OK)
        fail_msg("%s", err.text);
    k = &c->client;
    assert_int_equal(k->ops->init(k, &err), KAFKA_OK);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    k->ops->close(k);
    rd_kafka_mock_cluster_destroy(mock);
    rd_kafka_destroy(host);
    return 0;
}

static void inject(enum api api, rd_kafka_resp_err_t code)
{
    rd_kafka_mock_push_request_errors(mock, api, 1, code);
}

/* One transaction; where it stops, and with what answer. "": it was committed. */
static const char *transaction(enum kafka_answer *answer, struct error *err)
{
    static const struct kafka_place place = { 0, 1, "W1:-:" };
    static const struct kafka_group as = { .generation = 1, .member = "member" };
    static const struct header header = { "h", NULL, 0 };

    if ((*answer = k->ops->begin(k, err)) != KAFKA_OK)
        return "begin";
    if ((*answer = k->ops->produce(k, KAFKA_RESULTS, "", 0, "v", 1, &header, 1, err)) != KAFKA_OK)
        return "produce";
    if ((*answer = k->ops->offsets(k, &place, 1, &as, err)) != KAFKA_OK)
        return "offsets";
    if ((*answer = k->ops->commit(k, err)) != KAFKA_OK)
        return "commit";
    return "";
}

static void recover(enum kafka_answer answer)
{
    struct error err;

    if (answer == KAFKA_OK)
        return;
    if ((answer == KAFKA_ABORT || answer == KAFKA_FENCED_OFFSETS || answer == KAFKA_REFUSED) && k->ops->abort(k, &err) == KAFKA_OK)
        return;
    assert_int_equal(k->ops->remake(k, &err), KAFKA_OK);
    if (k->ops->init(k, &err) != KAFKA_OK)
        fail_msg("init after a remake: %s", err.text);
}

static const struct row { enum api api; rd_kafka_resp_err_t code; const char *step; enum kafka_answer answer; } table[] = {
#define E(name) RD_KAFKA_RESP_ERR_##name
    { TXN_OFFSET_COMMIT, E(ILLEGAL_GENERATION), "offsets", KAFKA_FENCED_OFFSETS },
    { TXN_OFFSET_COMMIT, E(UNKNOWN_MEMBER_ID), "offsets", KAFKA_FENCED_OFFSETS },
    { TXN_OFFSET_COMMIT, E(FENCED_INSTANCE_ID), "offsets", KAFKA_FENCED_OFFSETS },
    { TXN_OFFSET_COMMIT, E(REBALANCE_IN_PROGRESS), "offsets", KAFKA_FENCED_OFFSETS },
    { TXN_OFFSET_COMMIT, E(OFFSET_METADATA_TOO_LARGE), "offsets", KAFKA_REFUSED },
    { TXN_OFFSET_COMMIT, E(GROUP_AUTHORIZATION_FAILED), "offsets", KAFKA_REFUSED },
    { TXN_OFFSET_COMMIT, E(NOT_COORDINATOR), "", KAFKA_OK },
    { TXN_OFFSET_COMMIT, E(COORDINATOR_LOAD_IN_PROGRESS), "", KAFKA_OK },
    { TXN_OFFSET_COMMIT, E(INVALID_PRODUCER_EPOCH), "offsets", KAFKA_REMAKE },
    { TXN_OFFSET_COMMIT, E(INVALID_PRODUCER_ID_MAPPING), "offsets", KAFKA_REMAKE },
    { ADD_OFFSETS, E(CONCURRENT_TRANSACTIONS), "", KAFKA_OK },
    { ADD_OFFSETS, E(INVALID_PRODUCER_EPOCH), "offsets", KAFKA_REMAKE },
    { ADD_OFFSETS, E(INVALID_PRODUCER_ID_MAPPING), "offsets", KAFKA_ABORT },
    { END_TXN, E(CONCURRENT_TRANSACTIONS), "", KAFKA_OK },
    { END_TXN, E(COORDINATOR_NOT_AVAILABLE), "", KAFKA_OK },
    { END_TXN, E(INVALID_TXN_STATE), "commit", KAFKA_REMAKE },
    { END_TXN, E(INVALID_PRODUCER_EPOCH), "commit", KAFKA_REMAKE },
    { END_TXN, E(PRODUCER_FENCED), "commit", KAFKA_REMAKE },
    { END_TXN, E(INVALID_PRODUCER_ID_MAPPING), "commit", KAFKA_ABORT },
    { PRODUCE, E(NOT_ENOUGH_REPLICAS), "", KAFKA_OK },
    { PRODUCE, E(KAFKA_STORAGE_ERROR), "", KAFKA_OK },
    { PRODUCE, E(MSG_SIZE_TOO_LARGE), "commit", KAFKA_ABORT },
    { PRODUCE, E(UNKNOWN_PRODUCER_ID), "commit", KAFKA_ABORT },
    { PRODUCE, E(TOPIC_AUTHORIZATION_FAILED), "commit", KAFKA_REFUSED },
    { PRODUCE, E(OUT_OF_ORDER_SEQUENCE_NUMBER), "commit", KAFKA_REMAKE },
    { PRODUCE, E(INVALID_PRODUCER_EPOCH), "commit", KAFKA_REMAKE },
    { ADD_PARTITIONS, E(INVALID_PRODUCER_EPOCH), "commit", KAFKA_REMAKE },
    { ADD_PARTITIONS, E(TOPIC_AUTHORIZATION_FAILED), "commit", KAFKA_REFUSED },
#undef E
};

static void classes(void **state)
{
    int wrong_n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct row *row = &table[i];
        struct error err = { "" };
        enum kafka_answer answer;
        const char *step;

        inject(row->api, row->code);
        step = transaction(&answer, &err);
        /* A failure of a record or a partition may be known before the commit asks for it: any later step tells, and where that is the
         * offsets step the library says only that the transaction has failed. */
        if (answer == KAFKA_ABORT && row->answer == KAFKA_REFUSED && strcmp(step, "offsets") == 0)
            answer = KAFKA_REFUSED;
        if (answer != row->answer || (step[0] == '\0') != (row->step[0] == '\0')) {
            fprintf(stderr, "api %d %s: \"%s\" answers %d (%s), expected \"%s\" %d\n", (int)row->api, rd_kafka_err2name(row->code), step,
                    (int)answer, err.text, row->step, (int)row->answer);
            wrong_n++;
        }
        recover(answer);
        rd_kafka_mock_clear_request_errors(mock, row->api);
        step = transaction(&answer, &err);      /* and then it goes on; after a failed record one more abort may be due (its epoch) */
        if (answer == KAFKA_ABORT) {
            recover(answer);
            step = transaction(&answer, &err);
        }
        if (step[0] != '\0') {
            fprintf(stderr, "api %d %s: the next transaction ends at \"%s\" with %d (%s)\n", (int)row->api, rd_kafka_err2name(row->code),
                    step, (int)answer, err.text);
            wrong_n++;
            recover(answer);
        }
    }
    assert_int_equal(wrong_n, 0);
}

/* A broker that is away while the transaction is to be committed: nobody knows, and that is what is said. */
static void away_is_unknown(void **state)
{
    struct error err = { "" };
    enum kafka_answer answer;

    (void)state;
    assert_int_equal(k->ops->begin(k, &err), KAFKA_OK);
    assert_int_equal(k->ops->produce(k, KAFKA_DEAD, NULL, 0, "v", 1, NULL, 0, &err), KAFKA_OK);
    rd_kafka_mock_broker_set_down(mock, 1);
    answer = k->ops->commit(k, &err);
    rd_kafka_mock_broker_set_up(mock, 1);
    if (answer != KAFKA_UNKNOWN && answer != KAFKA_ABORT)      /* a record that timed out is known to fail the commit */
        fail_msg("answer %d: %s", (int)answer, err.text);
    recover(answer);
    assert_string_equal(transaction(&answer, &err), "");
}

static void group_is_read(void **state)
{
    struct kafka_group g;
    struct error err;

    (void)state;
    assert_int_equal(rd_group_check(c, &err), ST_OK);
    k->ops->group(k, &g);
    assert_true(g.generation == -1 && g.member[0] == '\0' && !g.lost);      /* never joined */
    for (int i = 0; i < 200 && g.generation < 0; i++) {
        struct kafka_event e;

        k->ops->poll(k, 100, &e);
        if (e.kind == KAFKA_ASSIGNED) {
            assert_int_equal(e.partitions_n, 2);
            k->ops->assign(k, NULL, 0);
            k->ops->group(k, &g);
        }
    }
    assert_true(g.generation >= 0 && strlen(g.member) > 5 && !g.lost);
}

/* What a refused setting says: never the value of a secret. */
static void settings_of_the_library(void **state)
{
    struct rd_client *none;
    struct config own;
    struct error err;

    (void)state;
    config_defaults(&own);
    assert_int_equal(config_set_pair(&own, "kafka.isolation.level=read_uncommitted", &err), ST_OK);
    assert_int_equal(rd_client_open(&own, "kafka://127.0.0.1:1/m", 0, &none, &err), ST_REJECT);
    assert_non_null(strstr(err.text, "isolation.level"));
    config_defaults(&own);
    assert_int_equal(config_set_pair(&own, "kafka.no.such.password=hunter2", &err), ST_OK);
    assert_int_equal(rd_client_open(&own, "kafka://127.0.0.1:1/m", 0, &none, &err), ST_REJECT);
    assert_null(strstr(err.text, "hunter2"));
    assert_int_equal(rd_client_open(&own, "kafka://127.0.0.1:1", 0, &none, &err), ST_REJECT);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes), cmocka_unit_test(away_is_unknown), cmocka_unit_test(group_is_read),
        cmocka_unit_test(settings_of_the_library),
    };

    log_level_set(LOG_NONE);
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
