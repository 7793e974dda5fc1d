/* tools/nightshift/status_worker.c - what a worker says of itself (GET /status). */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tools/nightshift/http.h"
#include "tools/nightshift/status.h"

static const char *text_of(const json_t *root, const char *name)
{
    const json_t *v = json_object_get(root, name);

    return json_is_string(v) ? json_string_value(v) : "";
}

/* A count of the worker's; those that stand apart by cause or kind are summed. */
static double count_of(const json_t *counts, const char *name)
{
    json_t *v = json_object_get(counts, name), *part;
    const char *key;
    double sum = 0;

    if (!json_is_object(v))
        return json_number_value(v);
    json_object_foreach(v, key, part)
        sum += json_number_value(part);
    return sum;
}

static void page_print(const char *url, const json_t *root)
{
    const json_t *counts = json_object_get(root, "counts"), *results = json_object_get(counts, "nightshift_results_total");
    char why[160] = "";

    if (!json_is_true(json_object_get(root, "ready")))
        snprintf(why, sizeof why, ", not ready: %s", text_of(root, "ready_why"));
    printf("%s: %s%s\n", url, text_of(root, "state"), why);
    printf("queue    %s\nmodel    %s (%s) on %s\n", text_of(root, "queue"), text_of(root, "model"), text_of(root, "quant"),
           text_of(root, "device"));
    printf("results  %.0f, %.0f failures; %.0f running, %.0f waiting\n", json_number_value(json_object_get(results, "output")),
           json_number_value(json_object_get(results, "failure")), count_of(counts, "nightshift_in_flight"),
           count_of(counts, "nightshift_waiting_requests"));
    printf("tokens   %.0f in (%.0f from the cache), %.0f out, %.0f resumed\n", count_of(counts, "nightshift_prompt_tokens_total"),
           count_of(counts, "nightshift_cached_tokens_total"), count_of(counts, "nightshift_output_tokens_total"),
           count_of(counts, "nightshift_resumed_tokens_total"));
}

status status_worker(struct cli *cli, const char *url, struct error *err)
{
    struct buf body = BUF_EMPTY;
    json_t *root = NULL;
    int code;
    status st;

    TRY(http_call("GET", url, "/status", &code, &body, err));
    root = json_loadb(body.data != NULL ? body.data : "", body.n, 0, NULL);
    if (code != 200 || !json_is_object(root))
        TRY(error_set(err, ST_REJECT, "%s answers %d and no status: not a worker of nightshift's?", url, code));
    if (cli->json)
        printf("%s%s", buf_text(&body), body.data[body.n - 1] == '\n' ? "" : "\n");
    else
        page_print(url, root);
out:
    json_decref(root);
    buf_fini(&body);
    return st;
}
