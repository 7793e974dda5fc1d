/* HTTP requests to metadata services, through libcurl's multi interface: one thread, many requests, every one bounded.
 * No proxy (a metadata service behind one is another machine's), no redirects, HTTP only, and a body that is too long is
 * no answer. The addresses are numbers by default, so that no name service can hang; libcurl looks names up in
 * a thread of its own where a setting holds one. */
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "worker/preempt/internal.h"

struct fetches { CURLM *multi; };

struct fetch {
    struct fetches *all;
    CURL *easy;
    struct curl_slist *headers;
    struct buf url, body;
    char *sent;                    /* the request's body */
    bool busy, too_long;
    void (*done)(void *ctx, const struct answer *a);
    void *ctx;
    char failure[CURL_ERROR_SIZE];
};

/* libcurl out of memory is the machine out of memory (base/status.h); anything else here is our own wrong use. */
#define CURL_MUST(call) ASSERT((call) == CURLE_OK)

struct fetches *fetches_open(void)
{
    struct fetches *f = mem_take_zero(1, sizeof *f);

    CURL_MUST(curl_global_init(CURL_GLOBAL_DEFAULT));
    f->multi = curl_multi_init();
    ASSERT(f->multi != NULL);
    return f;
}

void fetches_close(struct fetches *f)
{
    if (f == NULL)
        return;
    curl_multi_cleanup(f->multi);
    curl_global_cleanup();
    free(f);
}

static size_t body_add(char *bytes, size_t size, size_t n, void *fetch)
{
    struct fetch *f = fetch;

    n *= size;
    if (f->body.n + n > FETCH_BODY_MAX) {
        f->too_long = true;
        return 0;                  /* ends the transfer */
    }
    buf_add(&f->body, bytes, n);
    return n;
}

struct fetch *fetch_open(struct fetches *all, void (*done)(void *ctx, const struct answer *a), void *ctx)
{
    struct fetch *f = mem_take_zero(1, sizeof *f);

    f->all = all;
    f->done = done;
    f->ctx = ctx;
    f->easy = curl_easy_init();
    ASSERT(f->easy != NULL);
    return f;
}

static void request_drop(struct fetch *f)
{
    if (f->busy)
        curl_multi_remove_handle(f->all->multi, f->easy);
    f->busy = false;
    curl_easy_reset(f->easy);
    curl_slist_free_all(f->headers);
    f->headers = NULL;
    free(f->sent);
    f->sent = NULL;
}

void fetch_close(struct fetch *f)
{
    if (f == NULL)
        return;
    request_drop(f);
    curl_easy_cleanup(f->easy);
    buf_fini(&f->url);
    buf_fini(&f->body);
    free(f);
}

static void header_add(struct fetch *f, const char *line)
{
    struct curl_slist *more = curl_slist_append(f->headers, line);

    ASSERT(more != NULL);
    f->headers = more;
}

void fetch_begin(struct fetch *f, const struct request_plan *plan)
{
    CURL *e = f->easy;

    request_drop(f);
    buf_reset(&f->url);
    buf_reset(&f->body);
    f->too_long = false;
    f->failure[0] = '\0';
    buf_add_text(&f->url, plan->base);
    buf_add_text(&f->url, plan->path);
    for (size_t i = 0; i < sizeof plan->headers / sizeof plan->headers[0] && plan->headers[i] != NULL; i++)
        header_add(f, plan->headers[i]);
    header_add(f, "Accept:");
    header_add(f, "Expect:");
    CURL_MUST(curl_easy_setopt(e, CURLOPT_URL, buf_text(&f->url)));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, plan->method));
    if (plan->body != NULL || strcmp(plan->method, "GET") != 0) {
        f->sent = mem_copy_text(plan->body != NULL ? plan->body : "");
        CURL_MUST(curl_easy_setopt(e, CURLOPT_POSTFIELDS, f->sent));
        header_add(f, plan->body != NULL ? "Content-Type: application/json" : "Content-Type:");
    }
    CURL_MUST(curl_easy_setopt(e, CURLOPT_HTTPHEADER, f->headers));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, body_add));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_WRITEDATA, f));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_ERRORBUFFER, f->failure));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_PRIVATE, f));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http"));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_PROXY, ""));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)(plan->timeout_ms < 1000 ? plan->timeout_ms : 1000)));
    CURL_MUST(curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)plan->timeout_ms));
    ASSERT(curl_multi_add_handle(f->all->multi, e) == CURLM_OK);
    f->busy = true;
}

bool fetch_header(const struct fetch *f, const char *name, char *out, size_t out_n)
{
    struct curl_header *h;

    if (curl_easy_header(f->easy, name, 0, CURLH_HEADER, -1, &h) != CURLHE_OK || strlen(h->value) >= out_n)
        return false;
    memcpy(out, h->value, strlen(h->value) + 1);
    return true;
}

static void ended(struct fetch *f, CURLcode code)
{
    struct answer a = { 0, NULL, 0, NULL };
    long http = 0;

    curl_multi_remove_handle(f->all->multi, f->easy);
    f->busy = false;
    curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &http);
    if (code == CURLE_OK)
        a.status = (int)http;
    else
        a.failure = f->too_long ? "the answer is too long" : f->failure[0] != '\0' ? f->failure : curl_easy_strerror(code);
    a.body = buf_text(&f->body);
    a.body_n = f->body.n;
    f->done(f->ctx, &a);           /* may begin the next request */
}

void fetches_run(struct fetches *f, const int *fds, int fds_n, int timeout_ms)
{
    struct curl_waitfd waits[4] = { { 0 } };
    CURLMsg *m;
    int left;

    ASSERT(fds_n <= 4);
    for (int i = 0; i < fds_n; i++) {
        waits[i].fd = fds[i];
        waits[i].events = CURL_WAIT_POLLIN;
    }
    curl_multi_poll(f->multi, waits, (unsigned)fds_n, timeout_ms, NULL);
    curl_multi_perform(f->multi, &left);
    while ((m = curl_multi_info_read(f->multi, &left)) != NULL) {
        CURLcode code = m->data.result;
        char *one;

        if (m->msg != CURLMSG_DONE)
            continue;
        /* m is gone once the handle is removed. */
        CURL_MUST(curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &one));
        ended((struct fetch *)(void *)one, code);
    }
}
