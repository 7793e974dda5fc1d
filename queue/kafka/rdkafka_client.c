/* The real client, put together: names, identity, what the library is. */
#define _POSIX_C_SOURCE 200809L           /* pthread_rwlock_t */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "queue/kafka/rdkafka_internal.h"

#define OLD_STICKY 0x020601ff              /* facts 1.11: #4783, and commits while rebalancing up to 2.10 */
#define OLD_PLAIN_COMMIT 0x020a00ff

static void rd_close(struct kafka_client *client)
{
    struct rd_client *c = (struct rd_client *)(void *)client;
    bool abandoned = c->abandoned;

    rd_producer_close(c);
    rd_consumer_close(c);
    if (abandoned)
        return;      /* a thread still hangs in the consumer and knows c */
    kafka_names_free(&c->names);
    pthread_rwlock_destroy(&c->consumer_life);
    free(c);
}

static const struct kafka_client_ops rd_client_ops = {
    .poll = rd_poll, .committed = rd_committed, .assign = rd_assign, .unassign = rd_unassign, .pause = rd_pause, .group = rd_group,
    .end = rd_end, .init = rd_init, .begin = rd_begin, .produce = rd_produce, .offsets = rd_offsets, .commit = rd_commit,
    .abort = rd_abort, .remake = rd_remake, .value_max = rd_value_max, .metadata_max = rd_metadata_max, .leave = rd_leave,
    .close = rd_close,
};

/* <group>.<slot>, or <group>.<random>: both are safe (delivery 8.1), the first one is quicker after a death. */
static void id_choose(struct rd_client *c)
{
    uint64_t seed[3] = { (uint64_t)clock_wall_ns(), (uint64_t)clock_mono_ns(), (uint64_t)(uintptr_t)c };
    FILE *f;

    if (c->cfg->kafka_slot[0] != '\0') {
        snprintf(c->id, sizeof c->id, "%.150s.%.150s", c->cfg->kafka_group, c->cfg->kafka_slot);
        return;
    }
    f = fopen("/dev/urandom", "rb");
    if (f == NULL || fread(&seed[2], sizeof seed[2], 1, f) != 1)
        log_debug("kafka.id", "what=\"no /dev/urandom\"");
    if (f != NULL)
        fclose(f);
    snprintf(c->id, sizeof c->id, "%.150s.%016" PRIx64, c->cfg->kafka_group, hash64(seed, sizeof seed, 0));
}

static void library_log(struct rd_client *c)
{
    int version = rd_kafka_version();

    log_info("kafka.client", "version=%s delivery=%s id=%s", rd_kafka_version_str(), c->cfg->kafka_delivery, c->id);
    if (!c->transactional && !c->eager && version < OLD_PLAIN_COMMIT) {
        c->eager = true;
        log_warn("kafka.client", "version=%s what=\"commits during a cooperative rebalance lose the assignment before 2.10: at least once "
                 "uses range assignment; every worker of the group must (kafka_eager)\"", rd_kafka_version_str());
    } else if (!c->eager && version < OLD_STICKY) {
        log_info("kafka.client", "version=%s what=\"cooperative-sticky before 2.6.1 may rebalance without end (kafka_eager=1 helps); 2.12 or "
                 "later is better\"", rd_kafka_version_str());
    }
}

status rd_client_open(const struct config *cfg, const char *url, int64_t deadline_ns, struct rd_client **out, struct error *err)
{
    struct rd_client *c = mem_take_zero(1, sizeof *c);
    status st;

    *out = NULL;
    c->client.ops = &rd_client_ops;
    c->cfg = cfg;
    c->transactional = strcmp(cfg->kafka_delivery, "at_least_once") != 0;
    c->eager = cfg->kafka_eager;
    c->results_max = c->dead_max = KAFKA_RECORD_BYTES_DEFAULT;
    pthread_rwlock_init(&c->consumer_life, NULL);
    id_choose(c);
    TRY(kafka_names_read(cfg, url, &c->names, err));
    library_log(c);
    TRY(rd_consumer_open(c, err));
    TRY(rd_group_check(c, err));
    TRY(rd_topics_check(c, deadline_ns, err));
    rd_limits_read(c);
    TRY(rd_producer_open(c, err));
    *out = c;
    c = NULL;
out:
    if (c != NULL)
        rd_close(&c->client);
    return st;
}
