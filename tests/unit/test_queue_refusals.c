/* What the file queue refuses, with which words, and that a refusal touches nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "queue/file.h"
#include "tests/support/queue_test.h"

/* The library's calls come here: a test can be a file system without locks. */
static int flock_errno;

int flock(int fd, int operation)
{
    if (flock_errno != 0) {
        errno = flock_errno;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static void answered_job(void)
{
    struct job_outcome out;

    input_text("one\ntwo bad\nthree\n");
    out = RUN(.fingerprint = "{\"model\": {\"hash\": \"aa\", \"file\": \"m\"}, \"seed\": [1, 2], \"t\": 0.5}");
    assert_done(&out);
}

#define AS_BEFORE .fingerprint = "{\"model\":{\"file\":\"m\",\"hash\":\"aa\"},\"t\":0.5,\"seed\":[1, 2]}"

static void changed_settings_are_named(void **state)
{
    struct job_outcome out;

    (void)state;
    answered_job();
    out = RUN(AS_BEFORE);                                           /* other order and spaces: the same */
    assert_done(&out);
    out = RUN(.fingerprint = "{\"model\":{\"hash\":\"bb\",\"file\":\"m\"},\"seed\":[1, 2],\"t\":0.5}");
    assert_refused(&out, "open", ST_REJECT, "model.hash was \"aa\", now \"bb\"");
    assert_refused(&out, "open", ST_REJECT, "--overwrite");
    assert_null(strstr(out.err.text, "seed"));
    out = RUN(.fingerprint = "{\"model\":{\"hash\":\"aa\",\"file\":\"m\"},\"seed\":[1, 2]}");
    assert_refused(&out, "open", ST_REJECT, "t was 0.5, now not set");
    out = RUN(.fingerprint = "{\"model\":{\"hash\":\"aa\",\"file\":\"m\"},\"seed\":[1, 3],\"t\":0.5,\"u\":{}}");
    assert_refused(&out, "open", ST_REJECT, "seed was [1, 2], now [1, 3]; u was not set, now {}");
    out = RUN(.fingerprint = "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6}");
    assert_refused(&out, "open", ST_REJECT, "and 5 more");
    out = RUN(.fingerprint = "{\"model\":");
    assert_refused(&out, "open", ST_REJECT, "not a JSON object");
    assert_null(job_check(&dir, false));
    out = RUN(.fingerprint = "{\"t\":1}", .overwrite = true);
    assert_done(&out);
    assert_int_equal(out.polled_n, 3);
}

static void changed_input_is_told(void **state)
{
    struct job_outcome out;

    (void)state;
    answered_job();
    input_text("one\ntwo bad\nthrew\n");
    out = RUN(AS_BEFORE);
    assert_refused(&out, "open", ST_REJECT, "same size, other content");
    input_text("one\ntwo\nthree\nfour and more\n");
    out = RUN(AS_BEFORE);
    assert_refused(&out, "open", ST_REJECT, "its beginning has changed");
    input_text("one\n");
    out = RUN(AS_BEFORE);
    assert_refused(&out, "open", ST_REJECT, "shorter than when");
    assert_int_equal(job_lines(&dir), 3);
    input_text("one\ntwo bad\nthree\n");
    out = RUN(AS_BEFORE);
    assert_done(&out);
    assert_true(out.state.finished);
}

static void continued_torn_line_is_refused_once_answered(void **state)
{
    struct job_outcome out;

    (void)state;
    input_text("one\ntwo");
    out = RUN(PLAIN);
    assert_done(&out);
    text_append(dir.input, " and a half\n", 12);
    out = RUN(PLAIN);
    assert_refused(&out, "open", ST_REJECT, "line 2 of ");
    assert_refused(&out, "open", ST_REJECT, "had no newline when it was answered");
    assert_int_equal(job_lines(&dir), 2);
}

static void continued_torn_line_is_fine_while_open(void **state)
{
    struct job_outcome out;

    (void)state;
    input_text("one\ntwo");
    out = RUN(.stop_after = 1, .group_max = 1);
    assert_int_equal(out.committed_n, 1);
    text_append(dir.input, " and a half\nthree", 17);
    out = RUN(PLAIN);
    assert_done(&out);
    assert_int_equal(out.polled_n, 2);
}

static void errors_file_must_stay(void **state)
{
    struct job_outcome out;
    char other[160];

    (void)state;
    input_text("one\ntwo bad\n");
    out = RUN(.errors_file = true);
    assert_done(&out);
    out = RUN(PLAIN);
    assert_refused(&out, "open", ST_REJECT, "begun with -e err.jsonl, now it is none");
    snprintf(other, sizeof other, "%s/other.jsonl", dir.path);
    rename(dir.errors, other);
    strcpy(dir.errors, other);
    out = RUN(.errors_file = true);
    assert_refused(&out, "open", ST_REJECT, "begun with -e err.jsonl, now it is -e other.jsonl");
}

/* A job can be moved as a whole: its paths are not part of it. */
static void moved_folder_goes_on(void **state)
{
    struct job_outcome out;
    char to[80];

    (void)state;
    input_lines(100, 4);
    out = RUN(.errors_file = true, .stop_after = 5);
    snprintf(to, sizeof to, "%s-moved", dir.path);
    assert_int_equal(rename(dir.path, to), 0);
    memcpy(dir.path, to, strlen(to) + 1);
    snprintf(dir.input, sizeof dir.input, "%s/in.jsonl", to);
    snprintf(dir.output, sizeof dir.output, "%s/out.jsonl", to);
    snprintf(dir.errors, sizeof dir.errors, "%s/err.jsonl", to);
    snprintf(dir.sidecar, sizeof dir.sidecar, "%s.job", dir.output);
    out = RUN(.errors_file = true);
    assert_done(&out);
    assert_true(out.state.done_n > 0);
}

static void other_file_in_the_locks_place(void **state)
{
    struct job_outcome out;
    struct buf want = BUF_EMPTY;
    char lock[160];

    (void)state;
    input_text("one\n");
    snprintf(lock, sizeof lock, "%s/out.jsonl.lock", dir.path);
    buf_add_text(&want, "# a file of another program\n");
    text_write(lock, want.data, want.n);
    out = RUN(PLAIN);
    assert_refused(&out, "open", ST_REJECT, "is in the way");
    assert_file_is(lock, &want);
    buf_fini(&want);
}

/* ---- files that are not ours ---- */

static void output_of_somebody_is_kept(void **state)
{
    static const char theirs[] = "{\"id\":\"batch_req_0123456789abcdef_0\",\"x\":1}\n";
    struct buf want = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    input_text("one\ntwo\n");
    buf_add_text(&want, theirs);
    text_write(dir.output, want.data, want.n);
    out = RUN(PLAIN);
    assert_refused(&out, "open", ST_REJECT, "has no ");
    assert_refused(&out, "open", ST_REJECT, "--overwrite");
    assert_file_is(dir.output, &want);
    text_write(dir.output, "", 0);                                  /* an empty file is nobody's */
    out = RUN(PLAIN);
    assert_done(&out);
    text_append(dir.output, want.data, want.n);
    out = RUN(PLAIN);
    assert_refused(&out, "open", ST_REJECT, "line 3 of ");
    assert_refused(&out, "open", ST_REJECT, "is not a result of this job");
    assert_int_equal(job_lines(&dir), 3);
    text_write(dir.output, want.data, want.n);
    out = RUN(.overwrite = true);
    assert_done(&out);
    unlink(dir.sidecar);
    text_write(dir.errors, want.data, want.n);
    text_write(dir.output, "", 0);
    out = RUN(.errors_file = true);
    assert_refused(&out, "open", ST_REJECT, "err.jsonl is there already");
    buf_fini(&want);
}

static void answer_of_no_line_is_refused(void **state)
{
    struct job_outcome out;
    char line[128];
    int n;

    (void)state;
    input_text("one\n");
    out = RUN(PLAIN);
    n = snprintf(line, sizeof line, "{\"id\":\"batch_req_%s_1\"}\n", out.state.job);
    text_append(dir.output, line, (size_t)n);
    out = RUN(PLAIN);
    assert_refused(&out, "open", ST_REJECT, "line 2 of ");
    assert_refused(&out, "open", ST_REJECT, "answers input line 2, but the input has only 1 lines");
}

static void line_answered_twice_is_refused(void **state)
{
    struct buf b = BUF_EMPTY, both = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    input_text("one\ntwo bad\nthree\n");
    out = RUN(.errors_file = true);
    assert_true(text_read(dir.output, &b));
    buf_add(&both, b.data, b.n);
    text_append(dir.output, b.data, b.n);
    out = RUN(.errors_file = true);
    assert_refused(&out, "open", ST_REJECT, "input line 1 is answered twice: by line 1 of ");
    assert_refused(&out, "open", ST_REJECT, "and line 3 of ");
    text_write(dir.output, both.data, both.n);
    text_append(dir.errors, both.data, both.n);                     /* in the other file */
    out = RUN(.errors_file = true);
    assert_refused(&out, "open", ST_REJECT, "input line 1 is answered twice: by line 1 of ");
    assert_refused(&out, "open", ST_REJECT, "out.jsonl and line 2 of ");
    assert_int_equal(job_lines(&dir), 5);
    out = RUN(.errors_file = true, .overwrite = true);
    assert_done(&out);
    buf_fini(&b);
    buf_fini(&both);
}

static void damaged_sidecar_is_refused(void **state)
{
    struct buf good = BUF_EMPTY, bad = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    answered_job();
    assert_true(text_read(dir.sidecar, &good));
    for (size_t n = 0; n < good.n - 2; n += 7) {                    /* the last two bytes are "}\n" */
        text_write(dir.sidecar, good.data, n);
        out = RUN(AS_BEFORE);
        assert_refused(&out, "open", ST_REJECT, "damaged or of another version");
    }
    buf_add_text(&bad, good.data);
    memcpy(strstr(bad.data, "\"nightshift_job\": 1"), "\"nightshift_job\": 2", 19);
    text_write(dir.sidecar, bad.data, bad.n);
    out = RUN(AS_BEFORE);
    assert_refused(&out, "open", ST_REJECT, "another version");
    text_write(dir.sidecar, good.data, good.n);
    out = RUN(AS_BEFORE);
    assert_done(&out);
    buf_fini(&good);
    buf_fini(&bad);
}

/* As long as nothing is answered, anything may be changed; one failure is an answer. */
static void job_without_results_binds_nobody(void **state)
{
    struct job_outcome out;

    (void)state;
    input_text("one\ntwo\n");
    queue_close(queue_take(&(struct job_options){ .errors_file = true }));
    out = RUN(.fingerprint = "{\"other\": 1}");
    assert_done(&out);
    unlink(dir.output);
    input_text("other\n");
    out = RUN(.fingerprint = "{\"other\": 1}");
    assert_done(&out);
    input_text("one bad\ntwo\n");
    unlink(dir.output);
    unlink(dir.errors);
    out = RUN(.fingerprint = "{\"other\": 2}", .errors_file = true, .stop_after = 1, .group_max = 1);
    assert_int_equal(out.committed_n, 1);
    out = RUN(.fingerprint = "{\"other\": 3}", .errors_file = true);
    assert_refused(&out, "open", ST_REJECT, "other was 2, now 3");
    out = RUN(.fingerprint = "{\"other\": 2}");
    assert_refused(&out, "open", ST_REJECT, "begun with -e err.jsonl");
}

/* Results gone, sidecar there: all is answered again, nothing is assumed. */
static void lost_output_is_made_again(void **state)
{
    struct job_outcome out;

    (void)state;
    answered_job();
    unlink(dir.output);
    out = RUN(AS_BEFORE);
    assert_done(&out);
    assert_false(out.state.finished);
    assert_int_equal(out.polled_n, 3);
}

/* ---- paths ---- */

static struct job_outcome run_at(const char *input, const char *output, const char *errors)
{
    struct job_dir at = dir;
    struct job_outcome out;

    snprintf(at.input, sizeof at.input, "%s", input);
    snprintf(at.output, sizeof at.output, "%s", output);
    snprintf(at.errors, sizeof at.errors, "%s", errors != NULL ? errors : "");
    job_run(&at, &(struct job_options){ .errors_file = errors != NULL, .overwrite = true }, &out);
    return out;
}

/* Nothing that stands beside the output may be the input or the errors file: the progress store would overwrite them and take
 * them away when the job is over. */
static void refused_companions(void)
{
    static const char *const taken[] = { ".sorting", ".job", ".job.tmp", ".lock", ".progress", ".progress-wal", ".progress-shm",
                                         ".progress-journal" };
    char path[160];
    struct job_outcome out;

    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        snprintf(path, sizeof path, "%s%s", dir.output, taken[i]);
        out = run_at(dir.input, dir.output, path);
        assert_refused(&out, "open", ST_REJECT, "is the output or stands where");
        assert_int_equal(rename(dir.input, path), 0);
        out = run_at(path, dir.output, NULL);
        assert_refused(&out, "open", ST_REJECT, "would overwrite the input");
        assert_int_equal(rename(path, dir.input), 0);
    }
    snprintf(path, sizeof path, "%s.sorting", dir.errors);          /* the errors file's own companion is the output */
    out = run_at(dir.input, path, dir.errors);
    assert_refused(&out, "open", ST_REJECT, "is the output or stands where");
}

static void refused_paths(void **state)
{
    char path[160], other[160];
    struct buf input = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    input_text("one\ntwo\n");
    buf_add_text(&input, "one\ntwo\n");
    out = run_at(dir.input, dir.input, NULL);
    assert_refused(&out, "open", ST_REJECT, "would overwrite the input");
    snprintf(other, sizeof other, "%s/link", dir.path);
    assert_int_equal(symlink(dir.input, other), 0);
    out = run_at(dir.input, other, NULL);
    assert_refused(&out, "open", ST_REJECT, "would overwrite the input");
    out = run_at(dir.input, dir.output, other);
    assert_refused(&out, "open", ST_REJECT, "would overwrite the input");
    out = run_at(dir.input, dir.output, dir.output);
    assert_refused(&out, "open", ST_REJECT, "is the output or stands where");
    text_write(dir.output, "", 0);
    snprintf(path, sizeof path, "%s/hard", dir.path);
    assert_int_equal(link(dir.output, path), 0);
    out = run_at(dir.input, dir.output, path);
    assert_refused(&out, "open", ST_REJECT, "are one file");
    unlink(path);
    unlink(dir.output);
    refused_companions();
    out = run_at(dir.input, dir.path, NULL);
    assert_refused(&out, "open", ST_REJECT, "Is a directory");
    snprintf(path, sizeof path, "%s/none/out.jsonl", dir.path);
    out = run_at(dir.input, path, NULL);
    assert_refused(&out, "open", ST_REJECT, "No such file or directory");
    assert_refused(&out, "open", ST_REJECT, "mkdir -p");
    snprintf(path, sizeof path, "%s/out/", dir.path);
    out = run_at(dir.input, path, NULL);
    assert_int_equal(out.st, ST_REJECT);
    unlink(other);
    assert_int_equal(symlink("/nowhere/at/all", other), 0);
    out = run_at(dir.input, other, NULL);
    assert_int_equal(out.st, ST_REJECT);
    snprintf(path, sizeof path, "%s/none.jsonl", dir.path);
    out = run_at(path, dir.output, NULL);
    assert_refused(&out, "open", ST_REJECT, "cannot read");
    out = run_at(dir.path, dir.output, NULL);
    assert_refused(&out, "open", ST_REJECT, "Is a directory");
    assert_false(text_exists(dir.output));
    assert_file_is(dir.input, &input);
    buf_fini(&input);
}

static void pipes_are_refused(void **state)
{
    char path[160];
    struct job_outcome out;
    int ends[2];

    (void)state;
    input_text("one\n");
    snprintf(path, sizeof path, "%s/pipe", dir.path);
    assert_int_equal(mkfifo(path, 0600), 0);
    out = run_at(dir.input, path, NULL);
    assert_refused(&out, "open", ST_REJECT, "is not a regular file");
    out = run_at(path, dir.output, NULL);                           /* and does not wait for a writer */
    assert_refused(&out, "open", ST_REJECT, "is not a regular file");
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);             /* what /dev/stdout is behind a | */
    out = run_at(dir.input, path, NULL);
    assert_refused(&out, "open", ST_REJECT, "is not a regular file");
    out = run_at(dir.input, "/dev/null", NULL);
    assert_refused(&out, "open", ST_REJECT, "is not a regular file");
    close(ends[0]);
    close(ends[1]);
}

/* In a child, so that a root that runs the tests loses its powers only there. */
static struct job_outcome run_as_nobody(void)
{
    struct job_outcome out;
    int ends[2];
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        struct job_outcome mine;

        if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0))
            _exit(1);
        job_run(&dir, &(struct job_options){ PLAIN }, &mine);
        _exit(write(ends[1], &mine, sizeof mine) == (ssize_t)sizeof mine ? 0 : 1);
    }
    assert_int_equal(read(ends[0], &out, sizeof out), sizeof out);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    out.call = "open";      /* the child's text is not ours */
    return out;
}

static void folders_and_files_that_cannot_be_written(void **state)
{
    struct job_outcome out;

    (void)state;
    input_text("one\n");
    assert_int_equal(chmod(dir.input, 0644), 0);
    assert_int_equal(chmod(dir.path, 0555), 0);
    out = run_as_nobody();
    assert_refused(&out, "open", ST_REJECT, "cannot create");
    assert_refused(&out, "open", ST_REJECT, "Permission denied; check its permissions and those of its folder");
    assert_int_equal(chmod(dir.path, 0777), 0);
    text_write(dir.output, "", 0);
    assert_int_equal(chmod(dir.output, 0444), 0);
    out = run_as_nobody();
    assert_refused(&out, "open", ST_REJECT, "cannot write");
    assert_refused(&out, "open", ST_REJECT, "Permission denied");
}

static void read_only_file_system(void **state)
{
    struct job_outcome out;

    (void)state;
    if (mount("tmpfs", dir.path, "tmpfs", 0, "size=1m") != 0) {
        print_message("not run: mounting a file system is not allowed here\n");
        return;
    }
    input_text("one\n");
    assert_int_equal(mount("tmpfs", dir.path, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL), 0);
    out = RUN(PLAIN);
    assert_int_equal(umount(dir.path), 0);
    assert_refused(&out, "open", ST_REJECT, "Read-only file system; choose a folder that can be written");
}

/* A link to the output: the results go where it points, and the link stays a link, sorted or not. */
static void output_behind_a_link(void **state)
{
    char real[160];
    struct job_outcome out;
    struct stat s;

    (void)state;
    input_lines(200, 5);
    snprintf(real, sizeof real, "%s/real.jsonl", dir.path);
    text_write(real, "", 0);
    assert_int_equal(symlink("real.jsonl", dir.output), 0);
    out = RUN(.order_input = true, .shuffle = 3);
    assert_int_equal(out.st, ST_OK);
    assert_int_equal(lstat(dir.output, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    snprintf(dir.sidecar, sizeof dir.sidecar, "%s/real.jsonl.job", dir.path);
    assert_null(job_check(&dir, false));
    out = RUN(.order_input = true);
    assert_true(out.state.finished);
}

/* ---- one run at a time ---- */

static void second_run_is_refused(void **state)
{
    char want[64], lock[160];
    struct job_outcome out;
    struct queue *q;
    int how, ends[2];
    char byte;
    pid_t child;

    (void)state;
    input_text("one\ntwo\n");
    q = queue_take(&(struct job_options){ PLAIN });
    snprintf(want, sizeof want, "another nightshift (process %ld)", (long)getpid());
    out = RUN(.fingerprint = "{}");
    assert_refused(&out, "open", ST_REJECT, want);
    out = RUN(.fingerprint = "{}", .overwrite = true);
    assert_refused(&out, "open", ST_REJECT, want);
    queue_close(q);
    snprintf(lock, sizeof lock, "%s.lock", dir.output);
    assert_false(text_exists(lock));
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        q = queue_take(&(struct job_options){ PLAIN });
        _exit(write(ends[1], "x", 1) == 1 && pause() ? 1 : 0);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    out = RUN(.fingerprint = "{}");
    snprintf(want, sizeof want, "(process %ld)", (long)child);
    assert_refused(&out, "open", ST_REJECT, want);
    kill(child, SIGKILL);
    waitpid(child, &how, 0);
    assert_true(text_exists(lock));
    out = RUN(.fingerprint = "{}");                                 /* death releases it */
    assert_done(&out);
    close(ends[0]);
    close(ends[1]);
}

/* Many processes at once for one lock: exactly one of them holds it at a time, also around its end, when the holder takes the
 * file away that others have just opened. */
static void errors_file_has_one_job(void **state)
{
    struct job_outcome out;
    struct job_dir mine;
    struct queue *q;
    char lock[160];

    (void)state;
    input_text("one\nbad two\n");
    mine = dir;
    q = queue_take(&(struct job_options){ .fingerprint = "{}", .errors_file = true });
    snprintf(dir.output, sizeof dir.output, "%s/other.jsonl", dir.path);
    out = RUN(.fingerprint = "{}", .errors_file = true);
    assert_refused(&out, "open", ST_REJECT, mine.errors);
    memcpy(dir.output, mine.errors, sizeof dir.output);        /* what fails there is no output here */
    out = RUN(.fingerprint = "{}");
    assert_refused(&out, "open", ST_REJECT, mine.errors);
    queue_close(q);
    snprintf(lock, sizeof lock, "%s.lock", mine.errors);
    assert_false(text_exists(lock));
    dir = mine;
    out = RUN(.fingerprint = "{}", .errors_file = true);
    assert_int_equal(out.st, ST_OK);
}

static void lock_has_one_holder(void **state)
{
    enum { CHILDREN = 4, TIMES = 60 };
    char holder[160], lock[160];
    pid_t child[CHILDREN];

    (void)state;
    snprintf(holder, sizeof holder, "%s/holder", dir.path);
    snprintf(lock, sizeof lock, "%s/lock", dir.path);
    for (int i = 0; i < CHILDREN; i++) {
        child[i] = fork();
        if (child[i] != 0)
            continue;
        for (int got = 0; got < TIMES;) {
            int fd, mark;

            if (job_lock(lock, "the output", &fd, NULL) != ST_OK) {
                sched_yield();
                continue;
            }
            mark = open(holder, O_CREAT | O_EXCL | O_WRONLY, 0600);
            sched_yield();
            if (mark < 0 || close(mark) != 0 || unlink(holder) != 0)
                _exit(1);
            job_unlock(lock, fd);
            got++;
        }
        _exit(0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int how = -1;

        waitpid(child[i], &how, 0);
        assert_int_equal(how, 0);
    }
}

/* A look holds the lock for a moment, shared, to see whether it is held: nobody is refused for that. */
static void looking_keeps_nobody_out(void **state)
{
    char lock[160], byte;
    int ends[2], how;
    pid_t child;

    (void)state;
    input_text("one\ntwo\n");
    snprintf(lock, sizeof lock, "%s/out.jsonl.lock", dir.path);
    text_write(lock, "", 0);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        int fd = open(lock, O_RDONLY);

        if (fd < 0 || flock(fd, LOCK_SH) != 0 || write(ends[1], "x", 1) != 1)
            _exit(1);
        usleep(50000);
        _exit(0);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    queue_close(queue_take(&(struct job_options){ PLAIN }));
    waitpid(child, &how, 0);
    assert_int_equal(how, 0);
    close(ends[0]);
    close(ends[1]);
}

static void a_look_tells_how_far_it_is(void **state)
{
    struct job_outcome out;
    struct queue_state s;
    struct error err;
    struct queue *q;
    bool running;
    char link[160];

    (void)state;
    input_lines(80, 5);
    assert_int_equal(queue_look(dir.output, &s, &running, &err), ST_AGAIN);
    assert_non_null(strstr(err.text, "no job was begun"));
    out = RUN(.fingerprint = "{}", .errors_file = true, .stop_after = 4);
    assert_int_equal(queue_look(dir.output, &s, &running, &err), ST_OK);
    assert_int_equal(s.done_n, out.committed_n);
    assert_int_equal(s.records_n, out.state.records_n);
    assert_false(running || s.finished);
    q = queue_take(&(struct job_options){ .errors_file = true });
    text_append(dir.output, "{\"id\":\"batch", 12);                    /* a line that is being written */
    assert_int_equal(queue_look(dir.output, &s, &running, &err), ST_OK);
    assert_true(running);
    assert_int_equal(s.done_n, out.committed_n);
    queue_close(q);
    out = RUN(.fingerprint = "{}", .errors_file = true);
    assert_done(&out);
    snprintf(link, sizeof link, "%s/other", dir.path);
    assert_int_equal(symlink(dir.output, link), 0);
    assert_int_equal(queue_look(link, &s, &running, &err), ST_OK);
    assert_true(s.finished && !running && s.done_n == s.records_n && s.failed_n > 0);
    text_write(dir.output, "", 0);                                    /* somebody took answers out again */
    assert_int_equal(queue_look(dir.output, &s, &running, &err), ST_OK);
    assert_true(!s.finished && s.done_n < s.records_n);
    text_write(dir.sidecar, "{}", 2);
    assert_int_equal(queue_look(dir.output, &s, &running, &err), ST_REJECT);
}

static void two_outputs_of_one_input(void **state)
{
    struct queue *a;
    struct job_dir other = dir;
    struct job_outcome out;

    (void)state;
    input_lines(50, 3);
    a = queue_take(&(struct job_options){ PLAIN });
    snprintf(other.output, sizeof other.output, "%s/second.jsonl", dir.path);
    snprintf(other.sidecar, sizeof other.sidecar, "%s/second.jsonl.job", dir.path);
    job_run(&other, &(struct job_options){ PLAIN }, &out);
    assert_int_equal(out.st, ST_OK);
    assert_null(job_check(&other, false));
    queue_close(a);
}

static void file_system_without_locks(void **state)
{
    static const int causes[] = { ENOLCK, EOPNOTSUPP, ENOSYS };

    (void)state;
    input_lines(50, 3);
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        struct job_outcome out;

        flock_errno = causes[i];
        out = RUN(.overwrite = true);
        flock_errno = 0;
        assert_done(&out);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, dir_setup, dir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(changed_settings_are_named),
        TEST(changed_input_is_told),
        TEST(continued_torn_line_is_refused_once_answered),
        TEST(continued_torn_line_is_fine_while_open),
        TEST(errors_file_must_stay),
        TEST(moved_folder_goes_on),
        TEST(output_of_somebody_is_kept),
        TEST(answer_of_no_line_is_refused),
        TEST(line_answered_twice_is_refused),
        TEST(damaged_sidecar_is_refused),
        TEST(job_without_results_binds_nobody),
        TEST(other_file_in_the_locks_place),
        TEST(lost_output_is_made_again),
        TEST(refused_paths),
        TEST(pipes_are_refused),
        TEST(folders_and_files_that_cannot_be_written),
        TEST(read_only_file_system),
        TEST(output_behind_a_link),
        TEST(second_run_is_refused),
        TEST(errors_file_has_one_job),
        TEST(lock_has_one_holder),
        TEST(looking_keeps_nobody_out),
        TEST(a_look_tells_how_far_it_is),
        TEST(two_outputs_of_one_input),
        TEST(file_system_without_locks),
    };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
