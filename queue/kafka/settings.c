#include "queue/kafka/settings.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static char *text_join(const char *a, size_t a_n, const char *b)
{
    char *out = mem_take(a_n + strlen(b) + 1);

    memcpy(out, a, a_n);
    strcpy(out + a_n, b);
    return out;
}

/* What Kafka takes as a topic name (kafka.common.internals.Topic): the longest of ours has ".prompts" behind it. */
static bool name_is_sound(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return n > 0 && name[n] == '\0' && n <= 240 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

status kafka_names_read(const struct config *cfg, const char *url, struct kafka_names *out, struct error *err)
{
    static const char scheme[] = "kafka://";
    static const char *const suffix[TOPIC_KINDS_N] = { ".prompts", ".results", ".dead" };
    const char *const own[TOPIC_KINDS_N] = { cfg->kafka_topic_prompts, cfg->kafka_topic_results, cfg->kafka_topic_dead };
    const char *brokers = url + sizeof scheme - 1, *slash;

    memset(out, 0, sizeof *out);
    slash = strncmp(url, scheme, sizeof scheme - 1) == 0 ? strchr(brokers, '/') : NULL;
    if (slash == NULL || slash == brokers || !name_is_sound(slash + 1))
        return error_set(err, ST_REJECT, "the queue \"%s\": kafka://HOST:PORT[,HOST:PORT...]/NAME is needed, NAME of letters, "
                         "digits, '.', '_' and '-'", url);
    for (int i = 0; i < TOPIC_KINDS_N; i++) {
        if (own[i][0] != '\0' && !name_is_sound(own[i]))
            return error_set(err, ST_REJECT, "\"%s\" is no topic name: letters, digits, '.', '_' and '-' are allowed", own[i]);
    }
    out->brokers = text_join(brokers, (size_t)(slash - brokers), "");
    for (int i = 0; i < TOPIC_KINDS_N; i++)
        out->topic[i] = own[i][0] != '\0' ? mem_copy_text(own[i]) : text_join(slash + 1, strlen(slash + 1), suffix[i]);
    return ST_OK;
}

void kafka_names_free(struct kafka_names *n)
{
    free(n->brokers);
    for (int i = 0; i < TOPIC_KINDS_N; i++)
        free(n->topic[i]);
    memset(n, 0, sizeof *n);
}

/* The library's levels are syslog's. A broker that is away is a warning of its own every few seconds: enough. */
static void log_take(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    (void)rk;
    if (level <= 3 && strcmp(facility, "TXNERR") != 0)      /* a transaction's error is answered, and logged by who asked */
        log_warn("kafka.client", "facility=%s text=\"%s\"", facility, text);
    else
        log_debug("kafka.client", "level=%d facility=%s text=\"%s\"", level, facility, text);
}

static status pair_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct error *err)
{
    char text[512];

    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
        return ST_OK;
    /* The library's text repeats the value, which may be a secret. */
    return error_set(err, ST_REJECT, "setting kafka.%s=%s: %s", name, config_value_shown(name, value),
                     config_value_shown(name, value) == value ? text : "the Kafka client does not take this");
}

static status pairs_set(rd_kafka_conf_t *conf, const char *const *pairs, struct error *err)
{
    status st = ST_OK;

    for (; *pairs != NULL && st == ST_OK; pairs += 2)
        st = pair_set(conf, pairs[0], pairs[1], err);
    return st;
}

static bool pairs_hold(const char *const *pairs, const char *name)
{
    while (*pairs != NULL && strcmp(*pairs, name) != 0)
        pairs += 2;
    return *pairs != NULL;
}

static status own_pairs_set(const struct config *cfg, rd_kafka_conf_t *conf, const char *const *musts, struct error *err)
{
    for (int i = 0; i < cfg->kafka_pairs_n; i++) {
        const struct config_pair *own = &cfg->kafka_pairs[i];
        char *value;
        status st;

        if (pairs_hold(musts, own->name))
            return error_set(err, ST_REJECT, "setting kafka.%s: exactly-once delivery depends on it, so nightshift sets it itself",
                             own->name);
        st = config_value_read(own->name, own->value, &value, err);
        if (st != ST_OK)
            return st;
        st = pair_set(conf, own->name, value, err);
        config_value_free(value);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

status kafka_conf_make(const struct config *cfg, const char *brokers, const char *const *defaults, const char *const *musts,
                       rd_kafka_conf_t **out, struct error *err)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    status st;

    *out = NULL;
    rd_kafka_conf_set_log_cb(conf, log_take);
    TRY(pair_set(conf, "bootstrap.servers", brokers, err));
    TRY(pair_set(conf, "client.id", "nightshift", err));
    TRY(pair_set(conf, "socket.nagle.disable", "true", err));
    TRY(pairs_set(conf, defaults, err));
    TRY(own_pairs_set(cfg, conf, musts, err));
    TRY(pairs_set(conf, musts, err));
    *out = conf;
    conf = NULL;
out:
    if (conf != NULL)
        rd_kafka_conf_destroy(conf);
    return st;
}
