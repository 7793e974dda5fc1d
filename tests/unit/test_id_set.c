/* worker/pipeline/id_set: counts exactly as a list of all ids would, across growth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "worker/pipeline/id_set.h"

static void counts_every_second_coming(void **state)
{
    struct id_set *s = id_set_open();
    char id[32];
    int expected = 0;

    (void)state;
    for (int i = 0; i < 50000; i++) {
        int k = i % 7 == 0 ? i / 2 : 100000 + i;       /* i/2: each of them at most once among multiples of 7 */

        snprintf(id, sizeof id, "\"id-%d\"", k);
        id_set_add(s, id);
        if (i % 10 == 0) {
            id_set_add(s, id);
            expected++;
        }
    }
    id_set_add(s, "null");
    id_set_add(s, "null");
    assert_int_equal(id_set_duplicates(s), expected);
    id_set_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(counts_every_second_coming) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
