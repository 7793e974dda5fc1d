/* AWS: instance metadata, version 2 (IMDSv2; "Spot Instance interruption notices", "EC2 instance rebalance recommendations").
 *
 *   PUT /latest/api/token                  a token for the requests below; 401 there: it is no longer good, a new one is asked
 *   GET /latest/meta-data/spot/instance-action           404: no notice. {"action": "terminate", "time": "2017-09-18T08:22:00Z"},
 *                                          two minutes before; action may be stop, or hibernate, which begins at once
 *   GET /latest/meta-data/events/recommendations/rebalance      404: none. {"noticeTime": ...}: higher risk, no date
 *
 * A container behind one hop more than the token's answer may travel gets none: the hop limit of the instance's metadata
 * options must then be 2. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "worker/preempt/internal.h"

enum step { TOKEN, ACTION, REBALANCE };

#define REQUEST_TIMEOUT_MS 2000
#define TOKEN_LIFE_S 21600         /* the longest AWS gives */
#define NOTICE_LONGEST_S 600       /* it says two minutes; a clock that is off must not make hours of it */
#define HIBERNATE_S 5              /* begins at once; memory survives it, a lease of a topic does not */

static void request_begin(struct source *s, enum step step)
{
    static const char *const paths[] = { "/latest/api/token", "/latest/meta-data/spot/instance-action",
                                         "/latest/meta-data/events/recommendations/rebalance" };
    struct request_plan plan = { "GET", s->cfg->notice_aws_url, paths[step], { NULL }, NULL, REQUEST_TIMEOUT_MS };
    char header[sizeof s->word + 64];

    s->step = step;
    if (step == TOKEN) {
        snprintf(header, sizeof header, "X-aws-ec2-metadata-token-ttl-seconds: %d", TOKEN_LIFE_S);
        plan.method = "PUT";
    } else {
        snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", s->word);
    }
    plan.headers[0] = header;
    if (s->probing)
        plan.timeout_ms = PROBE_TIMEOUT_MS;
    source_fetch(s, &plan);
}

static void ask(struct source *s)
{
    s->again = false;
    request_begin(s, s->word[0] == '\0' || clock_mono_ns() >= s->word_until_ns ? TOKEN : ACTION);
}

/* It goes into a header of the next requests: nothing may stand in it that would end that header. */
static bool token_take(struct source *s, const struct answer *a)
{
    if (a->status != 200 || a->body_n == 0 || a->body_n >= sizeof s->word)
        return false;
    for (size_t i = 0; i < a->body_n; i++)
        if (a->body[i] <= ' ' || a->body[i] > '~')
            return false;
    memcpy(s->word, a->body, a->body_n + 1);
    s->word_until_ns = clock_mono_ns() + TOKEN_LIFE_S / 2 * NS_PER_S;
    return true;
}

static void token_answered(struct source *s, const struct answer *a)
{
    if (!token_take(s, a)) {
        s->word[0] = '\0';
        source_round_failed(s, "no token (in a container: is the instance's metadata hop limit 2?)", a);
        return;
    }
    source_found(s);
    request_begin(s, ACTION);
}

/* An action without a usable time is none less: then it is treated as the shortest there is. */
static void action_read(struct source *s, const struct answer *a)
{
    json_t *doc = json_loadb(a->body, a->body_n, 0, NULL);
    const char *action = json_string_value(json_object_get(doc, "action"));
    const char *time = json_string_value(json_object_get(doc, "time"));
    int64_t unix_s, now = clock_mono_ns();

    if (action == NULL)
        source_notice(s, NOTICE_DRAIN, now + s->cfg->drain_s * NS_PER_S, "an interruption notice that cannot be read");
    else if (strcmp(action, "hibernate") == 0)
        source_notice(s, NOTICE_DRAIN, now + HIBERNATE_S * NS_PER_S, "hibernate, at once");
    else if (time == NULL || when_parse(time, &unix_s) != ST_OK)
        source_notice(s, NOTICE_DRAIN, now + s->cfg->drain_s * NS_PER_S, "%s at an unknown time", action);
    else
        source_notice(s, NOTICE_DRAIN_SOON, when_deadline_ns(unix_s, NOTICE_LONGEST_S), "%s at %s", action, time);
    json_decref(doc);
}

static void rebalance_read(struct source *s, const struct answer *a)
{
    json_t *doc = json_loadb(a->body, a->body_n, 0, NULL);
    const char *time = json_string_value(json_object_get(doc, "noticeTime"));

    source_notice(s, NOTICE_REBALANCE, 0, "rebalance recommendation of %s", time != NULL ? time : "an unknown time");
    json_decref(doc);
}

static void answered(struct source *s, const struct answer *a)
{
    enum step step = (enum step)s->step;

    if (step == TOKEN) {
        token_answered(s, a);
        return;
    }
    if (a->status == 401 && !s->again) {
        s->again = true;
        request_begin(s, TOKEN);
        return;
    }
    if (a->status != 200 && a->status != 404) {
        s->word[0] = '\0';
        source_round_failed(s, "no answer about interruptions", a);
        return;
    }
    if (step == ACTION) {
        if (a->status == 200)
            action_read(s, a);
        request_begin(s, REBALANCE);
        return;
    }
    if (a->status == 200)
        rebalance_read(s, a);
    source_round_ended(s, s->cfg->notice_poll_ms);
}

const struct source_ops source_aws = { ask, answered };
