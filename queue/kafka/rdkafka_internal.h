/* queue/kafka/rdkafka_internal.h - the real client: one consumer handle, one producer handle. Private to rdkafka_*.c.
 *
 * Where the traps of librdkafka 2.0.2 (facts 1.11) are avoided:
 *   #4208 batch consume + pause loses      rdkafka_consumer.c polls one message at a time
 *   #4176 #4256 #4431 max.poll reset       the daemon's own watchdog looks at the poll side
 *   #4122 no truncation detection          the hash of the record at the LWM (partition.c)
 *   #4187 #4527 #4724 close hangs          rdkafka_consumer.c closes on a thread of its own, with a deadline
 *   #4230 seek's timeout                   no seek: the offset is given with the assignment
 *   #4084 offsets_store loses metadata     send_offsets_to_transaction, or a synchronous commit of a list
 *   #4438 fatal after possibly persisted   REMAKE and REREAD (committer.c)
 *   #4381 SEGV on close before assignment  rdkafka_consumer.c waits for the first assignment, else leaves without close
 *   #4460 watermarks beyond the time-out   only the cached ones are asked for
 *   #4686 #4636 an earlier position        the tracker passes over what it has received (poll.c)
 *   #4783 #4800 endless rebalances         kafka_eager; a line at start where the library is older than 2.6.1
 *   #4649 #4876 NUL in metadata            ASCII only (tracker.c)
 *   #4059 #4908 commit while rebalancing   transactional commits; at least once takes the eager assignor before 2.10
 *   #4970 stuck on a dead broker           a producer that does not answer is made anew (committer.c), a consumer after a minute
 *                                          without any broker, too (rdkafka_consumer.c)
 *   #5032 first record a second late       one metadata call a topic at start
 *   #4628 produceva frees headers twice    producev
 *   2.14.2 SEGV in LeaveGroup              left last, after all commits */
#ifndef QUEUE_KAFKA_RDKAFKA_INTERNAL_H
#define QUEUE_KAFKA_RDKAFKA_INTERNAL_H

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/config.h"
#include "queue/kafka/client.h"
#include "queue/kafka/settings.h"

#define KAFKA_RECORD_BYTES_DEFAULT 1048588 /* max.message.bytes of a topic that nobody changed */

struct rd_client {
    struct kafka_client client;
    const struct config *cfg;
    struct kafka_names names;
    bool transactional, eager;
    char id[320];                          /* transactional id */
    int64_t results_max, dead_max;         /* bytes of a record that the topics take */
    int64_t client_max;                    /* ... and the producer */
    int32_t broker;                        /* one of them, to ask */
    size_t metadata_max;                   /* 0: unknown */

    /* consumer */
    rd_kafka_t *consumer;
    pthread_rwlock_t consumer_life;        /* written while the handle is changed for another; read by calls of other threads */
    rd_kafka_message_t *last, *next;       /* given out; came together with an event of the group */
    enum kafka_event_kind rebalance;       /* KAFKA_NOTHING: none waits */
    int32_t *ids;                          /* of the event given out */
    size_t ids_n, ids_room;
    struct header *headers;
    size_t headers_room;
    bool subscribed, assigned_once, left, abandoned;
    atomic_bool closing;
    int64_t away_since_ns;
    atomic_bool away;                      /* the library says that no broker is up */
    char text[sizeof(struct error) + 64];           /* an error behind the name of what it happened to */
    rd_kafka_topic_partition_list_t *answers[2];      /* of `committed`: the poll side's, the commit side's */

    /* producer */
    rd_kafka_t *producer;
    rd_kafka_topic_t *topic[2];            /* results, dead */
    rd_kafka_resp_err_t failed;            /* the first delivery that failed since the last begin */
    bool topics_stale;                     /* a topic was refused: it is looked up again before the next transaction */
    atomic_bool limits_stale;
};

/* rdkafka_client.c: asks the brokers about the topics until the deadline. Ends with client.ops->close. */
status rd_client_open(const struct config *cfg, const char *url, int64_t deadline_ns, struct rd_client **out, struct error *err);

/* rdkafka_consumer.c */
status rd_consumer_open(struct rd_client *c, struct error *err);
void rd_consumer_close(struct rd_client *c);
void rd_poll(struct kafka_client *client, int timeout_ms, struct kafka_event *out);
enum kafka_answer rd_committed(struct kafka_client *client, struct kafka_place *places, size_t n, int timeout_ms, struct error *err);
void rd_assign(struct kafka_client *client, const struct kafka_place *places, size_t n);
void rd_unassign(struct kafka_client *client, const int32_t *partitions, size_t n);
void rd_pause(struct kafka_client *client, int32_t partition, bool paused);
void rd_group(struct kafka_client *client, struct kafka_group *out);
int64_t rd_end(struct kafka_client *client, int32_t partition);
void rd_leave(struct kafka_client *client, int64_t deadline_ns);
/* ST_REJECT: this library writes the group's metadata in a way that we do not read, so no commit could be guarded. */
status rd_group_check(struct rd_client *c, struct error *err);

/* rdkafka_producer.c */
status rd_producer_open(struct rd_client *c, struct error *err);
void rd_producer_close(struct rd_client *c);
enum kafka_answer rd_init(struct kafka_client *client, struct error *err);
enum kafka_answer rd_begin(struct kafka_client *client, struct error *err);
enum kafka_answer rd_produce(struct kafka_client *client, enum kafka_topic topic, const void *key, size_t key_n, const void *value,
                             size_t value_n, const struct header *headers, size_t headers_n, struct error *err);
enum kafka_answer rd_offsets(struct kafka_client *client, const struct kafka_place *places, size_t n, const struct kafka_group *as,
                             struct error *err);
enum kafka_answer rd_commit(struct kafka_client *client, struct error *err);
enum kafka_answer rd_abort(struct kafka_client *client, struct error *err);
enum kafka_answer rd_remake(struct kafka_client *client, struct error *err);
int64_t rd_value_max(struct kafka_client *client, enum kafka_topic topic);
size_t rd_metadata_max(struct kafka_client *client);

/* rdkafka_limits.c: what the brokers say about the topics and themselves. ST_REJECT: a topic is missing. ST_RETRY: no answer. */
status rd_topics_check(struct rd_client *c, int64_t deadline_ns, struct error *err);
void rd_limits_read(struct rd_client *c);      /* what cannot be read stays as it is */

#endif
