/* Runs a fuzz target without libFuzzer: driver RUNS CORPUS replays each file of the folder CORPUS, then RUNS mutations of
 * them from a fixed seed. A file instead of a folder is replayed alone (to look at one crash). An input that kills the
 * process is left in NAME.crash beside the working directory, NAME the program's name. */
#define _DEFAULT_SOURCE            /* scandir */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 20, SEEDS_MAX = 4096 };

static struct buf seeds[SEEDS_MAX];
static size_t seeds_n;
static struct buf current;
static char crash_path[256];

static void crash_save(int signal_number)
{
    FILE *f = fopen(crash_path, "wb");

    /* fopen is not async-signal-safe; this process is dying of a bug of its own and has one thread. */
    if (f != NULL) {
        fwrite(current.data, 1, current.n, f);
        fclose(f);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* The input stands in memory of exactly its size, so that a sanitizer sees one byte too far. */
static void input_run(const struct buf *input)
{
    uint8_t *exact = mem_take(input->n + (input->n == 0));

    if (input->n > 0)
        memcpy(exact, input->data, input->n);
    LLVMFuzzerTestOneInput(exact, input->n);
    free(exact);
}

static bool seed_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    char block[4096];
    size_t n;

    if (f == NULL || seeds_n == SEEDS_MAX)
        return false;
    while ((n = fread(block, 1, sizeof(block), f)) > 0)
        buf_add(&seeds[seeds_n], block, n);
    fclose(f);
    seeds_n++;
    return true;
}

static int name_order(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool seeds_read(const char *path)
{
    struct stat st;
    struct dirent **names;
    int n;

    if (stat(path, &st) != 0)
        return false;
    if (!S_ISDIR(st.st_mode))
        return seed_read(path);
    n = scandir(path, &names, NULL, name_order);      /* the same order on every machine */
    for (int i = 0; i < n; i++) {
        char file[4096];

        snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && !seed_read(file))
            return false;
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return n >= 0;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t random_below(uint64_t *state, size_t n)
{
    return n == 0 ? 0 : (size_t)(random_next(state) % n);
}

/* Puts `from` in the place of [at, at + n) of b. */
static void splice(struct buf *b, size_t at, size_t n, const void *from, size_t from_n)
{
    if (b->n - n + from_n > INPUT_BYTES_MAX)
        return;
    buf_reserve(b, from_n);
    memmove(b->data + at + from_n, b->data + at + n, b->n - at - n);
    memcpy(b->data + at, from, from_n);
    b->n += from_n - n;
}

static void mutate_once(struct buf *b, uint64_t *state)
{
    static const char odd[] = { 0, 1, 0x7f, (char)0x80, (char)0xff, ' ', '\n', '"', '{', '}', '%', '<', '\\', '\'' };
    size_t at = random_below(state, b->n + 1), left = b->n - at;
    const struct buf *other = &seeds[random_below(state, seeds_n)];
    size_t from = random_below(state, other->n), take = random_below(state, other->n - from + 1);
    uint64_t word = random_next(state);

    if (take > 64 && word % 8 != 0)
        take = 64;
    switch (random_next(state) % 7) {
    case 0:
        if (left > 0)
            b->data[at] ^= (char)(1 << (word & 7));
        break;
    case 1:
        splice(b, at, left > 0, &odd[word % sizeof(odd)], 1);
        break;
    case 2:
        splice(b, at, random_below(state, left + 1), "", 0);
        break;
    case 3:
        splice(b, at, 0, &word, 1 + word % 8);
        break;
    case 4:
        if (other->n > 0)
            splice(b, at, 0, other->data + from, take);
        break;
    case 5:
        if (other->n > 0)
            splice(b, at, take < left ? take : left, other->data + from, take);
        break;
    default:
        if (left > 0) {
            size_t run = 1 + random_below(state, left < 32 ? left : 32);
            char copy[32];

            memcpy(copy, b->data + at, run);
            for (size_t i = 0; i < word % 16; i++)
                splice(b, at, 0, copy, run);
        }
    }
}

int main(int argc, char **argv)
{
    static const int deaths[] = { SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL };
    const char *name = strrchr(argv[0], '/');
    uint64_t state = 1;
    long runs;

    if (argc != 3) {
        fprintf(stderr, "usage: %s RUNS CORPUS\n", argv[0]);
        return 1;
    }
    runs = strtol(argv[1], NULL, 10);
    snprintf(crash_path, sizeof(crash_path), "%s.crash", name != NULL ? name + 1 : argv[0]);
    for (size_t i = 0; i < sizeof(deaths) / sizeof(*deaths); i++)
        signal(deaths[i], crash_save);
    if (!seeds_read(argv[2]) || seeds_n == 0) {
        fprintf(stderr, "%s: no corpus at %s\n", argv[0], argv[2]);
        return 1;
    }
    for (size_t i = 0; i < seeds_n; i++) {
        buf_reset(&current);
        buf_add(&current, seeds[i].data, seeds[i].n);
        input_run(&current);
    }
    for (long run = 0; run < runs; run++) {
        const struct buf *seed = &seeds[random_below(&state, seeds_n)];
        size_t times = 1 + random_below(&state, 6);

        buf_reset(&current);
        buf_add(&current, seed->data, seed->n);
        while (times-- > 0)
            mutate_once(&current, &state);
        input_run(&current);
    }
    printf("%zu seeds, %ld mutations\n", seeds_n, runs);
    for (size_t i = 0; i < seeds_n; i++)
        buf_fini(&seeds[i]);
    buf_fini(&current);
    return 0;
}
