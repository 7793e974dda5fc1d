/* What a person writes to name a Redis, and what a Redis writes to say what is wrong. A URL that is taken fits its fields and has a
 * host; one that is refused is not quoted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "checkpoint/redis_link.h"
#include "checkpoint/redis_url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_take(size + 1), shown[CONF_TEXT_MAX];
    struct redis_url url;
    struct error err = { "" };
    struct redis_meaning meaning;

    memcpy(text, data, size);
    text[size] = '\0';
    if (redis_url_parse(text, &url, &err) == ST_OK) {
        ASSERT(url.hosts_n >= 1 && url.hosts_n <= REDIS_HOSTS_MAX && (url.hosts_n == 1 || url.sentinel));
        for (int i = 0; i < url.hosts_n; i++)
            ASSERT(url.hosts[i].name[0] != '\0' && strlen(url.hosts[i].name) < REDIS_TEXT_MAX &&
                   url.hosts[i].port > 0 && url.hosts[i].port < 65536);
        ASSERT((url.master[0] != '\0') == url.sentinel);
        ASSERT(url.user[0] == '\0' || url.password[0] != '\0');
        ASSERT(strlen(config_url_shown(text, shown)) < sizeof shown);
        ASSERT(strchr(text, '@') == NULL || strstr(shown, "://***@") != NULL);
    } else {
        ASSERT(err.text[0] != '\0');
    }
    meaning = redis_error_meaning(text);
    ASSERT(meaning.error < CKPT_ERRORS_N);
    free(text);
    return 0;
}
