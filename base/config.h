/* base/config.h - the settings: made from config.def, const after start.
 * Order: defaults, then the file (--config), then --set name=value and flags. Threads: any once filled in. */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define CONF_TEXT_MAX 512

struct config {
#define CONF_GROUP(title)
#define CONF_INT(name, def, min, max, help) int64_t name;
#define CONF_STR(name, def, help) char name[CONF_TEXT_MAX];
#include "base/config.def"
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

/* The environment: the only home of getenv. NULL: unset. */
const char *config_env(const char *name);

#endif
