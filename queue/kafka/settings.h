/* queue/kafka/settings.h - what every client handle of this folder is configured with. Private to this folder. */
#ifndef QUEUE_KAFKA_SETTINGS_H
#define QUEUE_KAFKA_SETTINGS_H

#include "base/config.h"
#include "queue/topic.h"

struct rd_kafka_conf_s;                        /* rd_kafka_conf_t */

struct kafka_names {
    char *brokers;                             /* "host:port,host:port" */
    char *topic[TOPIC_KINDS_N];
};

/* From "kafka://HOST:PORT[,...]/NAME" and the settings kafka_topic_*. ST_REJECT: the text says what a URL looks like. */
MUST_USE status kafka_names_read(const struct config *cfg, const char *url, struct kafka_names *out, struct error *err);
void kafka_names_free(struct kafka_names *n);

/* Lists of name, value ..., NULL. `defaults` give way to the user's kafka.* settings; `musts` hold, and a kafka.* setting of the same
 * name is refused. The library's log goes to ours. The caller owns *out. ST_REJECT: the library knows no such setting or value. */
MUST_USE status kafka_conf_make(const struct config *cfg, const char *brokers, const char *const *defaults, const char *const *musts,
                                struct rd_kafka_conf_s **out, struct error *err);

#endif
