/* The embedded store: one SQLite file, usually beside the output.
 *
 * Write-ahead log with synchronous NORMAL: a commit is not fsynced, so a power loss may take the last commits away, but
 * never leaves the file inconsistent. That is the right price for a cache of progress; a killed process loses nothing.
 * One call is one transaction. Frames are rows of their own keyed by their first token, so that adding one to a long
 * sequence writes only that one; the identity frame is the row with n0 = -1. A save that follows on tokens [0, saved_n)
 * must find a row that ends there, and takes away whatever lies beyond it (an earlier try of the same save, or the tail
 * of another writer).
 * Attempts are a row a record, read and written back inside their call's transaction.
 * A damaged or foreign file is moved aside and a fresh one begun: costs time, never a result. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/frames.h"
#include "checkpoint/ops.h"

#define APPLICATION_ID 0x4e53636b      /* "NSck" */
#define SCHEMA_VERSION 2
#define BUSY_TIMEOUT_MS 2000
#define ASIDE_MAX 1000

enum statement {
    BEGIN, COMMIT, ROLLBACK, FENCE_GET, FENCE_SET, FENCE_MAX, FRAME_BEFORE, FRAME_CUT, FRAME_ADD, FRAME_READ,
    ATTEMPT_SET, ATTEMPT_CUT, ATTEMPT_READ, COUNT, JOB_CUT_FRAMES, JOB_CUT_ATTEMPTS, STATEMENTS_N
};

#define RECORD_IS "job = ?1 AND source = ?2 AND place = ?3"
#define KEY_IS RECORD_IS " AND choice = ?4"

static const char *const statement_sql[STATEMENTS_N] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [FENCE_GET] = "SELECT token FROM fence WHERE job = ?1 AND source = ?2",
    [FENCE_SET] = "INSERT OR REPLACE INTO fence VALUES (?1, ?2, ?3)",
    [FENCE_MAX] = "SELECT max(token) FROM fence WHERE job = ?1",
    [FRAME_BEFORE] = "SELECT n1 FROM frame WHERE " KEY_IS " AND n0 < ?5 ORDER BY n0 DESC LIMIT 1",
    [FRAME_CUT] = "DELETE FROM frame WHERE " KEY_IS " AND n0 >= ?5",
    [FRAME_ADD] = "INSERT INTO frame VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [FRAME_READ] = "SELECT bytes FROM frame WHERE " KEY_IS " AND n0 >= -1 ORDER BY n0",
    [ATTEMPT_SET] = "INSERT OR REPLACE INTO attempt VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [ATTEMPT_CUT] = "DELETE FROM attempt WHERE " RECORD_IS,
    [ATTEMPT_READ] = "SELECT starts, solo, run, run_solo FROM attempt WHERE " RECORD_IS,
    [COUNT] = "SELECT (SELECT count(*) FROM frame WHERE job = ?1 AND n0 = -1) + (SELECT count(*) FROM attempt WHERE job = ?1)",
    [JOB_CUT_FRAMES] = "DELETE FROM frame WHERE job = ?1",
    [JOB_CUT_ATTEMPTS] = "DELETE FROM attempt WHERE job = ?1",
};

static const char schema_sql[] =
    "CREATE TABLE fence(job INTEGER, source INTEGER, token INTEGER, PRIMARY KEY (job, source)) WITHOUT ROWID;"
    "CREATE TABLE frame(job INTEGER, source INTEGER, place INTEGER, choice INTEGER, n0 INTEGER, n1 INTEGER, bytes BLOB,"
    " PRIMARY KEY (job, source, place, choice, n0)) WITHOUT ROWID;"
    "CREATE TABLE attempt(job INTEGER, source INTEGER, place INTEGER, starts INTEGER, solo INTEGER, run INTEGER,"
    " run_solo INTEGER, PRIMARY KEY (job, source, place)) WITHOUT ROWID;";

struct sqlite_ckpt {
    struct ckpt ckpt;
    char *path;
    sqlite3 *db;                          /* NULL: could not be opened again; the next call tries */
    sqlite3_stmt *statement[STATEMENTS_N];
    struct buf frame;                     /* scratch */
    bool unusable;                        /* the last error was one that only another file cures */
    bool failing;                         /* already logged */
    bool over;                            /* the last job that it held has ended: the file goes at the close */
};

/* The one place where SQLite's answers become ours; logs the first failure of a row of them. */
static status st_sqlite(struct sqlite_ckpt *c, int rc, const char *doing)
{
    enum ckpt_error e = CKPT_ERROR_OTHER;

    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return ST_OK;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:                    /* no such table: somebody else's file, or ours with its schema gone */
    case SQLITE_SCHEMA:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
        c->unusable = true;
        e = CKPT_ERROR_DAMAGED;
        break;
    case SQLITE_NOMEM:
        log_error("checkpoint.sqlite", "file=%s doing=%s error=\"out of memory\"", c->path, doing);
        return ST_FATAL;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        e = CKPT_ERROR_BUSY;
        break;
    case SQLITE_FULL:
        e = CKPT_ERROR_FULL;
        break;
    case SQLITE_READONLY:
        e = CKPT_ERROR_READONLY;
        break;
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
        e = CKPT_ERROR_DENIED;
        break;
    }
    ckpt_error_count(&c->ckpt, e);
    if (!c->failing)
        log_warn("checkpoint.sqlite", "file=%s doing=%s code=%d error=\"%s\"", c->path, doing, rc,
                 c->db != NULL ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc));
    c->failing = true;
    return ST_RETRY;
}

static status run_sql(struct sqlite_ckpt *c, const char *sql)
{
    return st_sqlite(c, sqlite3_exec(c->db, sql, NULL, NULL, NULL), "setup");
}

static status number_get(struct sqlite_ckpt *c, const char *sql, int64_t *out)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db, sql, -1, &s, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    *out = rc == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_finalize(s);
    return st_sqlite(c, rc, "setup");
}

/* Runs a bound statement that gives no row. */
static status step_done(struct sqlite_ckpt *c, enum statement i, const char *doing)
{
    int rc = sqlite3_step(c->statement[i]);

    sqlite3_reset(c->statement[i]);
    return st_sqlite(c, rc, doing);
}

/* Runs a bound statement that gives at most one number; *found tells. */
static status step_number(struct sqlite_ckpt *c, enum statement i, const char *doing, int64_t *out, bool *found)
{
    int rc = sqlite3_step(c->statement[i]);

    *found = rc == SQLITE_ROW && sqlite3_column_type(c->statement[i], 0) == SQLITE_INTEGER;
    *out = *found ? sqlite3_column_int64(c->statement[i], 0) : 0;
    sqlite3_reset(c->statement[i]);
    return st_sqlite(c, rc, doing);
}

static sqlite3_stmt *bind_record(struct sqlite_ckpt *c, enum statement i, const struct ckpt_key *key)
{
    sqlite3_stmt *s = c->statement[i];

    sqlite3_bind_int64(s, 1, (int64_t)key->job);
    sqlite3_bind_int(s, 2, key->source);
    sqlite3_bind_int64(s, 3, key->offset);
    return s;
}

static sqlite3_stmt *bind_key(struct sqlite_ckpt *c, enum statement i, const struct ckpt_key *key)
{
    sqlite3_stmt *s = bind_record(c, i, key);

    sqlite3_bind_int(s, 4, key->choice);
    return s;
}

static void db_close(struct sqlite_ckpt *c)
{
    for (int i = 0; i < STATEMENTS_N; i++) {
        sqlite3_finalize(c->statement[i]);
        c->statement[i] = NULL;
    }
    sqlite3_close(c->db);
    c->db = NULL;
}

/* Gives a fresh file its tables; anything that is neither fresh nor ours makes c->unusable. */
static status schema_ensure(struct sqlite_ckpt *c)
{
    status st = ST_OK;
    int64_t application, version, tables;
    char sql[128];

    TRY(run_sql(c, "BEGIN IMMEDIATE"));
    TRY(number_get(c, "PRAGMA application_id", &application));
    TRY(number_get(c, "PRAGMA user_version", &version));
    TRY(number_get(c, "SELECT count(*) FROM sqlite_master", &tables));
    if (application == 0 && version == 0 && tables == 0) {
        TRY(run_sql(c, schema_sql));
        snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID, SCHEMA_VERSION);
        TRY(run_sql(c, sql));
    } else if (application != APPLICATION_ID || version != SCHEMA_VERSION) {
        c->unusable = true;
        st = ST_RETRY;
        goto out;
    }
    TRY(run_sql(c, "COMMIT"));
out:
    if (st != ST_OK)
        sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

static status db_open(struct sqlite_ckpt *c)
{
    status st = ST_OK;

    c->unusable = false;
    TRY(st_sqlite(c, sqlite3_open_v2(c->path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                     NULL), "open"));
    sqlite3_extended_result_codes(c->db, 1);
    sqlite3_busy_timeout(c->db, BUSY_TIMEOUT_MS);
    TRY(run_sql(c, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 67108864"));
    TRY(schema_ensure(c));
    for (int i = 0; i < STATEMENTS_N; i++)
        TRY(st_sqlite(c, sqlite3_prepare_v3(c->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &c->statement[i],
                                            NULL), "open"));
out:
    if (st != ST_OK)
        db_close(c);
    return st;
}

/* PATH to PATH.damaged-N, its log beside it, so that nothing of a file that may be somebody's is destroyed. */
static status file_move_aside(struct sqlite_ckpt *c)
{
    size_t room = strlen(c->path) + 32;
    char *from = mem_take(room), *to = mem_take(room);
    status st = ST_RETRY;
    int n = 1;

    db_close(c);
    for (; n <= ASIDE_MAX; n++) {
        snprintf(to, room, "%s.damaged-%d", c->path, n);
        if (access(to, F_OK) != 0)
            break;
    }
    if (rename(c->path, to) == 0 || errno == ENOENT) {
        st = ST_OK;
        log_warn("checkpoint.moved_aside", "file=%s to=%s reason=\"damaged or not ours\" effect=\"progress starts empty\"",
                 c->path, to);
        snprintf(from, room, "%s-wal", c->path);
        snprintf(to, room, "%s.damaged-%d-wal", c->path, n);
        if (rename(from, to) != 0 && errno != ENOENT)
            st = ST_RETRY;
        snprintf(from, room, "%s-shm", c->path);
        unlink(from);
    }
    free(from);
    free(to);
    return st;
}

/* A database that can be used, whatever it takes. */
static status db_ready(struct sqlite_ckpt *c)
{
    status st = ST_OK;

    if (c->db != NULL && !c->unusable)
        return ST_OK;
    if (c->db == NULL) {
        st = db_open(c);
        if (st == ST_OK || !c->unusable)
            return st;
    }
    st = file_move_aside(c);
    return st == ST_OK ? db_open(c) : st;
}

/* Ends a transaction: commits on ST_OK or ST_AGAIN (some items are written), else rolls back. */
static status transaction_end(struct sqlite_ckpt *c, status st)
{
    status ended;

    if (st == ST_OK || st == ST_AGAIN) {
        ended = step_done(c, COMMIT, "commit");
        if (ended == ST_OK) {
            if (c->failing)
                log_info("checkpoint.sqlite", "file=%s state=\"works again\"", c->path);
            c->failing = false;
            return st;
        }
        st = ended;
    }
    if (!sqlite3_get_autocommit(c->db)) {
        sqlite3_step(c->statement[ROLLBACK]);
        sqlite3_reset(c->statement[ROLLBACK]);
    }
    return st;
}

/* Refuses a token older than the stored one; a newer one is stored (the store may have lost it). */
static status fence_check(struct sqlite_ckpt *c, uint64_t job, int32_t source, uint64_t token)
{
    status st;
    int64_t stored;
    bool found;

    sqlite3_bind_int64(c->statement[FENCE_GET], 1, (int64_t)job);
    sqlite3_bind_int(c->statement[FENCE_GET], 2, source);
    st = step_number(c, FENCE_GET, "fence", &stored, &found);
    if (st != ST_OK || (found && stored == (int64_t)token))
        return st;
    if (found && stored > (int64_t)token)
        return ST_FENCED;
    sqlite3_bind_int64(c->statement[FENCE_SET], 1, (int64_t)job);
    sqlite3_bind_int(c->statement[FENCE_SET], 2, source);
    sqlite3_bind_int64(c->statement[FENCE_SET], 3, (int64_t)token);
    return step_done(c, FENCE_SET, "fence");
}

static status sqlite_acquire(struct ckpt *ckpt, uint64_t job, int32_t source, uint64_t *token)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;
    int64_t stored = 0, next = clock_wall_ns() / NS_PER_MS;
    status st = db_ready(c);
    bool found;

    if (st != ST_OK)
        return st;
    TRY(step_done(c, BEGIN, "begin"));
    sqlite3_bind_int64(c->statement[FENCE_GET], 1, (int64_t)job);
    sqlite3_bind_int(c->statement[FENCE_GET], 2, source);
    TRY(step_number(c, FENCE_GET, "fence", &stored, &found));
    if (next <= stored)
        next = stored + 1;
    TRY(fence_check(c, job, source, (uint64_t)next));
out:
    st = transaction_end(c, st);
    if (st == ST_OK)
        *token = (uint64_t)next;
    return st;
}

static status frame_add_row(struct sqlite_ckpt *c, const struct ckpt_key *key, int32_t n0, int32_t n1)
{
    sqlite3_stmt *s = bind_key(c, FRAME_ADD, key);
    status st;

    sqlite3_bind_int(s, 5, n0);
    sqlite3_bind_int(s, 6, n1);
    sqlite3_bind_blob64(s, 7, c->frame.data, c->frame.n, SQLITE_STATIC);
    st = step_done(c, FRAME_ADD, "save");
    sqlite3_clear_bindings(s);
    return st;
}

static status item_save(struct sqlite_ckpt *c, const struct ckpt_save_item *item)
{
    status st = ST_OK;
    int64_t end;
    bool found;

    if (item->saved_n > 0) {
        sqlite3_bind_int(bind_key(c, FRAME_BEFORE, &item->key), 5, item->saved_n);
        TRY(step_number(c, FRAME_BEFORE, "save", &end, &found));
        if (!found || end != item->saved_n)
            return ST_AGAIN;
    }
    sqlite3_bind_int(bind_key(c, FRAME_CUT, &item->key), 5, item->saved_n > 0 ? item->saved_n : -1);
    TRY(step_done(c, FRAME_CUT, "save"));
    if (item->saved_n == 0) {
        buf_reset(&c->frame);
        frame_add_identity(&c->frame, &item->identity);
        TRY(frame_add_row(c, &item->key, -1, 0));
    }
    if (item->tokens_n > item->saved_n) {
        buf_reset(&c->frame);
        frame_add_tokens(&c->frame, &item->identity, item->tokens, item->saved_n, item->tokens_n);
        TRY(frame_add_row(c, &item->key, item->saved_n, item->tokens_n));
    }
out:
    return st;
}

static status sqlite_save(struct ckpt *ckpt, uint64_t token, const struct ckpt_save_item *items, size_t items_n, uint8_t *ok)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;
    status st = db_ready(c), saved;
    bool missing = false;

    if (st != ST_OK)
        return st;
    c->over = false;
    TRY(step_done(c, BEGIN, "begin"));
    for (size_t i = 0; i < items_n; i++) {
        const struct ckpt_key *key = &items[i].key;

        if (i == 0 || key->job != items[i - 1].key.job || key->source != items[i - 1].key.source)
            TRY(fence_check(c, key->job, key->source, token));
        saved = item_save(c, &items[i]);
        if (saved != ST_OK && saved != ST_AGAIN)
            TRY(saved);
        ok[i] = saved == ST_OK;
        missing |= saved == ST_AGAIN;
    }
    if (missing)
        st = ST_AGAIN;
out:
    st = transaction_end(c, st);
    if (st != ST_OK && st != ST_AGAIN)
        memset(ok, 0, items_n);
    return st;
}

static status item_load(struct sqlite_ckpt *c, struct ckpt_load_item *item)
{
    struct buf bytes = BUF_EMPTY;
    sqlite3_stmt *s = bind_key(c, FRAME_READ, &item->key);
    status st = ST_OK;
    size_t end;
    int rc;

    while ((rc = sqlite3_step(s)) == SQLITE_ROW)
        buf_add(&bytes, sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0));
    sqlite3_reset(s);
    TRY(st_sqlite(c, rc, "load"));
    TRY(frames_read(bytes.data, bytes.n, &item->identity, item->arena, &item->progress, &end));
out:
    buf_fini(&bytes);
    return st == ST_AGAIN ? ST_OK : st;
}

/* A file that turns out damaged holds nothing: the next call moves it aside. */
static status read_end(const struct sqlite_ckpt *c, status st)
{
    return st == ST_RETRY && c->unusable ? ST_OK : st;
}

static status sqlite_load(struct ckpt *ckpt, struct ckpt_load_item *items, size_t items_n)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;
    status st = db_ready(c);

    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < items_n; i++)
        TRY(item_load(c, &items[i]));
out:
    return read_end(c, st);
}

static status sqlite_count(struct ckpt *ckpt, uint64_t job, int64_t *out)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;
    status st = db_ready(c);
    bool found;

    if (st != ST_OK)
        return st;
    sqlite3_bind_int64(c->statement[COUNT], 1, (int64_t)job);
    return step_number(c, COUNT, "count", out, &found);
}

static status fences_check(struct sqlite_ckpt *c, const struct ckpt_key *keys, size_t keys_n, uint64_t token)
{
    status st = ST_OK;

    for (size_t i = 0; i < keys_n && st == ST_OK; i++)
        if (i == 0 || keys[i].job != keys[i - 1].job || keys[i].source != keys[i - 1].source)
            st = fence_check(c, keys[i].job, keys[i].source, token);
    return st;
}

static status attempt_get(struct sqlite_ckpt *c, const struct ckpt_key *key, struct attempt *out)
{
    sqlite3_stmt *s = bind_record(c, ATTEMPT_READ, key);
    int rc = sqlite3_step(s);

    *out = (struct attempt){ 0 };
    if (rc == SQLITE_ROW) {
        out->stands.starts = sqlite3_column_int(s, 0);
        out->stands.solo = sqlite3_column_int(s, 1);
        out->stands.last_run = (uint64_t)sqlite3_column_int64(s, 2);
        out->last_solo = sqlite3_column_int(s, 3) != 0;
    }
    sqlite3_reset(s);
    return st_sqlite(c, rc, "attempts");
}

static status attempt_set(struct sqlite_ckpt *c, const struct ckpt_key *key, const struct attempt *t)
{
    sqlite3_stmt *s;

    if (attempt_nothing(t)) {
        bind_record(c, ATTEMPT_CUT, key);
        return step_done(c, ATTEMPT_CUT, "attempts");
    }
    s = bind_record(c, ATTEMPT_SET, key);
    sqlite3_bind_int(s, 4, t->stands.starts);
    sqlite3_bind_int(s, 5, t->stands.solo);
    sqlite3_bind_int64(s, 6, (int64_t)t->stands.last_run);
    sqlite3_bind_int(s, 7, t->last_solo);
    return step_done(c, ATTEMPT_SET, "attempts");
}

static status sqlite_begin(struct ckpt *ckpt, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo,
                           uint64_t run, struct ckpt_attempts *out)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;
    status st = db_ready(c);

    if (st != ST_OK)
        return st;
    c->over = false;
    TRY(step_done(c, BEGIN, "begin"));
    TRY(fences_check(c, keys, keys_n, token));
    for (size_t i = 0; i < keys_n; i++) {
        struct attempt t;

        TRY(attempt_get(c, &keys[i], &t));
        attempt_begin(&t, solo, run);
        TRY(attempt_set(c, &keys[i], &t));
        out[i] = t.stands;
    }
out:
    return transaction_end(c, st);
}

static status sqlite_hand_over(struct ckpt *ckpt, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;
    status st = db_ready(c);

    if (st != ST_OK)
        return st;
    TRY(step_done(c, BEGIN, "begin"));
    TRY(fences_check(c, keys, keys_n, token));
    for (size_t i = 0; i < keys_n; i++) {
        struct attempt t;

        TRY(attempt_get(c, &keys[i], &t));
        attempt_hand_over(&t, solo);
        TRY(attempt_set(c, &keys[i], &t));
    }
out:
    return transaction_end(c, st);
}

static status sqlite_attempts(struct ckpt *ckpt, const struct ckpt_key *keys, size_t keys_n, struct ckpt_attempts *out)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;
    status st = db_ready(c);

    memset(out, 0, keys_n * sizeof *out);
    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < keys_n; i++) {
        struct attempt t;

        TRY(attempt_get(c, &keys[i], &t));
        out[i] = t.stands;
    }
out:
    return read_end(c, st);
}

static status sqlite_forget(struct ckpt *ckpt, uint64_t token, const struct ckpt_key *keys, size_t keys_n)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;
    status st = db_ready(c);

    if (st != ST_OK)
        return st;
    TRY(step_done(c, BEGIN, "begin"));
    TRY(fences_check(c, keys, keys_n, token));
    for (size_t i = 0; i < keys_n; i++) {
        sqlite3_bind_int(bind_key(c, FRAME_CUT, &keys[i]), 5, -1);
        TRY(step_done(c, FRAME_CUT, "forget"));
        bind_record(c, ATTEMPT_CUT, &keys[i]);
        TRY(step_done(c, ATTEMPT_CUT, "forget"));
    }
out:
    return transaction_end(c, st);
}

static status sqlite_forget_job(struct ckpt *ckpt, uint64_t token, uint64_t job)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;
    status st = db_ready(c);
    int64_t newest, left = 1;
    bool found;

    if (st != ST_OK)
        return st;
    TRY(step_done(c, BEGIN, "begin"));
    sqlite3_bind_int64(c->statement[FENCE_MAX], 1, (int64_t)job);
    TRY(step_number(c, FENCE_MAX, "forget", &newest, &found));
    TRY(found && newest > (int64_t)token ? ST_FENCED : ST_OK);
    sqlite3_bind_int64(c->statement[JOB_CUT_FRAMES], 1, (int64_t)job);
    TRY(step_done(c, JOB_CUT_FRAMES, "forget"));
    sqlite3_bind_int64(c->statement[JOB_CUT_ATTEMPTS], 1, (int64_t)job);
    TRY(step_done(c, JOB_CUT_ATTEMPTS, "forget"));
    TRY(number_get(c, "SELECT EXISTS (SELECT 1 FROM frame) OR EXISTS (SELECT 1 FROM attempt)", &left));
out:
    st = transaction_end(c, st);
    c->over = st == ST_OK && left == 0;
    return st;
}

/* What a finished job leaves is of no use to anybody, and beside an output it only puzzles. */
static void files_remove(const char *path)
{
    static const char *const suffixes[] = { "", "-wal", "-shm" };
    struct buf name = BUF_EMPTY;

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        buf_reset(&name);
        buf_add_format(&name, "%s%s", path, suffixes[i]);
        unlink(buf_text(&name));
    }
    buf_fini(&name);
}

static void sqlite_close(struct ckpt *ckpt)
{
    struct sqlite_ckpt *c = (struct sqlite_ckpt *)ckpt;

    db_close(c);
    if (c->over)
        files_remove(c->path);
    buf_fini(&c->frame);
    free(c->path);
    free(c);
}

static const struct ckpt_ops sqlite_ops = {
    .close = sqlite_close, .acquire = sqlite_acquire, .save = sqlite_save, .load = sqlite_load,
    .count = sqlite_count, .begin = sqlite_begin, .hand_over = sqlite_hand_over, .attempts = sqlite_attempts,
    .forget = sqlite_forget, .forget_job = sqlite_forget_job,
};

status sqlite_ckpt_open(const char *at, struct ckpt **out, struct error *err)
{
    struct sqlite_ckpt *c;
    status st;

    if (at[0] == '\0' || at[0] == ':')
        return error_set(err, ST_REJECT, "the progress store \"sqlite:%s\" names no file; sqlite:PATH is needed", at);
    c = mem_take_zero(1, sizeof *c);
    c->ckpt.ops = &sqlite_ops;
    c->path = mem_copy_text(at);
    st = db_ready(c);
    if (st != ST_OK) {
        error_set(err, st, "cannot open the progress store %s: see the log line checkpoint.sqlite; check that its folder "
                  "exists, can be written and has space", at);
        sqlite_close(&c->ckpt);
        return st;
    }
    *out = &c->ckpt;
    return ST_OK;
}
