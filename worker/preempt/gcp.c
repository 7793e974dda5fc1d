/* GCP: the metadata server ("Create and use Spot VMs: detect preemption", "Waiting for changes").
 *
 *   GET /computeMetadata/v1/instance/preempted       FALSE or TRUE; header Metadata-Flavor: Google in request and answer
 *   ?wait_for_change=true&last_etag=E&timeout_sec=60         the same, when it changes; the tag closes the gap between two
 *
 * From TRUE there are 30 s, best effort, until the machine is cut off. */
#include <stdio.h>
#include <string.h>

#include "worker/preempt/internal.h"

enum step { LOOK, WAIT };

#define LOOK_TIMEOUT_MS 2000
#define WAIT_S 60
#define NOTICE_S 30
#define ROUND_MS_MIN 1000          /* a server that does not wait is not asked in a busy loop */

static const char path[] = "/computeMetadata/v1/instance/preempted";

static void ask(struct source *s)
{
    struct request_plan plan = { "GET", s->cfg->notice_gcp_url, path, { "Metadata-Flavor: Google" }, NULL, LOOK_TIMEOUT_MS };
    char wait[sizeof path + sizeof s->word + 64];

    if (s->word[0] == '\0') {
        s->step = LOOK;
        if (s->probing)
            plan.timeout_ms = PROBE_TIMEOUT_MS;
    } else {
        s->step = WAIT;
        snprintf(wait, sizeof wait, "%s?wait_for_change=true&last_etag=%s&timeout_sec=%d", path, s->word, WAIT_S);
        plan.path = wait;
        plan.timeout_ms = (WAIT_S + 10) * 1000;
    }
    source_fetch(s, &plan);
}

/* Goes into a URL. Without a tag the next request is a plain look again. */
static void tag_take(struct source *s)
{
    if (!fetch_header(s->fetch, "ETag", s->word, sizeof s->word) ||
        s->word[strspn(s->word, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.")] != '\0')
        s->word[0] = '\0';
}

static bool body_is(const struct answer *a, const char *word)
{
    size_t n = strlen(word);

    return a->body_n >= n && memcmp(a->body, word, n) == 0 && a->body[n + strspn(a->body + n, " \r\n")] == '\0';
}

static void answered(struct source *s, const struct answer *a)
{
    char flavor[32];

    /* Whatever else answers at this address is no metadata server of GCP. */
    if (a->status != 200 || !fetch_header(s->fetch, "Metadata-Flavor", flavor, sizeof flavor) || strcmp(flavor, "Google") != 0 ||
        (!body_is(a, "TRUE") && !body_is(a, "FALSE"))) {
        s->word[0] = '\0';
        source_round_failed(s, "no answer about preemption", a);
        return;
    }
    if (body_is(a, "TRUE"))
        source_notice(s, NOTICE_DRAIN_SOON, clock_mono_ns() + NOTICE_S * NS_PER_S, "preempted");
    tag_take(s);
    source_round_ended(s, s->word[0] != '\0' ? ROUND_MS_MIN : s->cfg->notice_poll_ms / 5);
}

const struct source_ops source_gcp = { ask, answered };
