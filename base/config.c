#define _DEFAULT_SOURCE      /* explicit_bzero */
#include "base/config.h"

#include <errno.h>
#include <inttypes.h>
#include <ini.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct setting {
    const char *group;      /* title row: name is NULL */
    const char *name;
    bool number;
    size_t at;              /* offset in struct config */
    int64_t def, min, max;
    const char *def_text;
    const char *help;
};

static const struct setting settings[] = {
#define CONF_GROUP(title) { title, NULL, false, 0, 0, 0, 0, NULL, NULL },
#define CONF_INT(name, def, min, max, help) \
    { NULL, #name, true, offsetof(struct config, name), def, min, max, NULL, help },
#define CONF_STR(name, def, help) { NULL, #name, false, offsetof(struct config, name), 0, 0, 0, def, help },
#include "base/config.def"
};
#define SETTINGS_N (sizeof settings / sizeof settings[0])
#define PAIR_PREFIX "kafka."
#define VALUE_FILE_MAX (1 << 20)       /* of "@FILE": certificates and keys are far smaller */

static int64_t *number_at(struct config *cfg, const struct setting *s)
{
    return (int64_t *)(void *)((char *)cfg + s->at);
}

void config_defaults(struct config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    for (size_t i = 0; i < SETTINGS_N; i++) {
        const struct setting *s = &settings[i];

        if (s->number)
            *number_at(cfg, s) = s->def;
        else if (s->name != NULL)
            strcpy((char *)cfg + s->at, s->def_text);
    }
}

static status number_parse(const struct setting *s, const char *value, int64_t *out, struct error *err)
{
    char *end;
    long long v;

    errno = 0;
    v = strtoll(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0)
        return error_set(err, ST_REJECT, "setting %s=%s: a whole number is needed, %" PRId64 " to %" PRId64,
                         s->name, value, s->min, s->max);
    if (v < s->min || v > s->max)
        return error_set(err, ST_REJECT, "setting %s=%s is out of range: %" PRId64 " to %" PRId64 " is allowed",
                         s->name, value, s->min, s->max);
    *out = v;
    return ST_OK;
}

static status pair_set(struct config *cfg, const char *name, const char *value, struct error *err)
{
    struct config_pair *p = cfg->kafka_pairs;
    const char *own = name + strlen(PAIR_PREFIX);

    if (*own == '\0' || strlen(own) >= sizeof p->name)
        return error_set(err, ST_REJECT, "setting %s: a name of librdkafka of up to %zu bytes is needed behind \"%s\"", name,
                         sizeof p->name - 1, PAIR_PREFIX);
    if (strlen(value) >= sizeof p->value)
        return error_set(err, ST_REJECT, "setting %s: the value is longer than %zu bytes; \"@FILE\" reads it from a file", name,
                         sizeof p->value - 1);
    while (p < cfg->kafka_pairs + cfg->kafka_pairs_n && strcmp(p->name, own) != 0)
        p++;
    if (p == cfg->kafka_pairs + CONF_PAIRS_MAX)
        return error_set(err, ST_REJECT, "setting %s: more than %d settings begin with \"%s\"", name, CONF_PAIRS_MAX, PAIR_PREFIX);
    if (p == cfg->kafka_pairs + cfg->kafka_pairs_n)
        cfg->kafka_pairs_n++;
    strcpy(p->name, own);
    strcpy(p->value, value);
    return ST_OK;
}

status config_set(struct config *cfg, const char *name, const char *value, struct error *err)
{
    if (strncmp(name, PAIR_PREFIX, strlen(PAIR_PREFIX)) == 0)
        return pair_set(cfg, name, value, err);
    for (size_t i = 0; i < SETTINGS_N; i++) {
        const struct setting *s = &settings[i];

        if (s->name == NULL || strcmp(s->name, name) != 0)
            continue;
        if (s->number)
            return number_parse(s, value, number_at(cfg, s), err);
        if (strlen(value) >= CONF_TEXT_MAX)
            return error_set(err, ST_REJECT, "setting %s: the value is longer than %d bytes", name, CONF_TEXT_MAX - 1);
        strcpy((char *)cfg + s->at, value);
        return ST_OK;
    }
    return error_set(err, ST_REJECT, "no setting is called \"%s\"; `nightshift config` lists them all", name);
}

status config_set_pair(struct config *cfg, const char *pair, struct error *err)
{
    const char *equals = strchr(pair, '=');
    char name[sizeof(struct config_pair)];

    if (equals == NULL || equals == pair || (size_t)(equals - pair) >= sizeof name)
        return error_set(err, ST_REJECT, "--set %s: name=value is needed; `nightshift config` lists the names", pair);
    memcpy(name, pair, (size_t)(equals - pair));
    name[equals - pair] = '\0';
    return config_set(cfg, name, equals + 1, err);
}

struct file_reader {
    struct config *cfg;
    struct error error;
    bool failed;
};

static int file_value(void *ctx, const char *section, const char *name, const char *value)
{
    struct file_reader *r = ctx;

    (void)section;
    if (!r->failed && config_set(r->cfg, name, value, &r->error) != ST_OK)
        r->failed = true;
    return !r->failed;
}

/* inih reads through a buffer of LINE_BYTES_MAX: what is longer would come back as a line of its own, which is another setting or
 * goes over the one before. So comments are taken off here, and a line that is too long all the same is refused. */
struct line_source {
    FILE *file;
    char *text;
    size_t room;
    int line_i;                    /* of the last line read, from 1 */
    const char *fault;             /* why it cannot be one; NULL: it can */
};

/* Cuts white space at both ends and a comment, which begins with a ';' behind white space, or with ';' or '#' at the front. */
static char *line_strip(char *text)
{
    char *from = text + strspn(text, " \t"), *p;

    for (p = from; *p != '\0'; p++)
        if ((*p == ';' && (p == from || p[-1] == ' ' || p[-1] == '\t')) || (*p == '#' && p == from))
            break;
    while (p > from && strchr(" \t\r\n", p[-1]) != NULL)
        p--;
    *p = '\0';
    return from;
}

static char *line_read(char *out, int room, void *source)
{
    struct line_source *s = source;
    ssize_t n = s->fault == NULL ? getline(&s->text, &s->room, s->file) : -1;
    char *line;

    if (n < 0)
        return NULL;
    s->line_i++;
    if (memchr(s->text, '\0', (size_t)n) != NULL)
        s->fault = "it holds a zero byte";
    line = line_strip(s->text);
    if (strlen(line) >= (size_t)room)
        s->fault = "it is too long; --set takes longer values";
    return s->fault == NULL ? strcpy(out, line) : NULL;
}

status config_file(struct config *cfg, const char *path, struct error *err)
{
    struct file_reader r = { .cfg = cfg };
    struct line_source s = { .file = fopen(path, "rb") };
    status st = ST_OK;
    int line;

    if (s.file == NULL)
        return error_set(err, ST_REJECT, "cannot read the settings file %s: %s", path, strerror(errno));
    errno = 0;
    line = ini_parse_stream(line_read, &s, file_value, &r);
    if (ferror(s.file))
        st = error_set(err, ST_REJECT, "cannot read the settings file %s: %s", path, strerror(errno));
    else if (r.failed)
        st = error_set(err, ST_REJECT, "%s line %d: %s", path, line, r.error.text);
    else if (line != 0)
        st = error_set(err, ST_REJECT, "%s line %d: name = value is needed", path, line);
    else if (s.fault != NULL)
        st = error_set(err, ST_REJECT, "%s line %d: %s", path, s.line_i, s.fault);
    fclose(s.file);
    free(s.text);
    return st;
}

const char *config_url_shown(const char *url, char out[CONF_TEXT_MAX])
{
    const char *scheme_end = strstr(url, "://"), *at = NULL;

    if (scheme_end != NULL)
        at = strrchr(scheme_end + 3, '@');      /* the last one: a password may hold another, or a / */
    if (at == NULL)
        snprintf(out, CONF_TEXT_MAX, "%s", url);
    else
        snprintf(out, CONF_TEXT_MAX, "%.*s***%s", (int)(scheme_end + 3 - url), url, at);
    return out;
}

static void json_print(const struct config *cfg, FILE *out)
{
    const char *comma = "{";
    char shown[CONF_TEXT_MAX];
    struct buf b = BUF_EMPTY;

    for (size_t i = 0; i < SETTINGS_N; i++) {
        const struct setting *s = &settings[i];

        if (s->name == NULL)
            continue;
        buf_add_format(&b, "%s\n  \"%s\": {\"value\": ", comma, s->name);
        if (s->number) {
            buf_add_format(&b, "%" PRId64 ", \"default\": %" PRId64 ", \"min\": %" PRId64 ", \"max\": %" PRId64,
                           *number_at((struct config *)(uintptr_t)cfg, s), s->def, s->min, s->max);
        } else {
            buf_add_json(&b, config_url_shown((const char *)cfg + s->at, shown));
            buf_add_text(&b, ", \"default\": ");
            buf_add_json(&b, s->def_text);
        }
        buf_add_text(&b, ", \"help\": ");
        buf_add_json(&b, s->help);
        buf_add_text(&b, "}");
        comma = ",";
    }
    for (int i = 0; i < cfg->kafka_pairs_n; i++) {
        const struct config_pair *p = &cfg->kafka_pairs[i];

        buf_add_format(&b, ",\n  \"" PAIR_PREFIX "%s\": {\"value\": ", p->name);
        buf_add_json(&b, config_value_shown(p->name, p->value));
        buf_add_text(&b, "}");
    }
    buf_add_text(&b, "\n}\n");
    fwrite(b.data, 1, b.n, out);
    buf_fini(&b);
}

static void markdown_print(FILE *out)
{
    for (size_t i = 0; i < SETTINGS_N; i++) {
        const struct setting *s = &settings[i];

        if (s->name == NULL)
            fprintf(out, "%s## %s\n\n| setting | default | range | what it bounds |\n|---|---|---|---|\n",
                    i ? "\n" : "", s->group);
        else if (s->number)
            fprintf(out, "| `%s` | %" PRId64 " | %" PRId64 " to %" PRId64 " | %s |\n",
                    s->name, s->def, s->min, s->max, s->help);
        else
            fprintf(out, "| `%s` | %s%s%s | text | %s |\n", s->name, s->def_text[0] ? "`" : "",
                    s->def_text[0] ? s->def_text : "(empty)", s->def_text[0] ? "`" : "", s->help);
    }
}

void config_print(const struct config *cfg, enum config_format format, FILE *out)
{
    char shown[CONF_TEXT_MAX];

    if (format == CONFIG_JSON) {
        json_print(cfg, out);
        return;
    }
    if (format == CONFIG_MARKDOWN) {
        markdown_print(out);
        return;
    }
    for (size_t i = 0; i < SETTINGS_N; i++) {
        const struct setting *s = &settings[i];

        if (s->name == NULL)
            fprintf(out, "%s[%s]\n", i ? "\n" : "", s->group);
        else if (s->number)
            fprintf(out, "%-20s = %-10" PRId64 " ; default %" PRId64 ", %" PRId64 " to %" PRId64 ": %s\n", s->name,
                    *number_at((struct config *)(uintptr_t)cfg, s), s->def, s->min, s->max, s->help);
        else
            fprintf(out, "%-20s = %-10s ; default %s: %s\n", s->name, config_url_shown((const char *)cfg + s->at, shown),
                    s->def_text[0] ? s->def_text : "(empty)", s->help);
    }
    for (int i = 0; i < cfg->kafka_pairs_n; i++) {
        const struct config_pair *p = &cfg->kafka_pairs[i];

        fprintf(out, PAIR_PREFIX "%s = %s ; librdkafka\n", p->name, config_value_shown(p->name, p->value));
    }
}

const char *config_value_shown(const char *name, const char *value)
{
    static const char *const secret[] = { "password", "secret", "token", "jaas", "key.pem", "keytab" };

    for (size_t i = 0; i < sizeof secret / sizeof secret[0]; i++)
        if (strstr(name, secret[i]) != NULL)
            return "***";
    return value;
}

/* The name of the file or variable is shown, never what is in it. */
static status value_file_read(const char *name, const char *path, char **out, struct error *err)
{
    FILE *f = fopen(path, "rb");
    char *text;
    size_t n;

    if (f == NULL)
        return error_set(err, ST_REJECT, "setting %s: cannot read the file %s: %s", name, path, strerror(errno));
    text = mem_take(VALUE_FILE_MAX + 1);
    n = fread(text, 1, VALUE_FILE_MAX + 1, f);
    fclose(f);
    if (n > VALUE_FILE_MAX || memchr(text, '\0', n) != NULL) {
        free(text);
        return error_set(err, ST_REJECT, "setting %s: the file %s is longer than %d bytes or not text", name, path, VALUE_FILE_MAX);
    }
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    text[n] = '\0';
    *out = text;
    return ST_OK;
}

status config_value_read(const char *name, const char *value, char **out, struct error *err)
{
    const char *text = value;

    *out = NULL;
    if (value[0] == '@')
        return value_file_read(name, value + 1, out, err);
    if (value[0] == '$' && (text = config_env(value + 1)) == NULL)
        return error_set(err, ST_REJECT, "setting %s: the environment has no variable %s", name, value + 1);
    *out = mem_copy_text(text);
    return ST_OK;
}

void config_value_free(char *value)
{
    if (value != NULL)
        explicit_bzero(value, strlen(value));
    free(value);
}

const char *config_env(const char *name)
{
    return getenv(name);
}
