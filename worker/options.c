/* The command line of nightshift-worker. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "worker/worker.h"

static const char help[] =
    "usage: nightshift-worker --queue URL -m MODEL.gguf [options]\n"
    "A worker of the pool: takes prompts from a queue, answers each exactly once, saves its progress, and hands over when the\n"
    "machine goes. Runs in the foreground and logs to stderr; settings come from a file, --set, or the flags below, the last one wins.\n"
    "      --queue URL       kafka://HOST:PORT[,HOST:PORT...]/NAME (topics NAME.prompts, NAME.results, NAME.dead), or\n"
    "                        file:IN.jsonl with -o: one file, as `nightshift run` does it\n"
    "  -m, --model FILE      GGUF\n"
    "      --model-name NAME what answers call the model where a line does not\n"
    "      --config FILE     name = value lines; `nightshift config` prints all of them with their defaults\n"
    "      --set NAME=VALUE  any setting\n"
    "  -o, --output FILE     of a file queue\n"
    "  -e, --errors FILE     of a file queue: lines that failed go here\n"
    "      --version\n"
    "Stop it with SIGTERM: it hands over within drain_s (15) seconds; again: within 5 s. Exit codes: 0 handed over, or every line has its\n"
    "verdict; 1 usage or settings; 2 cannot start (the message says what to do); 3 fenced by another owner; 4 watchdog; 5 the\n"
    "device failed; 75 stopped early with all progress saved.\n"
    "example: nightshift-worker --queue kafka://localhost:9092/night -m model.gguf --set checkpoint_url=redis://localhost:6379\n";

enum { HELP = 1000, SET, CONFIG, QUEUE, NAME, VERSION };

static const struct option known[] = {
    { "help", no_argument, NULL, HELP }, { "set", required_argument, NULL, SET }, { "config", required_argument, NULL, CONFIG },
    { "queue", required_argument, NULL, QUEUE }, { "model", required_argument, NULL, 'm' },
    { "model-name", required_argument, NULL, NAME }, { "output", required_argument, NULL, 'o' },
    { "errors", required_argument, NULL, 'e' }, { "version", no_argument, NULL, VERSION }, { 0 } };

static bool refuse(int *exit_code, const char *text)
{
    fprintf(stderr, "nightshift-worker: %s\n", text);
    *exit_code = EXIT_CODE_USAGE;
    return false;
}

static bool option_take(struct worker *w, int option, struct error *err)
{
    switch (option) {
    case SET: return config_set_pair(&w->cfg, optarg, err) == ST_OK;
    case CONFIG: return config_file(&w->cfg, optarg, err) == ST_OK;
    case QUEUE: return config_set(&w->cfg, "queue_url", optarg, err) == ST_OK;
    case NAME: return config_set(&w->cfg, "model_name", optarg, err) == ST_OK;
    case 'm': return config_set(&w->cfg, "model", optarg, err) == ST_OK;
    case 'o': w->job.queue.output = optarg; return true;
    case 'e': w->job.queue.errors = optarg; return true;
    default:           /* getopt_long has said what is wrong */
        error_set(err, ST_REJECT, "see `nightshift-worker --help`");
        return false;
    }
}

/* Log level and failpoint are taken into use as soon as they are known. */
static bool settings_use(const struct config *cfg, struct error *err)
{
    const char *spec = config_env("NIGHTSHIFT_FAILPOINT");
    enum log_level level;

    if (log_level_parse(cfg->log_level, &level) != ST_OK) {
        error_set(err, ST_REJECT, "setting log_level=%s: error, warn, info or debug is needed", cfg->log_level);
        return false;
    }
    log_level_set(level);
    if (failpoint_arm(spec) != ST_OK) {
        error_set(err, ST_REJECT, "NIGHTSHIFT_FAILPOINT=%s: name:n[:action] is needed, n from 1", spec);
        return false;
    }
    return true;
}

/* What may be shown of the URL: not a user and a password before an "@". */
static void url_show(const char *url, char *out, size_t out_n)
{
    const char *begin = strstr(url, "://"), *at = strchr(url, '@');

    if (begin != NULL && at != NULL && at > begin)
        snprintf(out, out_n, "%.*s%s", (int)(begin + 3 - url), url, at + 1);
    else
        snprintf(out, out_n, "%s", url);
}

static bool job_make(struct worker *w, struct error *err)
{
    const char *url = w->cfg.queue_url;
    bool file = strncmp(url, "file:", 5) == 0;

    if (url[0] == '\0' || w->cfg.model[0] == '\0') {
        error_set(err, ST_REJECT, "%s is needed; see `nightshift-worker --help`", url[0] == '\0' ? "--queue URL" : "-m MODEL");
        return false;
    }
    if (file && (url[5] == '\0' || w->job.queue.output == NULL)) {
        error_set(err, ST_REJECT, "a file queue is file:INPUT, and -o OUTPUT says where its answers go");
        return false;
    }
    if (!file && (w->job.queue.output != NULL || w->job.queue.errors != NULL)) {
        error_set(err, ST_REJECT, "-o and -e are for file:INPUT; the results of %s go to its own topics", url);
        return false;
    }
    w->job.queue.url = file ? "file:" : url;
    w->job.queue.input = file ? url + 5 : NULL;
    w->job.model_path = w->cfg.model;
    w->job.name = w->cfg.model_name[0] != '\0' ? w->cfg.model_name : NULL;
    url_show(url, w->queue_shown, sizeof w->queue_shown);
    return true;
}

bool options_read(struct worker *w, int argc, char **argv, int *exit_code)
{
    struct error err;
    int option;

    config_defaults(&w->cfg);
    if (config_set(&w->cfg, "log_level", "info", &err) != ST_OK)       /* a daemon's life is worth a few lines */
        return refuse(exit_code, err.text);
    while ((option = getopt_long(argc, argv, "m:o:e:", known, NULL)) != -1) {
        if (option == HELP || option == VERSION) {
            fputs(option == HELP ? help : "nightshift-worker " NIGHTSHIFT_VERSION "\n", stdout);
            *exit_code = EXIT_CODE_DONE;
            return false;
        }
        if (!option_take(w, option, &err))
            return refuse(exit_code, err.text);
    }
    if (optind < argc) {
        error_set(&err, ST_REJECT, "\"%s\" is no option; see `nightshift-worker --help`", argv[optind]);
        return refuse(exit_code, err.text);
    }
    if (!settings_use(&w->cfg, &err) || !job_make(w, &err))
        return refuse(exit_code, err.text);
    return true;
}
