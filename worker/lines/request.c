#include <stdlib.h>

#include "worker/lines/request.h"

struct request *request_new(void)
{
    struct request *r = mem_take_zero(1, sizeof *r);

    arena_init(&r->arena, REQUEST_BLOCK_BYTES);
    r->custom_id = r->model = "null";
    return r;
}

static void group_give(struct request_group *g)
{
    if (--g->held_n > 0)
        return;
    arena_fini(&g->arena);
    free(g->requests);
    free(g);
}

void request_free(struct request *r)
{
    if (r == NULL)
        return;
    for (int32_t i = 0; r->choices != NULL && i < r->params.n; i++) {
        struct choice *c = &r->choices[i];

        free(c->tokens);
        free(c->logprobs);
        detok_fini(&c->detok);     /* of a zeroed one: nothing */
    }
    if (r->group != NULL) {
        r->group->requests[r->prompt_i] = NULL;
        group_give(r->group);
    }
    arena_fini(&r->arena);
    free(r);
}

void request_free_line(struct request *r)
{
    struct request_group *g = r == NULL ? NULL : r->group;

    if (g == NULL) {
        request_free(r);
        return;
    }
    g->held_n++;                   /* so that the loop outlives the last member */
    for (int32_t i = 0; i < g->requests_n; i++)
        request_free(g->requests[i]);
    group_give(g);
}
