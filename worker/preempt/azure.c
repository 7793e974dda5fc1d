/* Azure: Scheduled Events of the instance metadata service ("Azure Metadata Service: Scheduled Events for Linux VMs").
 *
 *   GET /metadata/instance/compute/name        which of the machines in an event this one is
 *   GET /metadata/scheduledevents              {"Events": [{"EventId", "EventType", "Resources": [names], "EventStatus",
 *                                              "NotBefore"}]}; the header Metadata: true is needed
 *   POST the same, {"StartRequests": [{"EventId"}]}          an acknowledgement: the machine may go before NotBefore
 *
 * - An event names machines of the whole scale set or availability set: only those with our name are ours, and only our own
 *   may be acknowledged (doing it for another's would cut that one off).
 * - The first request may take two minutes, because it turns the service on; a day without one turns it off.
 * - Preempt, Terminate, Reboot and Redeploy end this process (30 s notice or more); Freeze is a pause of seconds.
 * - NotBefore is empty once the event has begun. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "worker/preempt/internal.h"

enum step { NAME, EVENTS };

#define NAME_TIMEOUT_MS 2000
#define EVENTS_FIRST_TIMEOUT_MS 130000
#define EVENTS_TIMEOUT_MS 10000
#define NOTICE_LONGEST_S 3600

static const char name_path[] = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
static const char events_path[] = "/metadata/scheduledevents?api-version=2020-07-01";

static void request_begin(struct source *s, enum step step)
{
    struct request_plan plan = { "GET", s->cfg->notice_azure_url, step == NAME ? name_path : events_path,
                                 { "Metadata: true" }, NULL, 0 };

    s->step = step;
    /* word_until_ns here: when the service last answered about events. */
    plan.timeout_ms = step == EVENTS ? (s->word_until_ns == 0 ? EVENTS_FIRST_TIMEOUT_MS : EVENTS_TIMEOUT_MS)
                    : s->probing     ? PROBE_TIMEOUT_MS : NAME_TIMEOUT_MS;
    source_fetch(s, &plan);
}

static void ask(struct source *s)
{
    request_begin(s, s->word[0] == '\0' ? NAME : EVENTS);
}

static void name_answered(struct source *s, const struct answer *a)
{
    if (a->status != 200 || a->body_n == 0 || a->body_n >= sizeof s->word) {
        source_round_failed(s, "no answer about this machine's name", a);
        return;
    }
    memcpy(s->word, a->body, a->body_n + 1);
    source_found(s);               /* the first answer about events may still take minutes */
    request_begin(s, EVENTS);
}

/* Names compare without case, as Azure's do. */
static bool ours(const struct source *s, const json_t *event)
{
    const json_t *resources = json_object_get(event, "Resources"), *one;
    size_t i;

    json_array_foreach (resources, i, one)
        if (json_is_string(one) && strcasecmp(json_string_value(one), s->word) == 0)
            return true;
    return false;
}

/* The event that leaves the least time; one that has begun leaves what a signal does. */
struct first {
    const char *id, *type, *before;
    enum notice_kind kind;
    int64_t deadline_ns;
};

static void event_look(const struct source *s, const json_t *event, struct first *f)
{
    static const char *const ends_us[] = { "Preempt", "Terminate", "Reboot", "Redeploy" };
    const char *id = json_string_value(json_object_get(event, "EventId"));
    const char *type = json_string_value(json_object_get(event, "EventType"));
    const char *before = json_string_value(json_object_get(event, "NotBefore"));
    int64_t unix_s, deadline_ns = clock_mono_ns() + s->cfg->drain_s * NS_PER_S;
    bool ends = false, dated;

    if (id == NULL || type == NULL || strlen(id) >= sizeof s->event || !ours(s, event))
        return;
    for (size_t i = 0; i < sizeof ends_us / sizeof ends_us[0]; i++)
        ends |= strcmp(type, ends_us[i]) == 0;
    if (!ends)
        return;
    dated = before != NULL && when_parse(before, &unix_s) == ST_OK;
    if (dated)
        deadline_ns = when_deadline_ns(unix_s, NOTICE_LONGEST_S);
    if (f->id != NULL && f->deadline_ns <= deadline_ns)
        return;
    *f = (struct first){ id, type, dated ? before : "now", dated ? NOTICE_DRAIN_SOON : NOTICE_DRAIN, deadline_ns };
}

static void events_read(struct source *s, const json_t *events)
{
    struct first f = { .id = NULL };
    const json_t *event;
    size_t i;

    json_array_foreach (events, i, event)
        event_look(s, event, &f);
    if (f.id == NULL)
        return;
    memcpy(s->event, f.id, strlen(f.id) + 1);
    source_notice(s, f.kind, f.deadline_ns, "%s not before %s, event %s", f.type, f.before, f.id);
}

static void answered(struct source *s, const struct answer *a)
{
    const json_t *events;
    json_t *doc;

    if (s->step == NAME) {
        name_answered(s, a);
        return;
    }
    doc = a->status == 200 ? json_loadb(a->body, a->body_n, 0, NULL) : NULL;
    events = json_object_get(doc, "Events");
    if (!json_is_array(events)) {
        source_round_failed(s, "no answer about scheduled events", a);
    } else {
        s->word_until_ns = clock_mono_ns();
        events_read(s, events);
        source_round_ended(s, s->cfg->notice_poll_ms / 5);
    }
    json_decref(doc);
}

bool azure_acknowledge(struct source *s, struct fetch *f)
{
    json_t *doc;
    char *text;

    if (s->event[0] == '\0' || !s->cfg->notice_azure_ack)
        return false;
    doc = json_pack("{s:[{s:s}]}", "StartRequests", "EventId", s->event);
    text = doc != NULL ? json_dumps(doc, JSON_COMPACT) : NULL;
    json_decref(doc);
    if (text == NULL)
        return false;              /* an id that is no text: there is nothing we could name */
    fetch_begin(f, &(struct request_plan){ "POST", s->cfg->notice_azure_url, events_path, { "Metadata: true" }, text, NAME_TIMEOUT_MS });
    free(text);
    return true;
}

const struct source_ops source_azure = { ask, answered };
