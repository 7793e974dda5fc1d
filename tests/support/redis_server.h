/* tests/support/redis_server.h - a real redis-server of the test's own: a free port, a private folder, ended by its pid.
 * Threads: one. Whatever goes wrong fails the test. */
#ifndef TESTS_SUPPORT_REDIS_SERVER_H
#define TESTS_SUPPORT_REDIS_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct redis_server {
    pid_t pid;                   /* 0: not running */
    int port, tls_port;          /* tls_port: where the test has asked for one */
    char folder[64];
    char url[64];                /* redis://127.0.0.1:PORT */
};

/* Is redis-server installed? Says so where it is not. */
bool redis_server_there(void);
int port_free(void);             /* one that nobody listens on at the moment */

/* more: further arguments ("--appendonly", "yes", NULL); NULL: none. Answers when it takes commands. A server that was started
 * before keeps its port and folder. */
void redis_server_start(struct redis_server *s, const char *const *more);
/* As start, but waits for the process alone: a server that has to load much answers later. */
void redis_server_launch(struct redis_server *s, const char *const *more);
void redis_server_wait(const struct redis_server *s);
void redis_server_kill(struct redis_server *s);      /* kill -9, waits for the end */
void redis_server_end(struct redis_server *s);       /* and the folder goes */

/* A command made of words without spaces, on a connection of its own. The answer as text: a status, string, number or error;
 * of a list its elements, a space between them. Valid until the next call. */
const char *redis_server_ask(const struct redis_server *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int64_t redis_server_number(const struct redis_server *s, const char *command);

#endif
