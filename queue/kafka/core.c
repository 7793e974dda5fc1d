#define _POSIX_C_SOURCE 200809L
#include "queue/kafka/core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "queue/kafka/internal.h"

#define METADATA_TEXT_BYTES 32             /* around the bitmap: version, hash, the last group of base64, the end */
#define PROBE_GENERATION 999999
#define PROBE_PAUSE_MS 100

/* The window of a partition is what its bitmap may hold: six bits a character (delivery 8.3). It is made smaller, never cut. */
static void window_choose(struct kafka_core *k)
{
    const struct kafka_client_ops *ops = k->client->ops;
    size_t max = (size_t)k->cfg->kafka_metadata_max;
    int64_t bits;

    if (max == 0 && ops->metadata_max != NULL)
        max = ops->metadata_max(k->client);
    if (max == 0)
        max = METADATA_BYTES_DEFAULT;
    k->metadata_max = max;
    k->window = k->cfg->plan_window_max;
    if (max < METADATA_BYTES_MIN)
        return;      /* refused by the caller */
    bits = (int64_t)(max - METADATA_TEXT_BYTES) * 6;
    if (k->window > bits) {
        log_warn("kafka.window", "offsets=%" PRId64 " asked=%" PRId64 " metadata_bytes=%zu what=\"the broker takes no larger bitmap "
                 "(offset.metadata.max.bytes)\"", bits, k->window, max);
        k->window = bits;
    }
}

static status options_check(const struct kafka_core *k, struct error *err)
{
    const struct config *cfg = k->cfg;

    if (strcmp(cfg->kafka_delivery, "exactly_once") != 0 && strcmp(cfg->kafka_delivery, "at_least_once") != 0)
        return error_set(err, ST_REJECT, "setting kafka_delivery=%s: exactly_once or at_least_once is needed", cfg->kafka_delivery);
    if (strcmp(cfg->kafka_oversize, "dead") != 0 && strcmp(cfg->kafka_oversize, "truncate") != 0)
        return error_set(err, ST_REJECT, "setting kafka_oversize=%s: dead or truncate is needed", cfg->kafka_oversize);
    if (strcmp(cfg->kafka_start, "earliest") != 0)
        return error_set(err, ST_REJECT, "setting kafka_start=%s: earliest is needed; anything else would leave prompts without an "
                         "answer (to skip some, reset the group's offsets and start once with kafka_ignore_foreign_metadata=1)",
                         cfg->kafka_start);
    if (k->metadata_max < METADATA_BYTES_MIN)
        return error_set(err, ST_REJECT, "the broker takes %zu bytes of commit metadata (offset.metadata.max.bytes, "
                         "kafka_metadata_max): at least %d are needed for the marks of what is done", k->metadata_max,
                         METADATA_BYTES_MIN);
    return ST_OK;
}

status kafka_core_open(const struct kafka_core_options *o, struct kafka_core **out, struct error *err)
{
    struct kafka_core *k = mem_take_zero(1, sizeof *k);
    status st;

    *out = NULL;
    k->client = o->client;
    k->cfg = o->cfg;
    k->topic = mem_copy_text(o->topic);
    if (o->events != NULL)
        k->events = *o->events;
    k->transactional = strcmp(o->cfg->kafka_delivery, "at_least_once") != 0;
    k->truncates = strcmp(o->cfg->kafka_oversize, "truncate") == 0;
    k->counts.generation = -1;
    pthread_mutex_init(&k->lock, NULL);
    window_choose(k);
    kafka_committer_init(k);
    st = options_check(k, err);
    if (st != ST_OK) {
        kafka_core_close(k);
        return st;
    }
    *out = k;
    return ST_OK;
}

void kafka_core_close(struct kafka_core *k)
{
    if (k == NULL)
        return;
    for (size_t i = 0; i < k->part_n; i++)
        partition_drop(k, (int32_t)i);
    free(k->part);
    kafka_poll_fini(k);
    kafka_committer_fini(k);
    pthread_mutex_destroy(&k->lock);
    free(k->topic);
    free(k);
}

void kafka_core_stop(struct kafka_core *k)
{
    atomic_store(&k->stopping, true);
}

bool kafka_core_stopped(const struct kafka_core *k)
{
    return atomic_load(&k->stopping);
}

/* ---- the probe ---- */

static void probe_pause(void)
{
    const struct timespec t = { 0, PROBE_PAUSE_MS * NS_PER_MS };

    nanosleep(&t, NULL);
}

/* Opens a transaction, commits an offset as a member that no group ever had, aborts. Returns the answer to the commit. */
static enum kafka_answer probe_once(struct kafka_core *k, struct error *err)
{
    static const struct kafka_group nobody = { .generation = PROBE_GENERATION, .member = "probe-no-such-member" };
    const struct kafka_place place = { 0, 0, "" };
    const struct kafka_client_ops *ops = k->client->ops;
    struct committer *c = &k->committer;
    enum kafka_answer answer = KAFKA_OK;

    if (c->producer == PRODUCER_NEEDS_REMAKE) {
        answer = ops->remake(k->client, err);
        if (answer == KAFKA_OK)
            c->producer = PRODUCER_NEEDS_INIT;
    }
    if (answer == KAFKA_OK && c->producer == PRODUCER_NEEDS_INIT) {
        answer = ops->init(k->client, err);
        if (answer == KAFKA_OK)
            c->producer = PRODUCER_READY;
        else if (answer == KAFKA_REMAKE)
            c->producer = PRODUCER_NEEDS_REMAKE;
        if (answer != KAFKA_OK)
            return answer == KAFKA_REFUSED ? KAFKA_REFUSED : KAFKA_UNKNOWN;
    }
    if (answer == KAFKA_OK)
        answer = ops->begin(k->client, err);
    if (answer != KAFKA_OK)
        return answer == KAFKA_REFUSED ? KAFKA_REFUSED : KAFKA_UNKNOWN;
    answer = ops->offsets(k->client, &place, 1, &nobody, err);
    if (answer == KAFKA_REMAKE || answer == KAFKA_UNKNOWN || ops->abort(k->client, &(struct error){ "" }) != KAFKA_OK)
        c->producer = PRODUCER_NEEDS_REMAKE;
    return answer;
}

status kafka_core_probe(struct kafka_core *k, int64_t deadline_ns, struct error *err)
{
    struct error why = { "" };

    for (;;) {
        enum kafka_answer answer = probe_once(k, &why);

        if (answer == KAFKA_FENCED_OFFSETS)
            return ST_OK;
        if (answer == KAFKA_OK && k->cfg->kafka_allow_unfenced) {
            log_warn("kafka.unfenced", "what=\"the broker accepts commits of members it does not know: two workers may answer the same "
                     "record (kafka_allow_unfenced)\"");
            return ST_OK;
        }
        if (answer == KAFKA_OK)
            return error_set(err, ST_REJECT, "this broker does not fence: it accepted the commit of a member it cannot know, so results "
                             "could be doubled or lost. Use Apache Kafka 2.5 or later, or kafka_delivery=at_least_once, where "
                             "readers drop doubles by the header ns-id");
        if (answer == KAFKA_REFUSED)
            return error_set(err, ST_REJECT, "the broker refuses transactions of this worker: %s", why.text);
        if (clock_mono_ns() >= deadline_ns)
            return error_set(err, ST_RETRY, "the broker does not answer transactions: %s", why.text);
        probe_pause();
    }
}
