/* queue/kafka/topic_internal.h - what topic.c, topic_scan.c and topic_write.c share. Private to this folder. */
#ifndef QUEUE_KAFKA_TOPIC_INTERNAL_H
#define QUEUE_KAFKA_TOPIC_INTERNAL_H

#include <librdkafka/rdkafka.h>

#include "queue/kafka/settings.h"


struct topics {
    const struct config *cfg;
    struct kafka_names names;
    rd_kafka_t *admin;                         /* metadata, administration, watermarks: reads whatever is committed or not */
    char trouble[256];                         /* the last thing the library complained about: why nothing answers */
};

#define TOPIC_ANSWER_MS (TOPIC_ANSWER_S * 1000)

/* A consumer handle of our settings and `musts`; complaints go to `trouble` (256 bytes). */
status topics_consumer_make(const struct topics *t, const char *const *musts, char *trouble, rd_kafka_t **out, struct error *err);
/* The one place where the library's errors become a status. `doing` begins the text. */
status st_topic(struct error *err, const struct topics *t, const char *trouble, rd_kafka_resp_err_t code, const char *doing);

#endif
