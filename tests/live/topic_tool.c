/* tests/live/topic_tool.c - queue/topic.h by hand, for the Python tests. usage: topic_tool kafka://HOST:PORT/NAME [name=value ...]
 * Reads commands, one a line, words split by spaces; bytes are hex, "-" is NULL, "." is empty. Answers end with "ok" or "error TEXT".
 *   make KIND PARTITIONS | config KIND NAME | ranges KIND
 *   open ID | begin | commit | abort | close
 *   add KIND PARTITION KEY VALUE [NAME=BYTES ...]             PARTITION -1: by the key
 *   scan KIND [FROM ...]          prints "PARTITION OFFSET TIMESTAMP KEY VALUE NAME=BYTES ..."
 *   commits GROUP                 prints "PARTITION OFFSET METADATA"
 *   place GROUP PARTITION OFFSET METADATA */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue/topic.h"

enum { WORDS_MAX = 64 };

struct tool {
    struct topics *topics;
    struct topic_writer *writer;
    struct error err;
};

static enum topic_kind kind_of(const char *word)
{
    return strcmp(word, "prompts") == 0 ? TOPIC_PROMPTS : strcmp(word, "results") == 0 ? TOPIC_RESULTS : TOPIC_DEAD;
}

/* In place: bytes are never longer than their hex. NULL for "-". */
static char *bytes_read(char *word, size_t *n)
{
    *n = 0;
    if (strcmp(word, "-") == 0)
        return NULL;
    if (strcmp(word, ".") == 0)
        return word;
    for (char *at = word; at[0] != '\0' && at[1] != '\0'; at += 2) {
        char pair[3] = { at[0], at[1], '\0' };

        word[(*n)++] = (char)strtol(pair, NULL, 16);
    }
    return word;
}

static void bytes_print(const void *bytes, size_t n)
{
    if (bytes == NULL || n == 0)
        fputs(bytes == NULL ? "-" : ".", stdout);
    for (size_t i = 0; bytes != NULL && i < n; i++)
        printf("%02x", ((const unsigned char *)bytes)[i]);
}

static status add(struct tool *t, char **word, int n)
{
    struct header headers[WORDS_MAX];
    struct record r = { .headers = headers };

    r.key = bytes_read(word[3], &r.key_n);
    r.value = bytes_read(word[4], &r.value_n);
    for (int i = 5; i < n; i++) {
        char *equals = strchr(word[i], '=');

        *equals = '\0';
        headers[r.headers_n].name = word[i];
        headers[r.headers_n].value = bytes_read(equals + 1, &headers[r.headers_n].value_n);
        r.headers_n++;
    }
    return topic_writer_add(t->writer, kind_of(word[1]), atoi(word[2]), &r, &t->err);
}

static status scan(struct tool *t, char **word, int n)
{
    int64_t from[WORDS_MAX];
    const struct record *r;
    struct topic_scan *s;
    status st;

    for (int i = 2; i < n; i++)
        from[i - 2] = strtoll(word[i], NULL, 10);
    st = topic_scan_open(t->topics, kind_of(word[1]), n > 2 ? from : NULL, false, &s, &t->err);
    while (st == ST_OK && !topic_scan_ended(s)) {
        st = topic_scan_next(s, 1000, &r, &t->err);
        if (st == ST_AGAIN) {
            st = ST_OK;
            continue;
        }
        if (st != ST_OK)
            break;
        printf("%d %" PRId64 " %" PRId64 " ", r->source, r->offset, r->timestamp_ms);
        bytes_print(r->key, r->key_n);
        putchar(' ');
        bytes_print(r->value, r->value_n);
        for (size_t i = 0; i < r->headers_n; i++) {
            printf(" %s=", r->headers[i].name);
            bytes_print(r->headers[i].value, r->headers[i].value_n);
        }
        putchar('\n');
    }
    topic_scan_close(s);
    return st;
}

static status commits(struct tool *t, const char *group)
{
    struct topic_commit *c;
    int32_t n;
    status st = topic_read_commits(t->topics, group, &c, &n, &t->err);

    for (int32_t p = 0; st == ST_OK && p < n; p++)
        printf("%d %" PRId64 " %s\n", p, c[p].offset, c[p].metadata != NULL ? c[p].metadata : "-");
    topic_commits_free(c, n);
    return st;
}

static status ranges(struct tool *t, const char *kind)
{
    struct topic_range *r;
    int32_t n;
    status st = topic_read_ranges(t->topics, kind_of(kind), &r, &n, &t->err);

    for (int32_t p = 0; st == ST_OK && p < n; p++)
        printf("%d %" PRId64 " %" PRId64 "\n", p, r[p].low, r[p].high);
    free(r);
    return st;
}

static status command(struct tool *t, char **word, int n)
{
    const char *name = word[0];
    int64_t value;
    bool made;
    status st;

    if (strcmp(name, "make") == 0)
        return topic_make(t->topics, kind_of(word[1]), &(struct topic_shape){ atoi(word[2]), -1, NULL }, &made, &t->err);
    if (strcmp(name, "config") == 0) {
        st = topic_read_config(t->topics, kind_of(word[1]), word[2], &value, &t->err);
        printf("%" PRId64 "\n", value);
        return st;
    }
    if (strcmp(name, "ranges") == 0)
        return ranges(t, word[1]);
    if (strcmp(name, "open") == 0)
        return topic_writer_open(t->topics, word[1], &t->writer, &t->err);
    if (strcmp(name, "begin") == 0)
        return topic_writer_begin(t->writer, &t->err);
    if (strcmp(name, "add") == 0)
        return add(t, word, n);
    if (strcmp(name, "commit") == 0)
        return topic_writer_commit(t->writer, &t->err);
    if (strcmp(name, "abort") == 0)
        return topic_writer_abort(t->writer, &t->err);
    if (strcmp(name, "scan") == 0)
        return scan(t, word, n);
    if (strcmp(name, "commits") == 0)
        return commits(t, word[1]);
    if (strcmp(name, "place") == 0)
        return topic_write_commit(t->topics, word[1], atoi(word[2]), strtoll(word[3], NULL, 10),
                                  strcmp(word[4], "-") == 0 ? NULL : word[4], &t->err);
    if (strcmp(name, "close") == 0) {
        topic_writer_close(t->writer);
        t->writer = NULL;
        return ST_OK;
    }
    return error_set(&t->err, ST_REJECT, "no command is called %s", name);
}

static void commands_run(struct tool *t)
{
    char *line = NULL, *word[WORDS_MAX], *at;
    size_t room = 0;
    int n;

    while (getline(&line, &room, stdin) > 0) {
        line[strcspn(line, "\n")] = '\0';
        n = 0;
        for (char *w = strtok_r(line, " ", &at); w != NULL && n < WORDS_MAX; w = strtok_r(NULL, " ", &at))
            word[n++] = w;
        if (n == 0)
            continue;
        t->err.text[0] = '\0';
        if (command(t, word, n) == ST_OK)
            puts("ok");
        else
            printf("error %s\n", t->err.text);
        fflush(stdout);
    }
    free(line);
}

int main(int argc, char **argv)
{
    static struct config cfg;
    struct tool t = { NULL, NULL, { "" } };
    status st = ST_OK;

    config_defaults(&cfg);
    for (int i = 2; i < argc && st == ST_OK; i++)
        st = config_set_pair(&cfg, argv[i], &t.err);
    if (st == ST_OK && argc > 1)
        st = topics_open(&cfg, argv[1], &t.topics, &t.err);
    if (argc < 2 || st != ST_OK) {
        fprintf(stderr, "topic_tool: %s\n", argc < 2 ? "a queue is needed" : t.err.text);
        return 1;
    }
    commands_run(&t);
    topic_writer_close(t.writer);
    topics_close(t.topics);
    return 0;
}
