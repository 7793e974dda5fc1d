/* The model broker and its client against what Kafka and librdkafka are known to do (facts 1.4 - 1.6): a simulation is worth
 * as much as its broker. */
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "tests/sim/model_client.h"

#define CLIENTS_N 2

struct world {
    int64_t now_ns;
    struct dice dice;
    struct broker broker;
    struct model_faults faults;
    struct model_client *client[CLIENTS_N];
};

static int64_t world_now(void *ctx)
{
    return ((struct world *)ctx)->now_ns;
}

static void pass(void *ctx, int64_t ns)
{
    struct world *w = ctx;

    for (int64_t until = w->now_ns + ns; w->now_ns < until;) {
        w->now_ns += 50 * NS_PER_MS;
        broker_tick(&w->broker);
        for (int i = 0; i < CLIENTS_N; i++)
            if (w->client[i] != NULL)
                model_client_tick(w->client[i]);
    }
}

static void misused(void *ctx, const char *what)
{
    (void)ctx;
    fail_msg("%s", what);
}

static struct kafka_client *client_open(struct world *w, int i, const char *id)
{
    struct model_client_setup setup = { .broker = &w->broker, .dice = &w->dice, .faults = &w->faults, .transactional_id = id,
                                        .txn_timeout_ns = 10 * NS_PER_S, .poll_max_ns = 20 * NS_PER_S,
                                        .heartbeat_ns = NS_PER_S, .value_max = { 1000, 1000, 1000 }, .pass = pass,
                                        .misused = misused, .ctx = w };

    w->client[i] = model_client_open(&setup);
    return model_client_border(w->client[i]);
}

static int world_open(void **state)
{
    static struct world world;
    static struct clock clock = { world_now, world_now, &world };

    memset(&world, 0, sizeof world);
    world.now_ns = 1000 * NS_PER_S;
    world.dice.state = 1;
    clock_use(&clock);
    broker_init(&world.broker, &world.dice, 2);
    *state = &world;
    return 0;
}

static int world_close(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < CLIENTS_N; i++)
        model_client_free(w->client[i]);
    broker_fini(&w->broker);
    clock_use(NULL);
    return 0;
}

static struct broker_producer producer(struct world *w, const char *id)
{
    struct broker_producer p;

    while (broker_init_producer(&w->broker, id, 10 * NS_PER_S, &p) != BROKER_OK)
        pass(w, 100 * NS_PER_MS);
    return p;
}

static void produce(struct world *w, const char *id, struct broker_producer p, const char *text)
{
    struct broker_record r = { .value = (char *)(uintptr_t)text, .value_n = strlen(text) };

    assert_int_equal(broker_add_partition(&w->broker, id, p, KAFKA_RESULTS, 0), BROKER_OK);
    assert_int_equal(broker_produce(&w->broker, id, p, KAFKA_RESULTS, 0, &r), BROKER_OK);
}

static const char *seen(struct world *w, int64_t from)
{
    const struct broker_record *r = broker_fetch(&w->broker, KAFKA_RESULTS, 0, from, true);

    return r != NULL ? r->value : "nothing";
}

static void readers_see_what_is_committed(void **state)
{
    struct world *w = *state;
    struct broker_producer a = producer(w, "a"), b = producer(w, "b");

    produce(w, "a", a, "first");
    produce(w, "b", b, "second");
    assert_int_equal(broker_end_txn(&w->broker, "b", b, true), BROKER_OK);
    pass(w, NS_PER_S);
    assert_string_equal(seen(w, 0), "nothing");               /* the older open one holds the stable offset back */
    assert_int_equal(broker_stable(&w->broker, KAFKA_RESULTS, 0), 0);
    assert_int_equal(broker_end_txn(&w->broker, "a", a, false), BROKER_OK);
    assert_string_equal(seen(w, 0), "nothing");               /* decided, but its marker has not arrived */
    pass(w, NS_PER_S);
    assert_string_equal(seen(w, 0), "second");
    assert_string_equal(seen(w, 2), "nothing");
    assert_int_equal(w->broker.log[KAFKA_RESULTS][0].end, 4); /* two markers took offsets */
}

static void the_same_id_fences_the_older_producer(void **state)
{
    struct world *w = *state;
    struct broker_producer old = producer(w, "a"), new;
    struct broker_record r = { .value = "x", .value_n = 1 };
    struct kafka_place place = { 0, 7, "W1:-:" };

    produce(w, "a", old, "of the old one");
    assert_int_equal(broker_add_offsets(&w->broker, "a", old), BROKER_OK);
    assert_int_equal(broker_init_producer(&w->broker, "a", 10 * NS_PER_S, &new), BROKER_CONCURRENT_TRANSACTIONS);
    assert_int_equal(broker_produce(&w->broker, "a", old, KAFKA_RESULTS, 0, &r), BROKER_INVALID_PRODUCER_EPOCH);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", old, -1, "", &place, 1), BROKER_INVALID_PRODUCER_EPOCH);
    assert_int_not_equal(broker_end_txn(&w->broker, "a", old, true), BROKER_OK);
    new = producer(w, "a");
    assert_true(new.epoch > old.epoch + 1 && new.id == old.id);
    assert_string_equal(seen(w, 0), "nothing");
}

static void a_transaction_that_takes_too_long_is_aborted_and_fenced(void **state)
{
    struct world *w = *state;
    struct kafka_client *k = client_open(w, 0, "a");
    struct error err;

    assert_int_equal(k->ops->init(k, &err), KAFKA_OK);
    assert_int_equal(k->ops->begin(k, &err), KAFKA_OK);
    while (broker_fetch(&w->broker, KAFKA_RESULTS, 0, 0, false) == NULL &&
           broker_fetch(&w->broker, KAFKA_RESULTS, 1, 0, false) == NULL)
        k->ops->produce(k, KAFKA_RESULTS, NULL, 0, "x", 1, NULL, 0, &err);
    pass(w, 21 * NS_PER_S);
    assert_int_equal(k->ops->commit(k, &err), KAFKA_REMAKE);
    assert_int_equal(k->ops->abort(k, &err), KAFKA_REMAKE);
    assert_int_equal(k->ops->remake(k, &err), KAFKA_OK);
    assert_int_equal(k->ops->init(k, &err), KAFKA_OK);
    assert_int_equal(k->ops->begin(k, &err), KAFKA_OK);
    assert_string_equal(seen(w, 0), "nothing");
}

static void pending_offsets_make_a_stable_reader_wait(void **state)
{
    struct world *w = *state;
    struct broker_producer p = producer(w, "a");
    struct kafka_place place = { 1, 7, "W1:-:" };
    const char *metadata;
    int64_t offset;

    assert_int_equal(broker_add_offsets(&w->broker, "a", p), BROKER_OK);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, -1, "", &place, 1), BROKER_OK);
    assert_int_equal(broker_offset_fetch(&w->broker, 1, true, &offset, &metadata), BROKER_UNSTABLE_OFFSET_COMMIT);
    assert_int_equal(broker_offset_fetch(&w->broker, 0, true, &offset, &metadata), BROKER_OK);
    assert_int_equal(broker_offset_fetch(&w->broker, 1, false, &offset, &metadata), BROKER_OK);
    assert_int_equal(offset, -1);
    assert_int_equal(broker_end_txn(&w->broker, "a", p, true), BROKER_OK);
    assert_int_equal(broker_offset_fetch(&w->broker, 1, true, &offset, &metadata), BROKER_UNSTABLE_OFFSET_COMMIT);
    pass(w, NS_PER_S);
    assert_int_equal(broker_offset_fetch(&w->broker, 1, true, &offset, &metadata), BROKER_OK);
    assert_int_equal(offset, 7);
    assert_string_equal(metadata, "W1:-:");
}

static void late_end_of_a_transaction(struct world *w, bool again)
{
    struct broker_producer p = producer(w, "a");

    produce(w, "a", p, "first");
    broker_end_txn_late(&w->broker, "a", p, true, w->now_ns + 5 * NS_PER_S);
    if (again)
        p = producer(w, "a");
    else
        assert_int_equal(broker_end_txn(&w->broker, "a", p, false), BROKER_OK);
    pass(w, NS_PER_S);
    produce(w, "a", p, "half of the second");
    pass(w, 6 * NS_PER_S);
}

static void a_late_end_tears_the_next_transaction(void **state)
{
    late_end_of_a_transaction(*state, false);
    assert_string_equal(seen(*state, 0), "half of the second");        /* the old protocol's anomaly */
}

static void a_late_end_is_fenced_after_a_new_init(void **state)
{
    late_end_of_a_transaction(*state, true);
    assert_string_equal(seen(*state, 0), "nothing");
}

static void limits_and_expiry(void **state)
{
    struct world *w = *state;
    struct broker_producer p = producer(w, "a");
    struct kafka_place place = { 0, 7, "longer than ten" };

    w->broker.metadata_max = 10;
    assert_int_equal(broker_add_offsets(&w->broker, "a", p), BROKER_OK);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, -1, "", &place, 1), BROKER_OFFSET_METADATA_TOO_LARGE);
    broker_expire_ids(&w->broker);
    assert_int_equal(broker_end_txn(&w->broker, "a", p, false), BROKER_OK);      /* open ones do not expire */
    pass(w, NS_PER_S);
    broker_expire_ids(&w->broker);
    assert_int_equal(broker_add_offsets(&w->broker, "a", p), BROKER_INVALID_PRODUCER_ID_MAPPING);
}

static void fence_of_the_group(void **state)
{
    struct world *w = *state;
    struct broker_producer p = producer(w, "a");
    struct kafka_place place = { 0, 7, "" };
    char member[32] = "";
    int32_t generation;

    assert_int_equal(broker_add_offsets(&w->broker, "a", p), BROKER_OK);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, 999999, "probe", &place, 1), BROKER_ILLEGAL_GENERATION);
    assert_int_equal(broker_join(&w->broker, member, 0), BROKER_OK);
    pass(w, NS_PER_S);
    assert_true(broker_joined(&w->broker, member, &generation));
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, generation, member, &place, 1), BROKER_OK);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, generation - 1, member, &place, 1), BROKER_ILLEGAL_GENERATION);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, generation, "", &place, 1), BROKER_UNKNOWN_MEMBER_ID);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, generation, "other", &place, 1), BROKER_UNKNOWN_MEMBER_ID);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, -1, "", &place, 1), BROKER_OK);      /* the trap */
    broker_rebalance(&w->broker);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, generation, member, &place, 1), BROKER_OK);
    assert_int_equal(broker_heartbeat(&w->broker, member, generation), BROKER_REBALANCE_IN_PROGRESS);
    assert_int_equal(broker_join(&w->broker, member, 0), BROKER_OK);
    pass(w, NS_PER_S);
    assert_int_equal(broker_txn_offset_commit(&w->broker, "a", p, generation, member, &place, 1), BROKER_ILLEGAL_GENERATION);
}

/* Polls until an event of that kind comes; answers the ones on the way. */
static size_t poll_until(struct world *w, struct kafka_client *k, enum kafka_event_kind kind)
{
    struct kafka_event e;
    struct kafka_place places[BROKER_PARTITIONS_MAX];

    for (int i = 0; i < 2000; i++) {
        k->ops->poll(k, 0, &e);
        for (size_t n = 0; n < e.partitions_n; n++)
            places[n] = (struct kafka_place){ e.partitions[n], KAFKA_EARLIEST, NULL };
        if (e.kind == KAFKA_ASSIGNED)
            k->ops->assign(k, places, e.partitions_n);
        else if (e.kind != kind && (e.kind == KAFKA_REVOKED || e.kind == KAFKA_LOST))
            k->ops->unassign(k, e.partitions, e.partitions_n);
        if (e.kind == kind)
            return e.partitions_n;
        pass(w, 100 * NS_PER_MS);
    }
    fail_msg("the event does not come");
    return 0;
}

static void a_partition_moves_in_two_rounds(void **state)
{
    struct world *w = *state;
    struct kafka_client *a = client_open(w, 0, "a"), *b;
    struct kafka_group before, after;
    int32_t moved;

    assert_int_equal(poll_until(w, a, KAFKA_ASSIGNED), 2);
    a->ops->group(a, &before);
    b = client_open(w, 1, "b");
    assert_int_equal(poll_until(w, a, KAFKA_REVOKED), 1);
    a->ops->group(a, &after);
    assert_true(after.generation > before.generation && !after.lost);      /* fresh, though it is about to give something away */
    assert_int_equal(poll_until(w, b, KAFKA_ASSIGNED), 0);                 /* not before a has let go */
    moved = (int32_t)(w->broker.member[0].assigned == 1);
    a->ops->unassign(a, &moved, 1);
    pass(w, 2 * NS_PER_S);
    assert_int_equal(poll_until(w, b, KAFKA_ASSIGNED), 1);
}

static void who_does_not_poll_is_out(void **state)
{
    struct world *w = *state;
    struct kafka_client *a = client_open(w, 0, "a");
    struct kafka_group before, after;
    int32_t both[] = { 0, 1 };

    assert_int_equal(poll_until(w, a, KAFKA_ASSIGNED), 2);
    a->ops->group(a, &before);
    pass(w, 21 * NS_PER_S);
    a->ops->group(a, &after);
    assert_int_equal(after.generation, before.generation);                 /* stale */
    assert_string_equal(after.member, "");
    assert_true(after.lost);
    assert_int_equal(poll_until(w, a, KAFKA_LOST), 2);
    a->ops->unassign(a, both, 2);
    assert_int_equal(poll_until(w, a, KAFKA_ASSIGNED), 2);
    a->ops->group(a, &after);
    assert_true(after.generation > before.generation && !after.lost);
}

static void who_is_stopped_is_thrown_out(void **state)
{
    struct world *w = *state;
    struct kafka_client *a = client_open(w, 0, "a"), *b;
    struct model_client *stopped = w->client[0];

    assert_int_equal(poll_until(w, a, KAFKA_ASSIGNED), 2);
    b = client_open(w, 1, "b");
    w->client[0] = NULL;
    while (poll_until(w, b, KAFKA_ASSIGNED) < 2)
        ;
    w->client[0] = stopped;
    assert_int_equal(poll_until(w, a, KAFKA_LOST), 2);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_open, world_close)
    const struct CMUnitTest tests[] = {
        T(readers_see_what_is_committed), T(the_same_id_fences_the_older_producer),
        T(a_transaction_that_takes_too_long_is_aborted_and_fenced), T(pending_offsets_make_a_stable_reader_wait),
        T(a_late_end_tears_the_next_transaction), T(a_late_end_is_fenced_after_a_new_init), T(limits_and_expiry),
        T(fence_of_the_group), T(a_partition_moves_in_two_rounds), T(who_does_not_poll_is_out), T(who_is_stopped_is_thrown_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
