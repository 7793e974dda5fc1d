/* Any bytes as the three files that the file queue reads. Byte 0 chooses which.
 * Input: its lines are those of a naive split, however long a line may be. Output: what is left after a repair is whole lines
 * of this job, each once; a second repair changes nothing; what was taken away is kept. Sidecar: taken or refused; two texts
 * of one fingerprint are equal. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "queue/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define JOB "0123456789abcdef"

static char folder[32], path[48], aside[64];

static void folder_remove(void)
{
    unlink(path);
    unlink(aside);
    rmdir(folder);
}

static void folder_make(void)
{
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-XXXXXX" : "/tmp/fuzz-XXXXXX");
    ASSERT(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/f", folder);
    snprintf(aside, sizeof aside, "%s.damaged-1", path);
    atexit(folder_remove);
    log_level_set(LOG_ERROR);
}

static void file_put(const uint8_t *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    ASSERT(fd >= 0 && file_write_at(fd, data, n, 0));
    close(fd);
}

static bool naive_blank(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r')
            return false;
    return true;
}

static void input_try(const uint8_t *data, size_t n, int64_t line_max)
{
    struct file_input in;
    struct input_line line;
    struct hash128 prefix;
    size_t at = n >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    int64_t lines_n = 0, records_n = 0;

    file_put(data, n);
    ASSERT(input_open(&in, path, line_max, NULL) == ST_OK && input_scan(&in, (int64_t)n / 2, &prefix, NULL) == ST_OK);
    while (input_next(&in, &line, NULL) == ST_OK) {
        const uint8_t *newline = at < n ? memchr(data + at, '\n', n - at) : NULL;
        size_t whole = newline != NULL ? (size_t)(newline - data) - at : n - at;
        size_t value_n = whole > 0 && data[at + whole - 1] == '\r' ? whole - 1 : whole;

        ASSERT(line.line_i == lines_n && line.at_bytes == (int64_t)at && line.torn == (newline == NULL));
        ASSERT(line.blank == naive_blank(data + at, whole) && line.oversize == ((int64_t)value_n > line_max));
        ASSERT(line.value_n == (line.oversize ? (size_t)line_max : value_n));
        ASSERT(line.value_n == 0 || memcmp(line.value, data + at, line.value_n) == 0);
        lines_n++;
        records_n += !line.blank;
        at += whole + (newline != NULL);
    }
    ASSERT(at == n && lines_n == in.facts.lines_n && records_n == in.facts.records_n);
    ASSERT(prefix.low == hash128(data, n / 2).low && in.facts.hash.low == hash128(data, n).low);
    input_close(&in);
}

static void output_try(const uint8_t *data, size_t n)
{
    uint64_t bits[2] = { 0, 0 }, again_bits[2] = { 0, 0 };
    struct done_set done = { bits, 100, 0 }, again = { again_bits, 100, 0 };
    struct file_output o;
    int64_t kept;

    file_put(data, n);
    unlink(aside);
    ASSERT(output_open(&o, path, NULL) == ST_OK);
    if (output_recover(&o, NULL, JOB, &done, NULL) == ST_OK) {
        char *left = mem_take((size_t)o.bytes + 1);

        kept = o.bytes;
        ASSERT(kept <= (int64_t)n && done.done_n == o.lines_n);
        ASSERT(file_read_at(o.fd, left, (size_t)kept + 1, 0) == kept);
        ASSERT(kept == 0 || (left[kept - 1] == '\n' && memcmp(left, data, (size_t)kept) == 0));
        free(left);
        o.lines_n = 0;
        ASSERT(output_recover(&o, NULL, JOB, &again, NULL) == ST_OK && o.bytes == kept);
        ASSERT(again.done_n == done.done_n && memcmp(bits, again_bits, sizeof bits) == 0);
        ASSERT(output_order(&o, JOB, NULL) == ST_OK && o.bytes == kept);
    }
    output_close(&o);
}

static void sidecar_try(const uint8_t *data, size_t n)
{
    struct job_record r;
    char *text = mem_take(n + 1);
    struct error err;

    file_put(data, n);
    if (job_record_read(path, &r, &err) == ST_OK) {
        ASSERT(strlen(r.job) == 16 && r.input.bytes >= 0 && fingerprint_check(r.fingerprint, NULL) == ST_OK);
        job_record_fini(&r);
    }
    memcpy(text, data, n);
    text[n] = '\0';
    if (fingerprint_check(text, &err) == ST_OK) {
        /* A name that stands twice has two values; then a text need not equal itself. */
        status st = fingerprint_compare(text, text, "out", &err);

        ASSERT(st == ST_OK || st == ST_REJECT);
        st = fingerprint_compare(text, "{\"a\":1}", "out", &err);
        ASSERT(st == ST_OK || st == ST_REJECT);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (folder[0] == '\0')
        folder_make();
    if (size == 0)
        return 0;
    if (data[0] % 4 == 0)
        input_try(data + 1, size - 1, 1 + data[0] / 4);
    else if (data[0] % 4 == 1)
        sidecar_try(data + 1, size - 1);
    else
        output_try(data + 1, size - 1);
    return 0;
}
