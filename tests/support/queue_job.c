#define _XOPEN_SOURCE 700
#include "tests/support/queue_job.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PENDING_MAX 4096

static uint64_t random_next(uint64_t *state)      /* splitmix64 */
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void job_dir_make_in(struct job_dir *d, const char *parent)
{
    snprintf(d->path, sizeof d->path, "%s/nightshift-XXXXXX", parent);
    ASSERT(mkdtemp(d->path) != NULL);
    snprintf(d->input, sizeof d->input, "%s/in.jsonl", d->path);
    snprintf(d->output, sizeof d->output, "%s/out.jsonl", d->path);
    snprintf(d->errors, sizeof d->errors, "%s/err.jsonl", d->path);
    snprintf(d->sidecar, sizeof d->sidecar, "%s.job", d->output);
}

void job_dir_make(struct job_dir *d)
{
    /* Memory where there is some: thousands of fdatasyncs of a real disk say nothing more and take minutes. */
    job_dir_make_in(d, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s, (void)kind, (void)at;
    return remove(path);
}

void job_dir_remove(struct job_dir *d)
{
    nftw(d->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void bytes_put(const char *path, const void *bytes, size_t n, int flags)
{
    int fd = open(path, O_WRONLY | O_CREAT | flags, 0644);
    const char *p = bytes;

    ASSERT(fd >= 0);
    while (n > 0) {
        ssize_t wrote = write(fd, p, n);

        ASSERT(wrote > 0);
        p += wrote;
        n -= (size_t)wrote;
    }
    close(fd);
}

void text_write(const char *path, const void *bytes, size_t n)
{
    bytes_put(path, bytes, n, O_TRUNC);
}

void text_append(const char *path, const void *bytes, size_t n)
{
    bytes_put(path, bytes, n, O_APPEND);
}

bool text_exists(const char *path)
{
    struct stat s;

    return lstat(path, &s) == 0;
}

bool text_read(const char *path, struct buf *out)
{
    int fd = open(path, O_RDONLY);
    ssize_t got;

    buf_reset(out);
    if (fd < 0)
        return false;
    while ((got = read(fd, buf_reserve(out, 65536), 65536)) > 0)
        out->n += (size_t)got;
    close(fd);
    buf_text(out);
    return got == 0;
}

void lines_make(struct buf *out, int lines_n, uint64_t seed)
{
    uint64_t state = seed;

    buf_reset(out);
    for (int i = 0; i < lines_n; i++) {
        uint64_t word = random_next(&state);

        if (word % 11 == 0) {
            buf_add_text(out, word & 16 ? "\n" : "  \t\r\n");
            continue;
        }
        buf_add_format(out, "line %d%s ", i, word % 7 == 0 ? " bad" : "");
        for (uint64_t k = word >> 32 & 63; k > 0; k--)
            buf_add_format(out, "%02x", (unsigned)(word >> (k & 31) & 255));
        buf_add_text(out, word & 32 ? "\r\n" : "\n");
    }
}

/* ---- the run ---- */

/* The answer: a function of the line's bytes. A failure looks as the lines module would write it. */
static bool answer_add(struct buf *b, const char *id, const char *value, size_t n)
{
    static const char bad[] = "bad";
    bool failure = false;

    for (size_t i = 0; i + 3 <= n && !failure; i++)
        failure = memcmp(value + i, bad, 3) == 0;
    buf_add_format(b, "{\"id\":\"%s\",\"custom_id\":\"c\\\"%zu\",\"response\":{\"status_code\":%d,\"body\":\"%016" PRIx64, id, n,
                   failure ? 400 : 200, hash64(value, n, 7));
    for (size_t i = 0; i < n % 97; i++)
        buf_add_text(b, " word");
    buf_add_text(b, "\"},\"error\":null}");
    return failure;
}

struct runner {
    struct queue *q;
    const struct job_options *o;
    struct job_outcome *out;
    struct record *pending[PENDING_MAX];
    size_t pending_n;
    uint64_t random;
    int commits_n;
};

static bool failed(struct runner *r, status st, const char *call)
{
    if (st == ST_OK)
        return false;
    r->out->st = st;
    r->out->call = call;
    return true;
}

static bool commit_some(struct runner *r)
{
    size_t max = r->o->group_max ? (size_t)r->o->group_max : 7, n = 0;
    struct result results[256];
    struct record *given[256];
    struct buf lines[256];
    bool durable[256], good;

    memset(results, 0, sizeof results);
    memset(lines, 0, sizeof lines);
    while (r->pending_n > 0 && n < max && n < 256) {
        size_t i = r->o->shuffle ? random_next(&r->random) % r->pending_n : 0;
        struct record *rec = r->pending[i];
        char id[64];

        queue_result_id(r->q, rec->source, rec->offset, id);
        results[n].record = given[n] = rec;
        results[n].kind = answer_add(&lines[n], id, rec->value, rec->value_n) ? RESULT_FAILURE : RESULT_OUTPUT;
        queue_record_settle(r->q, rec);
        results[n].value = lines[n].data;
        results[n].value_n = lines[n].n;
        n++;
        memmove(&r->pending[i], &r->pending[i + 1], (--r->pending_n - i) * sizeof r->pending[0]);
    }
    good = !failed(r, queue_commit(r->q, results, n, durable, &r->out->err), "commit");
    if (good)
        r->out->committed_n += (int64_t)n;
    if (good && r->o->on_durable != NULL)
        r->o->on_durable((int64_t)n);
    for (size_t i = 0; i < n; i++) {
        ASSERT(durable[i] == good);
        queue_record_give(r->q, given[i]);
        buf_fini(&lines[i]);
    }
    r->commits_n++;
    return good;
}

/* False: the run has stopped. */
static bool answer_all(struct runner *r)
{
    while (!queue_ended(r->q) || r->pending_n > 0) {
        struct record *rec;
        status st = r->pending_n < PENDING_MAX ? queue_poll(r->q, 0, &rec, &r->out->err) : ST_AGAIN;

        if (st == ST_OK) {
            r->pending[r->pending_n++] = rec;
            r->out->polled_n++;
            if (r->pending_n < PENDING_MAX && random_next(&r->random) % 8 != 0)
                continue;
        } else if (st != ST_AGAIN) {
            return !failed(r, st, "poll");
        }
        if (r->pending_n > 0 && !commit_some(r))
            return false;
        if (r->o->stop_after > 0 && r->commits_n >= r->o->stop_after)
            return false;
    }
    return true;
}

void job_run(const struct job_dir *d, const struct job_options *o, struct job_outcome *out)
{
    static const char fixed[] = "{\"model\": {\"file\": \"m.gguf\", \"hash\": \"00ff\"}, \"temperature\": 0.5}";
    struct queue_job job = { "file:", d->input, d->output, o->errors_file ? d->errors : NULL,
                             o->fingerprint ? o->fingerprint : fixed, o->overwrite, o->order_input, NULL };
    struct runner *r = mem_take_zero(1, sizeof *r);
    struct config cfg;

    memset(out, 0, sizeof *out);
    config_defaults(&cfg);
    cfg.plan_window_max = o->window ? o->window : 64;
    cfg.line_mb_max = o->line_mb_max ? o->line_mb_max : 16;
    r->o = o;
    r->out = out;
    r->random = o->shuffle;
    if (!failed(r, queue_open(&cfg, &job, &r->q, &out->err), "open")) {
        out->state = *queue_state(r->q);
        if (answer_all(r))
            failed(r, queue_finish(r->q, &out->err), "finish");
    }
    while (r->pending_n > 0)
        queue_record_give(r->q, r->pending[--r->pending_n]);
    queue_close(r->q);
    free(r);
}

/* ---- the checker: reads files, knows only what a person would know ---- */

struct check {
    struct buf input, output, errors, sidecar;
    char job[17];
    char text[512];
    int64_t lines_n;
    struct { const char *at; size_t n; } *line;
    uint8_t *seen;
};

static bool PRINTF_LIKE(2, 3) wrong(struct check *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->text, sizeof c->text, fmt, ap);
    va_end(ap);
    return false;
}

static void input_split(struct check *c)
{
    const char *p = c->input.data, *end = p + c->input.n;

    if (c->input.n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((newline ? newline : end) - p);

        c->line = mem_grow(c->line, (size_t)(c->lines_n + 1) * sizeof c->line[0]);
        c->line[c->lines_n].at = p;
        c->line[c->lines_n++].n = n > 0 && p[n - 1] == '\r' ? n - 1 : n;
        p += n + 1;
    }
    c->seen = mem_take_zero((size_t)c->lines_n, 1);
}

static bool blank(const struct check *c, int64_t i)
{
    for (size_t k = 0; k < c->line[i].n; k++)
        if (strchr(" \t\r", c->line[i].at[k]) == NULL || c->line[i].at[k] == '\0')
            return false;
    return true;
}

static bool results_check(struct check *c, const struct buf *file, const char *name, bool errors_file, bool has_errors_file)
{
    const char *p = file->data, *end = p + file->n;

    for (int64_t line = 1; p < end; line++) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        struct buf want = BUF_EMPTY;
        char id[64];
        bool failure, right;
        int64_t i;

        if (newline == NULL)
            return wrong(c, "%s line %" PRId64 " has no newline", name, line);
        if (strncmp(p, "{\"id\":\"batch_req_", 17) != 0 || strncmp(p + 17, c->job, 16) != 0)
            return wrong(c, "%s line %" PRId64 " has a wrong id", name, line);
        i = strtoll(p + 34, NULL, 10);
        if (i < 0 || i >= c->lines_n || blank(c, i))
            return wrong(c, "%s line %" PRId64 " answers no line", name, line);
        if (c->seen[i]++)
            return wrong(c, "input line %" PRId64 " is answered twice", i);
        snprintf(id, sizeof id, "batch_req_%s_%" PRId64, c->job, i);
        failure = answer_add(&want, id, c->line[i].at, c->line[i].n);
        right = want.n == (size_t)(newline - p) && memcmp(want.data, p, want.n) == 0 &&
                (!has_errors_file || failure == errors_file);
        buf_fini(&want);
        if (!right)
            return wrong(c, "%s line %" PRId64 " is not the answer to input line %" PRId64, name, line,
                            i);
        p = newline + 1;
    }
    return true;
}

static bool check_all(struct check *c, const struct job_dir *d, bool partial)
{
    bool has_errors = text_read(d->errors, &c->errors);
    const char *job;

    if (!text_read(d->input, &c->input))
        return wrong(c, "no input");
    input_split(c);
    if (!text_read(d->sidecar, &c->sidecar) || (job = strstr(c->sidecar.data, "\"job\": \"")) == NULL)
        return partial || wrong(c, "no sidecar");
    memcpy(c->job, job + 8, 16);
    if (text_read(d->output, &c->output) && !results_check(c, &c->output, "output", false, has_errors))
        return false;
    if (has_errors && !results_check(c, &c->errors, "errors file", true, true))
        return false;
    for (int64_t i = 0; i < c->lines_n && !partial; i++)
        if (!blank(c, i) && !c->seen[i])
            return wrong(c, "input line %" PRId64 " is not answered", i);
    return true;
}

const char *job_check(const struct job_dir *d, bool partial)
{
    static char text[512];
    struct check c;
    bool right;

    memset(&c, 0, sizeof c);
    right = check_all(&c, d, partial);
    memcpy(text, c.text, sizeof text);
    buf_fini(&c.input);
    buf_fini(&c.output);
    buf_fini(&c.errors);
    buf_fini(&c.sidecar);
    free(c.line);
    free(c.seen);
    return right ? NULL : text;
}

int64_t job_lines(const struct job_dir *d)
{
    struct buf b = BUF_EMPTY;
    int64_t n = 0;

    for (int i = 0; i < 2; i++)
        if (text_read(i ? d->errors : d->output, &b))
            for (size_t k = 0; k < b.n; k++)
                n += b.data[k] == '\n';
    buf_fini(&b);
    return n;
}
