# tools/quickstart_kafka.sh - sourced by quickstart: the demo through Kafka, Redis and two workers.
# What it starts it ends again, the broker's and Redis's data stay in build/quickstart/services: run again, it finds everything there.

SERVICES=build/quickstart/services

# Java and Maven bring a broker in seconds; where they are not, containers do if there are any; else they are installed.
services_kind() {
    if command -v java >/dev/null 2>&1 && command -v mvn >/dev/null 2>&1; then echo jars
    elif docker compose version >/dev/null 2>&1; then echo containers
    else echo jars; fi
}

services_start() {
    if [ "$(services_kind)" = containers ]; then
        docker compose -f deploy/compose.yaml up -d --wait
        BROKERS=127.0.0.1:${NIGHTSHIFT_KAFKA_PORT:-9092}
        REDIS=redis://127.0.0.1:${NIGHTSHIFT_REDIS_PORT:-6379}
        return
    fi
    tools/kafka_local start "$SERVICES" >/dev/null || die "the broker does not start (above: why)"
    BROKERS=$(cat "$SERVICES/bootstrap")
    REDIS=$(cat "$SERVICES/redis")
}

services_stop() {
    for pid in $WORKERS; do kill "$pid" 2>/dev/null || true; done
    for pid in $WORKERS; do wait "$pid" 2>/dev/null || true; done
    if [ "$(services_kind)" = containers ]; then docker compose -f deploy/compose.yaml stop >/dev/null 2>&1
    else tools/kafka_local stop "$SERVICES"; fi
}

# worker_start NUMBER QUEUE: on half of the cores.
worker_start() {
    threads=$(($(nproc) / 2))
    build/release/bin/nightshift-worker --queue "$2" -m "$MODEL_FILE" --set "checkpoint_url=$REDIS" --set http_listen=127.0.0.1:0 \
        --set "threads=$((threads > 0 ? threads : 1))" --set log_level=info 2>"build/quickstart/worker-$1.log" &
    WORKERS="$WORKERS $!"
}

# A worker that cannot start says so within seconds; nobody would answer what is waited for.
workers_check() {
    sleep 3
    for pid in $WORKERS; do
        kill -0 "$pid" 2>/dev/null || { tail -n 3 build/quickstart/worker-[12].log >&2; die "a worker has ended (above: why)"; }
    done
}

# shown COMMAND ...: says what it runs, then runs it.
shown() { echo "$ $*"; "$@"; }

quickstart_kafka() {
    nightshift=build/release/bin/nightshift
    say "1/7 packages and build (a few minutes the first time)"
    need_machine
    if [ "$(services_kind)" = jars ]; then
        need_packages 'openjdk-17-jre-headless|openjdk-21-jre-headless' maven
        command -v redis-server >/dev/null 2>&1 || need_packages redis-server
    fi
    build release nightshift
    build release nightshift-worker
    echo "$nightshift build/release/bin/nightshift-worker"
    say "2/7 model"
    need_model
    echo "$MODEL_FILE"
    say "3/7 broker and Redis ($(services_kind))"
    WORKERS=
    trap 'services_stop' EXIT
    trap 'exit 130' INT TERM
    services_start
    queue=kafka://$BROKERS/quickstart
    echo "$queue"
    echo "$REDIS"
    say "4/7 submit: $1 lines of this machine's package descriptions behind one shared prefix"
    need_input "$1"
    shown "$nightshift" submit "$INPUT_FILE" --queue "$queue" --job "packages-$1" -m "$MODEL_FILE"
    say "5/7 two workers (their logs: build/quickstart/worker-1.log, worker-2.log)"
    worker_start 1 "$queue"
    worker_start 2 "$queue"
    workers_check
    say "6/7 collect"
    output=build/quickstart/kafka-answers-$1.jsonl
    set -- "$nightshift" collect --queue "$queue" --job "packages-$1" -o "$output" --order input
    shown "$@" || die "not every line has its answer; the workers' logs say why"
    say "7/7 audit, from the topics alone"
    shown "$nightshift" audit --queue "$queue"
    say "three of the results"
    show_results "$output"
    say "done; broker, Redis and workers are ended. Their data stays in $SERVICES, the answers in $output"
}
