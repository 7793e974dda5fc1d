/* base/config.h - the settings: made from config.def, const after start.
 * Order: defaults, then the file (--config), then --set name=value and flags. Threads: any once filled in. */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define CONF_TEXT_MAX 512

/* A setting "kafka.NAME=VALUE": NAME is librdkafka's own and reaches it verbatim (kafka.security.protocol=SASL_SSL). */
#define CONF_PAIRS_MAX 48
struct config_pair {
    char name[96];                   /* without "kafka." */
    char value[CONF_TEXT_MAX];       /* as given: "@FILE" and "$NAME" are for config_value_read */
};

struct config {
#define CONF_GROUP(title)
#define CONF_INT(name, def, min, max, help) int64_t name;
#define CONF_STR(name, def, help) char name[CONF_TEXT_MAX];
#include "base/config.def"
    struct config_pair kafka_pairs[CONF_PAIRS_MAX];
    int kafka_pairs_n;
};

void config_defaults(struct config *cfg);
/* ST_REJECT: no such setting, not a number, out of range; the error names the setting, the value and the range. */
MUST_USE status config_set(struct config *cfg, const char *name, const char *value, struct error *err);
/* "name=value". */
MUST_USE status config_set_pair(struct config *cfg, const char *pair, struct error *err);
/* An INI file of name = value lines; sections are for the reader. ST_REJECT names file, line and cause. */
MUST_USE status config_file(struct config *cfg, const char *path, struct error *err);

enum config_format { CONFIG_TEXT, CONFIG_JSON, CONFIG_MARKDOWN };
/* Every setting with value, default and range: what `nightshift config` prints. */
void config_print(const struct config *cfg, enum config_format format, FILE *out);

/* The value itself: of "@FILE" the file's bytes without a newline at the end, of "$NAME" the environment's; anything else as it
 * stands. *out is terminated and freed by the caller (config_value_free, which wipes it). ST_REJECT: no such file or variable. */
MUST_USE status config_value_read(const char *name, const char *value, char **out, struct error *err);
void config_value_free(char *value);                /* NULL is allowed */
/* What may be shown of it: "***" where the name speaks of a password, secret, token or key; `value` otherwise. */
const char *config_value_shown(const char *name, const char *value);

/* A URL without its secrets: what stands between "://" and "@" becomes "***". Anything else as it is. */
const char *config_url_shown(const char *url, char out[CONF_TEXT_MAX]);

/* The environment: the only home of getenv. NULL: unset. */
const char *config_env(const char *name);

#endif
