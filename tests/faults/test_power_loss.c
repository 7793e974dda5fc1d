/* Power loss, simulated: the disk calls of a run are written down; from any point of that history the states are built that
 * a file system may leave behind when nothing is promised but what fsync and fdatasync promise; the job goes on from there,
 * is cut off again, and so on; at the end every line has its one right answer, and on the way nothing that a commit had
 * called durable was gone.
 *
 * The model of the disk (after Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014):
 *   - what was written to a file since its last sync survives block by block, in any selection; the file's length is any
 *     that it had since; a block that has length and no data reads as zeros;
 *   - names (made, renamed, removed) survive in their order up to any point since the folder's last sync.
 * Blocks are 64 bytes here, so that every line is torn in many places. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "tests/support/queue_test.h"

#define BLOCK_BYTES 64
#define FILES_MAX 64
#define NAME_BYTES 48

/* ---- what the run did ---- */

enum op_kind { OP_MAKE, OP_WRITE, OP_CUT, OP_SYNC, OP_RENAME, OP_REMOVE, OP_FOLDER_SYNC, OP_DURABLE };

struct op {
    enum op_kind kind;
    int file;                        /* number of the file, in the order of their making */
    char name[NAME_BYTES], to[NAME_BYTES];
    int64_t at, n;                   /* OP_DURABLE: n results more were called durable */
    char *bytes;
};

static struct op *history;
static size_t history_n, history_room;
static bool recording;
static struct { ino_t ino; int file; } known[FILES_MAX];
static int known_n, files_n;

static struct op *op_add(enum op_kind kind)
{
    if (history_n == history_room) {
        history_room = history_room ? history_room * 2 : 256;
        history = mem_grow(history, history_room * sizeof history[0]);
    }
    memset(&history[history_n], 0, sizeof history[0]);
    history[history_n].kind = kind;
    return &history[history_n++];
}

/* The part of a path inside the folder; NULL: it is elsewhere. */
static const char *name_of(const char *path)
{
    size_t n = strlen(dir.path);

    return strncmp(path, dir.path, n) == 0 && path[n] == '/' && strchr(path + n + 1, '/') == NULL ? path + n + 1 : NULL;
}

static int file_of(int fd)
{
    struct stat s;

    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode))
        return -1;
    for (int i = known_n - 1; i >= 0; i--)
        if (known[i].ino == s.st_ino)
            return known[i].file;
    return -1;
}

static int file_know(int fd)
{
    struct stat s;

    assert_int_equal(fstat(fd, &s), 0);
    assert_true(known_n < FILES_MAX);
    known[known_n].ino = s.st_ino;
    known[known_n++].file = files_n;
    return files_n++;
}

/* The library's calls come here. */
int open(const char *path, int flags, ...)
{
    const char *name = recording ? name_of(path) : NULL;
    struct stat s;
    bool there = stat(path, &s) == 0;
    va_list ap;
    int mode = 0, fd;

    if (flags & O_CREAT) {
        va_start(ap, flags);
        mode = va_arg(ap, int);
        va_end(ap);
    }
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && name != NULL && (flags & O_CREAT) && !there) {
        struct op *op = op_add(OP_MAKE);

        op->file = file_know(fd);
        snprintf(op->name, sizeof op->name, "%s", name);
    } else if (fd >= 0 && name != NULL && (flags & O_TRUNC) && file_of(fd) >= 0) {
        op_add(OP_CUT)->file = file_of(fd);
    }
    return fd;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    ssize_t wrote = syscall(SYS_pwrite64, fd, bytes, n, at);
    int file = recording && wrote > 0 ? file_of(fd) : -1;

    if (file >= 0) {
        struct op *op = op_add(OP_WRITE);

        op->file = file;
        op->at = at;
        op->n = wrote;
        op->bytes = mem_take((size_t)wrote);
        memcpy(op->bytes, bytes, (size_t)wrote);
    }
    return wrote;
}

int ftruncate(int fd, off_t n)
{
    int done = (int)syscall(SYS_ftruncate, fd, n);
    int file = recording && done == 0 ? file_of(fd) : -1;

    if (file >= 0) {
        struct op *op = op_add(OP_CUT);

        op->file = file;
        op->n = n;
    }
    return done;
}

static int synced(int fd)
{
    struct stat s;
    int file = recording ? file_of(fd) : -1;

    if (file >= 0)
        op_add(OP_SYNC)->file = file;
    else if (recording && fstat(fd, &s) == 0 && S_ISDIR(s.st_mode))
        op_add(OP_FOLDER_SYNC);
    return 0;
}

int fsync(int fd)
{
    return synced(fd);
}

int fdatasync(int fd)
{
    return synced(fd);
}

int rename(const char *from, const char *to)
{
    int done = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);

    if (done == 0 && recording && name_of(from) != NULL) {
        struct op *op = op_add(OP_RENAME);

        snprintf(op->name, sizeof op->name, "%s", name_of(from));
        snprintf(op->to, sizeof op->to, "%s", name_of(to));
    }
    return done;
}

int unlink(const char *path)
{
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);

    if (done == 0 && recording && name_of(path) != NULL)
        snprintf(op_add(OP_REMOVE)->name, NAME_BYTES, "%s", name_of(path));
    return done;
}

static void history_clear(void)
{
    for (size_t i = 0; i < history_n; i++)
        free(history[i].bytes);
    history_n = 0;
    known_n = files_n = 0;
}

/* ---- what the disk may make of it ---- */

struct disk_file {
    struct buf kept;                 /* as of its last sync */
    struct buf now;
    int64_t longest, shortest;       /* lengths since then */
};

struct disk {
    struct disk_file file[FILES_MAX];
    char name[FILES_MAX][NAME_BYTES];      /* of file i, as of the folder's last sync and the names that survived since */
    size_t names_from;               /* first op whose name change is not synced */
};

static struct disk disk;
static uint64_t random_word;

static uint64_t random_next(void)      /* splitmix64 */
{
    uint64_t z = (random_word += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int64_t below(int64_t n)
{
    return n > 0 ? (int64_t)(random_next() % (uint64_t)n) : 0;
}

static void length_set(struct disk_file *f, int64_t n)
{
    if ((size_t)n > f->now.n) {
        buf_reserve(&f->now, (size_t)n - f->now.n);
        memset(f->now.data + f->now.n, 0, (size_t)n - f->now.n);
    }
    f->now.n = (size_t)n;
    f->longest = n > f->longest ? n : f->longest;
    f->shortest = n < f->shortest ? n : f->shortest;
}

static void file_settle(struct disk_file *f)
{
    buf_reset(&f->kept);
    buf_add(&f->kept, f->now.data, f->now.n);
    f->longest = f->shortest = (int64_t)f->now.n;
}

static void name_apply(const struct op *op)
{
    switch (op->kind) {
    case OP_MAKE:
        strcpy(disk.name[op->file], op->name);
        break;
    case OP_RENAME:
        for (int i = 0; i < files_n; i++)
            if (strcmp(disk.name[i], op->to) == 0)
                disk.name[i][0] = '\0';
        for (int i = 0; i < files_n; i++)
            if (strcmp(disk.name[i], op->name) == 0)
                strcpy(disk.name[i], op->to);
        break;
    case OP_REMOVE:
        for (int i = 0; i < files_n; i++)
            if (strcmp(disk.name[i], op->name) == 0)
                disk.name[i][0] = '\0';
        break;
    default:
        break;
    }
}

static void names_settle(size_t upto)
{
    for (; disk.names_from < upto; disk.names_from++)
        name_apply(&history[disk.names_from]);
}

/* Runs the history up to op k; returns how many results had been called durable by then. */
static int64_t disk_replay(size_t k)
{
    int64_t durable_n = 0;

    for (size_t i = 0; i < k; i++) {
        const struct op *op = &history[i];
        struct disk_file *f = &disk.file[op->file];

        switch (op->kind) {
        case OP_WRITE:
            if (op->at + op->n > (int64_t)f->now.n)
                length_set(f, op->at + op->n);
            memcpy(f->now.data + op->at, op->bytes, (size_t)op->n);
            break;
        case OP_CUT:
            length_set(f, op->n);
            break;
        case OP_SYNC:
            file_settle(f);
            break;
        case OP_FOLDER_SYNC:
            names_settle(i);
            break;
        case OP_DURABLE:
            durable_n += op->n;
            break;
        default:
            break;
        }
    }
    return durable_n;
}

/* One of the contents that the file may have. mood 0: only what was synced; 1: all of it; else any selection. */
static void content_choose(const struct disk_file *f, int mood, struct buf *out)
{
    int64_t n = mood == 0 ? (int64_t)f->kept.n : mood == 1 ? (int64_t)f->now.n
                                                           : f->shortest + below(f->longest - f->shortest + 1);

    if (mood == 2)
        n = f->longest;                  /* the length came through, the data perhaps not */
    buf_reset(out);
    memset(buf_reserve(out, (size_t)n + BLOCK_BYTES), 0, (size_t)n + BLOCK_BYTES);
    out->n = (size_t)n;
    for (int64_t at = 0; at < n; at += BLOCK_BYTES) {
        bool new = mood == 1 || (mood > 1 && below(mood == 3 ? 8 : 2) != 0);
        const struct buf *from = new ? &f->now : &f->kept;
        int64_t m = (int64_t)from->n - at < BLOCK_BYTES ? (int64_t)from->n - at : BLOCK_BYTES;

        m = n - at < m ? n - at : m;
        if (m > 0)
            memcpy(out->data + at, from->data + at, (size_t)m);
    }
}

static void folder_empty(void)
{
    DIR *d = opendir(dir.path);
    struct dirent *e;
    char path[384];

    while ((e = readdir(d)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", dir.path, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    closedir(d);
}

/* Cuts the power at op k and puts what is left into the folder. */
static int64_t power_cut(size_t k)
{
    struct buf content = BUF_EMPTY;
    char path[128];
    int64_t durable_n;
    int mood = (int)below(6);
    size_t names_upto;

    durable_n = disk_replay(k);
    names_upto = disk.names_from + (mood == 0 ? 0 : (size_t)below((int64_t)(k - disk.names_from) + 1));
    names_settle(mood == 1 ? k : names_upto);
    folder_empty();
    for (int i = 0; i < files_n; i++)
        if (disk.name[i][0] != '\0') {
            content_choose(&disk.file[i], mood, &content);
            snprintf(path, sizeof path, "%s/%s", dir.path, disk.name[i]);
            text_write(path, content.data, content.n);
        }
    for (int i = 0; i < FILES_MAX; i++) {
        buf_fini(&disk.file[i].kept);
        buf_fini(&disk.file[i].now);
    }
    memset(&disk, 0, sizeof disk);
    buf_fini(&content);
    return durable_n;
}

/* Begins a history on what is in the folder now, all of it synced. */
static void history_begin(void)
{
    DIR *d = opendir(dir.path);
    struct dirent *e;
    char path[384];

    history_clear();
    while ((e = readdir(d)) != NULL) {
        struct disk_file *f = &disk.file[files_n];
        int fd;

        snprintf(path, sizeof path, "%s/%s", dir.path, e->d_name);
        if (e->d_name[0] == '.')
            continue;
        assert_true(text_read(path, &f->now));
        file_settle(f);
        snprintf(disk.name[files_n], NAME_BYTES, "%.40s", e->d_name);
        fd = open(path, O_RDONLY);
        file_know(fd);
        close(fd);
    }
    closedir(d);
    recording = true;
}

/* ---- the jobs ---- */

static void durable_note(int64_t n)
{
    if (recording)
        op_add(OP_DURABLE)->n = n;
}

/* One job, cut off `cuts` times at any point of its run, resume after resume, then let through. */
static void job_with_cuts(uint64_t seed, int cuts)
{
    struct job_options o = { .errors_file = seed % 2, .order_input = seed % 3 == 0, .window = 40,
                             .on_durable = durable_note };
    int64_t durable_n = 0;
    struct job_outcome out;

    random_word = seed;
    folder_empty();
    input_lines(20 + (int)(seed % 30), seed);
    if (seed % 7 == 0) {                 /* begins over an older job */
        out = RUN(.errors_file = o.errors_file, .shuffle = seed);
        assert_done(&out);
        input_lines(25, seed + 1);
        o.overwrite = true;
    }
    if (seed % 11 == 0) {                /* the results are taken away, what they belonged to is still there */
        out = RUN(.errors_file = o.errors_file, .overwrite = true, .stop_after = 2, .shuffle = seed);
        assert_int_equal(out.st, ST_OK);
        unlink(dir.output);
        unlink(dir.errors);
        o.overwrite = false;
    }
    for (int i = 0; i <= cuts; i++) {
        o.shuffle = seed * 100 + (uint64_t)i + 1;
        o.group_max = 1 + (int)below(6);
        history_begin();
        out = run(&o);
        recording = false;
        if (out.st != ST_OK)
            fail_msg("seed %" PRIu64 " run %d: %s: %s", seed, i, out.call, out.err.text);
        if (!o.overwrite && out.state.done_n < durable_n)
            fail_msg("seed %" PRIu64 " run %d: %" PRId64 " results were durable, %" PRId64 " are left", seed, i, durable_n,
                     out.state.done_n);
        if (o.overwrite)
            out.state.done_n = 0;
        if (i < cuts) {
            int64_t more = power_cut((size_t)below((int64_t)history_n + 1));

            durable_n = text_exists(dir.sidecar) && !(o.overwrite && more == 0) ? out.state.done_n + more : 0;
            o.overwrite = o.overwrite && more == 0;      /* a person would ask for it again only if it did nothing */
        }
    }
    for (int i = 0; i < FILES_MAX; i++) {
        buf_fini(&disk.file[i].kept);
        buf_fini(&disk.file[i].now);
    }
    memset(&disk, 0, sizeof disk);
    assert_done(&out);
}

static void nothing_is_lost_or_doubled(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++)
        job_with_cuts(seed, 1 + (int)(seed % 5));
    history_clear();
    free(history);
    history = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_lost_or_doubled, dir_setup, dir_teardown),
    };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
