/* Builds for the thread sanitizer only: it knows POSIX threads and not C11's, which librdkafka uses: it dies in the first thread
 * made that way, and does not see what the library hands over under a lock. These stand in front of the C library's, whose mtx_t
 * and cnd_t are its pthread_mutex_t and pthread_cond_t. What happens inside the library is not ours to judge. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

#include "base/status.h"

const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:librdkafka.so\ncalled_from_lib:liblz4.so\ncalled_from_lib:libzstd.so\n"
           "race:librdkafka.so\nmutex:librdkafka.so\ndeadlock:librdkafka.so\nthread:librdkafka.so\n";
}

struct start { thrd_start_t run; void *ctx; };

static void *start_run(void *ctx)
{
    struct start start = *(struct start *)ctx;

    free(ctx);
    return (void *)(intptr_t)start.run(start.ctx);
}

int thrd_create(thrd_t *thread, thrd_start_t run, void *ctx)
{
    struct start *start = mem_take(sizeof *start);

    *start = (struct start){ run, ctx };
    if (pthread_create(thread, NULL, start_run, start) == 0)
        return thrd_success;
    free(start);
    return thrd_error;
}

int thrd_join(thrd_t thread, int *result)
{
    void *value;

    if (pthread_join(thread, &value) != 0)
        return thrd_error;
    if (result != NULL)
        *result = (int)(intptr_t)value;
    return thrd_success;
}

int thrd_detach(thrd_t thread)
{
    return pthread_detach(thread) == 0 ? thrd_success : thrd_error;
}

static int answer(int code)
{
    return code == 0 ? thrd_success : code == EBUSY ? thrd_busy : code == ETIMEDOUT ? thrd_timedout : thrd_error;
}

_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t) && sizeof(cnd_t) == sizeof(pthread_cond_t), "the C library's are POSIX's");

int mtx_lock(mtx_t *m)
{
    return answer(pthread_mutex_lock((pthread_mutex_t *)(void *)m));
}

int mtx_trylock(mtx_t *m)
{
    return answer(pthread_mutex_trylock((pthread_mutex_t *)(void *)m));
}

int mtx_unlock(mtx_t *m)
{
    return answer(pthread_mutex_unlock((pthread_mutex_t *)(void *)m));
}

int cnd_wait(cnd_t *c, mtx_t *m)
{
    return answer(pthread_cond_wait((pthread_cond_t *)(void *)c, (pthread_mutex_t *)(void *)m));
}

int cnd_timedwait(cnd_t *restrict c, mtx_t *restrict m, const struct timespec *restrict until)
{
    return answer(pthread_cond_timedwait((pthread_cond_t *)(void *)c, (pthread_mutex_t *)(void *)m, until));
}

int cnd_signal(cnd_t *c)
{
    return answer(pthread_cond_signal((pthread_cond_t *)(void *)c));
}

int cnd_broadcast(cnd_t *c)
{
    return answer(pthread_cond_broadcast((pthread_cond_t *)(void *)c));
}
