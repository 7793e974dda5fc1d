/* tools/nightshift/status_topic.c - how far a queue's topics are, or one job in them, from outside. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/nightshift/follow.h"
#include "tools/nightshift/status.h"
#include "worker/preempt/signals.h"

struct topic_state {
    int32_t partitions_n;
    int64_t offsets_n;                         /* records and transactions' marks */
};

static status topic_state_read(struct topics *t, enum topic_kind kind, struct topic_state *out, struct error *err)
{
    struct topic_range *ranges;
    status st = topic_read_ranges(t, kind, &ranges, &out->partitions_n, err);

    out->offsets_n = 0;
    for (int32_t p = 0; st == ST_OK && p < out->partitions_n; p++)
        out->offsets_n += ranges[p].high - ranges[p].low;
    if (st == ST_OK)
        free(ranges);
    return st;
}

/* What stands behind the group's commits, and how many partitions have one. */
static status lag_read(struct topics *t, const char *group, int64_t *lag_n, int32_t *committed_n, struct error *err)
{
    struct topic_commit *commits = NULL;
    struct topic_range *ranges = NULL;
    int32_t commits_n = 0, ranges_n = 0;
    status st;

    *lag_n = 0;
    *committed_n = 0;
    TRY(topic_read_commits(t, group, &commits, &commits_n, err));
    TRY(topic_read_ranges(t, TOPIC_PROMPTS, &ranges, &ranges_n, err));
    for (int32_t p = 0; p < ranges_n; p++) {
        int64_t at = p < commits_n && commits[p].offset > ranges[p].low ? commits[p].offset : ranges[p].low;

        *lag_n += ranges[p].high > at ? ranges[p].high - at : 0;
        *committed_n += p < commits_n && commits[p].offset >= 0;
    }
out:
    topic_commits_free(commits, commits_n);
    free(ranges);
    return st;
}

static status queue_show(struct cli *cli, struct topics *t, const char *group, struct error *err)
{
    static const char *const names[TOPIC_KINDS_N] = { "prompts", "results", "dead" };
    struct topic_state state[TOPIC_KINDS_N];
    int32_t committed_n;
    int64_t lag_n;
    status st;

    for (int kind = 0; kind < TOPIC_KINDS_N; kind++)
        TRY(topic_state_read(t, (enum topic_kind)kind, &state[kind], err));
    TRY(lag_read(t, group, &lag_n, &committed_n, err));
    if (cli->json)
        printf("{\"lag\": %" PRId64 ", \"partitions\": %d, \"committed_partitions\": %d, \"offsets\": {\"prompts\": %" PRId64 ", \"results\": %"
               PRId64 ", \"dead\": %" PRId64 "}}\n", lag_n, (int)state[TOPIC_PROMPTS].partitions_n, (int)committed_n,
               state[TOPIC_PROMPTS].offsets_n, state[TOPIC_RESULTS].offsets_n, state[TOPIC_DEAD].offsets_n);
    for (int kind = 0; kind < TOPIC_KINDS_N && !cli->json; kind++)
        printf("%-8s %s: %" PRId64 " offsets in %d partitions\n", names[kind], topics_name(t, (enum topic_kind)kind), state[kind].offsets_n,
               (int)state[kind].partitions_n);
    if (!cli->json)
        printf("group    %s: %" PRId64 " offsets are not done up to their end, %d of %d partitions have a commit\n"
               "(offsets count records and the marks of transactions; --job ID counts a job's lines)\n", group, lag_n, (int)committed_n,
               (int)state[TOPIC_PROMPTS].partitions_n);
out:
    return st;
}

static status answer_pass(void *ctx, int64_t line, struct place place, bool dead, const struct record *r, struct error *err)
{
    (void)ctx;
    (void)line;
    (void)place;
    (void)dead;
    (void)r;
    (void)err;
    return ST_OK;                              /* follow counts */
}

static bool stop_asked(void)
{
    return signals_seen() > 0;
}

static status job_show(struct cli *cli, struct topics *t, const char *job, struct error *err)
{
    struct follow f = { .topics = t, .job = job, .stopped = stop_asked };
    bool caught_up = false;
    status st;

    TRY(follow_open(&f, err));
    TRY(follow_read_prompts(&f, err));
    while (!caught_up && !stop_asked())
        TRY(follow_step(&f, 100, answer_pass, NULL, &caught_up, err));
    if (follow_lines(&f) == 0)
        TRY(error_set(err, ST_REJECT, "the topic \"%s\" holds no job \"%s\"", topics_name(t, TOPIC_PROMPTS), job));
    if (cli->json)
        printf("{\"job\": \"%s\", \"lines\": %" PRId64 ", \"done\": %" PRId64 ", \"failed\": %" PRId64 ", \"open\": %" PRId64 ", \"unsent\": %"
               PRId64 ", \"finished\": %s}\n", job, follow_lines(&f), f.answered_n, f.dead_n, follow_open_lines(&f), follow_unsent(&f),
               follow_open_lines(&f) == 0 ? "true" : "false");
    else
        printf("job %s: %" PRId64 " of %" PRId64 " lines have their verdict (%" PRId64 " failed), %" PRId64 " wait, %" PRId64
               " are not uploaded\n", job, f.answered_n + f.dead_n, follow_lines(&f), f.dead_n, follow_open_lines(&f) - follow_unsent(&f),
               follow_unsent(&f));
out:
    follow_close(&f);
    return st;
}

status status_topic(struct cli *cli, const char *url, const char *job, const char *group, struct error *err)
{
    struct topics *t;
    status st;

    if (job != NULL && !job_id_is_sound(job))
        return error_set(err, ST_REJECT, "--job %s: up to 64 letters, digits, '.', '_' and '-' are needed", job);
    TRY(topics_open(&cli->cfg, url, &t, err));
    signals_install();
    st = job != NULL ? job_show(cli, t, job, err) : queue_show(cli, t, group, err);
out:
    topics_close(t);
    return st;
}
