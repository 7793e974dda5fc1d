/* tools/nightshift/main.c - the table of subcommands. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/nightshift/cli.h"

const struct command commands[] = {
    { "run", "answer a JSONL file on this machine", cmd_run,
      "usage: nightshift run IN.jsonl -o OUT.jsonl -m MODEL.gguf [-e ERR.jsonl] [options]\n"
      "Answers every line of an OpenAI batch file. Stop it, kill it, run the same command again: it goes on.\n"
      "  -o, --output FILE     one answer a line; also the record of what is done\n"
      "  -e, --errors FILE     lines that failed go here instead of the output\n"
      "  -m, --model FILE      GGUF\n"
      "      --order input     the output is sorted like the input when the job is over\n"
      "      --overwrite       begin anew, whatever is there\n"
      "      --model-name NAME what answers call the model where a line does not\n"
      "      --quiet           no progress, no summary\n"
      "example: nightshift run prompts.jsonl -o answers.jsonl -e errors.jsonl -m model.gguf\n" },
    { "validate", "every line's verdict without a model run", cmd_validate,
      "usage: nightshift validate IN.jsonl -m MODEL.gguf [--show N]\n"
      "Reads, renders and counts every line as run does, and prints the first N (20) that would fail.\n"
      "With --json: one object a failing line, then the summary. Exit code 0: all lines are valid; 1: some are not.\n"
      "example: nightshift validate prompts.jsonl -m models/smollm2-135m-instruct-q4_1.gguf\n" },
    { "plan", "tokens, what shared prefixes save, how long it takes", cmd_plan,
      "usage: nightshift plan IN.jsonl -m MODEL.gguf [--sample N]\n"
      "Reads every line, and answers N of them (48) to learn how long answers are and what rows cost here.\n"
      "example: nightshift plan prompts.jsonl -m models/smollm2-135m-instruct-q4_1.gguf\n" },
    { "status", "how far a job is, what a worker does", cmd_status,
      "usage: nightshift status OUT.jsonl | kafka://HOST:PORT/NAME [--job ID] [--group G] | http://HOST:PORT\n"
      "A file job: reads the job's files; it may be running. A queue: its topics and the group's lag; with --job that job's lines, which\n"
      "reads the topics through. A worker: its own page.\n"
      "example: nightshift status kafka://localhost:9092/demo --job fe780df055e696d7 --json\n" },
    { "drain", "a worker hands over and ends", cmd_drain,
      "usage: nightshift drain http://HOST:PORT [--seconds N] [--wait]\n"
      "The worker stops taking work, saves its progress, hands over to the others and ends within N seconds (its setting drain_s).\n"
      "      --wait            until it has ended\n"
      "example: nightshift drain http://127.0.0.1:9091 --seconds 60 --wait\n" },
    { "retry", "dead letters back to the prompts", cmd_retry,
      "usage: nightshift retry --queue kafka://HOST:PORT/NAME [--job ID] [--class CLASS ...] [--again] [--dry-run]\n"
      "Puts each dead letter back at most once; what a retry made dead again only with --again. `collect` then takes the new answer.\n"
      "  -q, --queue URL       kafka://HOST:PORT[,HOST:PORT...]/NAME\n"
      "      --job ID          of one job alone\n"
      "      --class CLASS     of this class alone (ns-error-class); may be given several times\n"
      "      --again           those, too, that were put back before and died again\n"
      "      --dry-run         only counts\n"
      "example: nightshift retry --queue kafka://localhost:9092/demo --class quarantined\n" },
    { "submit", "a JSONL file's lines into a topic", cmd_submit,
      "usage: nightshift submit IN.jsonl --queue kafka://HOST:PORT/NAME [options]\n"
      "Writes every line to the topic NAME.prompts once. Stop it, kill it, run the same command again: it reads back what is there and\n"
      "writes the rest. Topics that are missing are made. Invalid lines are shown and nothing is sent.\n"
      "  -q, --queue URL       kafka://HOST:PORT[,HOST:PORT...]/NAME\n"
      "  -m, --model FILE      lines are judged as `run` would judge them; without: their shape alone\n"
      "      --job ID          what the job is called (16 digits made of the file's content)\n"
      "      --key FIELD       record key: custom_id, another field (body.user), or none\n"
      "      --rate N          records a second, at most\n"
      "      --no-validate     invalid lines are sent, too, and become dead letters\n"
      "      --partitions N    of topics that are made (8); --replicas N; --retention-h HOURS (720)\n"
      "      --quiet           no progress, no summary\n"
      "example: nightshift submit prompts.jsonl --queue kafka://localhost:9092/demo\n" },
    { "collect", "a job's answers from its topics into a file", cmd_collect,
      "usage: nightshift collect --queue kafka://HOST:PORT/NAME --job ID -o OUT.jsonl [-e ERR.jsonl] [options]\n"
      "Waits until every line of the job has its answer and writes them as they come, as `run` would. Stop it, kill it, run the same\n"
      "command again: it goes on. Exit code 0: every line has its verdict; 75: some have none yet.\n"
      "  -q, --queue URL       kafka://HOST:PORT[,HOST:PORT...]/NAME\n"
      "      --job ID          as `submit` called it\n"
      "  -o, --output FILE     one answer a line\n"
      "  -e, --errors FILE     dead letters go here instead of the output\n"
      "      --order input     the output is sorted like the input when the job is over\n"
      "      --no-wait         what is there now\n"
      "      --timeout S       give up after that long\n"
      "      --overwrite       begin anew, whatever is there\n"
      "      --quiet           no progress, no summary\n"
      "example: nightshift collect --queue kafka://localhost:9092/demo --job fe780df055e696d7 -o answers.jsonl -e errors.jsonl\n" },
    { "audit", "proves that every input of a topic has exactly one result", cmd_audit,
      "usage: nightshift audit --queue kafka://HOST:PORT/NAME [--job ID] [--group G] [--open-ok]\n"
      "Reads the topics and the group's commits, nothing else, and lists what is missing, doubled or orphaned, and marks that say more\n"
      "than is there. Exit code 0: clean; 6: not.\n"
      "  -q, --queue URL       kafka://HOST:PORT[,HOST:PORT...]/NAME\n"
      "      --job ID          of one job's records alone\n"
      "      --group G         whose commits (setting kafka_group)\n"
      "      --open-ok         workers are at it: what is not done yet is no fault\n"
      "      --quiet           no progress\n"
      "With --json: one object a fault, then the summary.\n"
      "example: nightshift audit --queue kafka://localhost:9092/demo\n" },
    { "tokenize", "a text or a line's prompt as token ids", cmd_tokenize,
      "usage: nightshift tokenize -m MODEL.gguf TEXT | -f FILE | --chat IN.jsonl [--line N]\n"
      "A text is plain, whatever it spells; -f - reads stdin. --chat renders the prompt of line N (1) as run does.\n"
      "example: nightshift tokenize -m models/smollm2-135m-instruct-q4_1.gguf 'Hello <|im_end|>'\n" },
    { "model", "what the loader and the tokenizer see in a model file", cmd_model,
      "usage: nightshift model MODEL.gguf\n"
      "example: nightshift model models/smollm2-135m-instruct-q4_1.gguf --set kv_memory_mb=8192\n" },
    { "bench", "speed beside ceilings measured in the same run", cmd_bench,
      "usage: nightshift bench kernels | attention | gpu [--shape NAME] [--csv] | step -m MODEL.gguf | job IN.jsonl -m MODEL.gguf\n"
      "                        | lines IN.jsonl -m MODEL.gguf | store URL [--seconds S] [--context N] [--cpu-time]\n"
      "  kernels     products and norms of SmolLM2-135M's shape on random weights, by row count\n"
      "  attention   rope, attention and sampling of that shape\n"
      "  gpu         products, attention, sampling, whole steps of a known model's shape (llama-3-8b), for --set device=cuda\n"
      "  step        whole steps of the model: prefills and decodes; --context: cached positions of a decoding sequence\n"
      "  job         a whole job, loading included, its results thrown away\n"
      "  lines       what a line costs besides the model: reading, rendering, encoding, answer text, result line\n"
      "  store       a progress store (redis://HOST, sqlite:PATH): 5,000 sequences saved, looked up, begun, forgotten\n"
      "  --cpu-time  with --set threads=1: counts the thread's own time, for a machine that others use, too\n"
      "example: nightshift bench step -m models/smollm2-135m-instruct-q4_1.gguf --context 700\n" },
    { "config", "every setting, its default and range", cmd_config,
      "usage: nightshift config [--json | --markdown]\n"
      "Prints every setting with its value, default, range and meaning.\n"
      "example: nightshift config --set threads=8 > nightshift.ini\n" },
    { NULL, NULL, NULL, NULL }
};

static void usage_print(FILE *out)
{
    fputs("usage: nightshift COMMAND ...\n\n", out);
    for (const struct command *c = commands; c->name != NULL; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fputs("\n`nightshift COMMAND --help` tells more, with an example.\n", out);
}

/* Where one of the three is closed, the first file that is opened would take its place, and messages would be written into
 * results. */
static void streams_ensure(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

/* What was printed and did not get there (a full disk) is told: a program would take a part for the whole. */
static int output_end(const char *command, int exit_code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    fprintf(stderr, "nightshift %s: cannot write all of the output: %s\n", command, strerror(errno));
    return exit_code == EXIT_CODE_DONE ? EXIT_CODE_CANNOT_START : exit_code;
}

int main(int argc, char **argv)
{
    streams_ensure();
    if (argc < 2) {
        usage_print(stderr);
        return EXIT_CODE_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        usage_print(stdout);
        return EXIT_CODE_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("nightshift " NIGHTSHIFT_VERSION);
        return EXIT_CODE_DONE;
    }
    for (const struct command *c = commands; c->name != NULL; c++)
        if (strcmp(argv[1], c->name) == 0)
            return output_end(c->name, c->run(argc - 1, argv + 1));
    fprintf(stderr, "nightshift: no command is called \"%s\"\n\n", argv[1]);
    usage_print(stderr);
    return EXIT_CODE_USAGE;
}
