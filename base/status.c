#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

const char *status_name(status st)
{
    switch (st) {
    case ST_OK: return "ok";
    case ST_AGAIN: return "again";
    case ST_RETRY: return "retry";
    case ST_REJECT: return "reject";
    case ST_FENCED: return "fenced";
    case ST_FATAL: return "fatal";
    }
    return "unknown";
}

status error_set(struct error *err, status st, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (err == NULL)
        return st;
    va_start(ap, fmt);
    n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof err->text)
        strcpy(err->text + sizeof err->text - 4, "...");
    return st;
}

_Noreturn void assert_failed(const char *cond, const char *file, int line)
{
    log_error("assert.failed", "cond=\"%s\" at=%s:%d", cond, file, line);
    abort();
}

static void *checked(void *p, size_t bytes)
{
    if (p == NULL) {
        log_error("memory.exhausted", "bytes=%zu", bytes);
        abort();
    }
    return p;
}

static _Thread_local bool quiet;

void mem_quiet(bool on)
{
    quiet = on;
}

static void take_check(void)
{
#ifdef NIGHTSHIFT_DEBUG
    ASSERT(!quiet);
#endif
}

void *mem_take(size_t bytes)
{
    take_check();
    return checked(malloc(bytes ? bytes : 1), bytes);
}

void *mem_take_zero(size_t n, size_t bytes)
{
    take_check();
    return checked(calloc(n ? n : 1, bytes ? bytes : 1), n * bytes);
}

void *mem_grow(void *p, size_t bytes)
{
    return checked(realloc(p, bytes ? bytes : 1), bytes);
}

char *mem_copy_text(const char *text)
{
    size_t n = strlen(text) + 1;

    return memcpy(mem_take(n), text, n);
}
