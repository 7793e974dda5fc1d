#include "tools/nightshift/judge.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "worker/pipeline/model_text.h"

struct judge {
    struct model_text text;
    struct intake *intake;                     /* NULL: no model */
    char *key;
};

status judge_open(const struct config *cfg, const char *model, const char *key, struct judge **out, struct error *err)
{
    struct judge *j = mem_take_zero(1, sizeof *j);
    status st = ST_OK;

    *out = NULL;
    j->key = key != NULL ? mem_copy_text(key) : NULL;
    if (model != NULL) {
        TRY(model_text_open(&j->text, cfg, model, NULL, err));
        j->intake = intake_open(&j->text.lines);
    }
    *out = j;
    j = NULL;
out:
    judge_close(j);
    return st;
}

void judge_close(struct judge *j)
{
    if (j == NULL)
        return;
    intake_close(j->intake);
    model_text_close(&j->text);
    free(j->key);
    free(j);
}

void judgement_fini(struct judgement *v)
{
    buf_fini(&v->text);
    buf_fini(&v->key);
    buf_fini(&v->custom_id);
}

static void invalid(struct judgement *out, const char *code, const char *text)
{
    if (!out->valid)
        return;
    out->valid = false;
    snprintf(out->code, sizeof out->code, "%s", code);
    buf_add_text(&out->text, text);
}

/* Walks "a.b.c". */
static const json_t *path_get(const json_t *root, const char *path)
{
    char name[128];

    while (root != NULL) {
        size_t n = strcspn(path, ".");

        if (n >= sizeof name)
            return NULL;
        memcpy(name, path, n);
        name[n] = '\0';
        root = json_object_get(root, name);
        if (path[n] == '\0')
            break;
        path += n + 1;
    }
    return root;
}

static void key_take(const struct judge *j, const json_t *root, struct judgement *out)
{
    const json_t *value = j->key != NULL ? path_get(root, j->key) : NULL;

    if (json_is_string(value))
        buf_add(&out->key, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        buf_add_format(&out->key, "%lld", (long long)json_integer_value(value));
    out->has_key = json_is_string(value) || json_is_integer(value);
}

static void custom_id_take(const json_t *root, struct judgement *out)
{
    const json_t *id = json_object_get(root, "custom_id");
    char *text = id != NULL ? json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    if (text != NULL)
        buf_add_text(&out->custom_id, text);
    free(text);
}

static void shape_check(const json_t *root, struct judgement *out)
{
    const json_t *id = json_object_get(root, "custom_id"), *body = json_object_get(root, "body");

    if (!json_is_object(root))
        invalid(out, "invalid_json", "the line is not a JSON object");
    else if (id != NULL && !json_is_null(id) && !json_is_string(id))
        invalid(out, "invalid_custom_id", "custom_id must be a string");
    else if (body != NULL && !json_is_object(body))
        invalid(out, "invalid_body", "body must be an object");
    else if (body == NULL && json_object_get(root, "messages") == NULL && json_object_get(root, "prompt") == NULL)
        invalid(out, "missing_body", "the line has neither a body, nor messages, nor a prompt");
}

static void full_check(struct judge *j, const struct record *rec, struct judgement *out)
{
    struct request *r = NULL;

    if (intake_read(j->intake, rec, &r) != ST_OK)
        return;
    if (r->verdict != VERDICT_NONE)
        invalid(out, r->error_code != NULL ? r->error_code : "invalid", r->error_text != NULL ? r->error_text : "");
    request_free_line(r);
}

/* Parses the line; NULL: it is none that has a key. */
static json_t *line_read(const struct judge *j, const struct record *rec, struct judgement *out)
{
    json_error_t fault;
    json_t *root = NULL;
    char where[JSON_ERROR_TEXT_LENGTH + 64];

    out->valid = true;
    out->has_key = false;
    out->code[0] = '\0';
    buf_reset(&out->text);
    buf_reset(&out->key);
    buf_reset(&out->custom_id);
    if (rec->oversize)
        invalid(out, "line_too_long", "the line is longer than the setting line_mb_max allows");
    else if (utf8_valid(rec->value, rec->value_n) < rec->value_n)
        invalid(out, "invalid_utf8", "the line is not UTF-8");
    else if ((root = json_loadb(rec->value, rec->value_n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault)) == NULL) {
        snprintf(where, sizeof where, "%s (byte %d)", fault.text, fault.position);
        invalid(out, "invalid_json", where);
    }
    if (root != NULL) {
        custom_id_take(root, out);
        key_take(j, root, out);
    }
    return root;
}

void judge_key(struct judge *j, const struct record *rec, struct judgement *out)
{
    json_decref(line_read(j, rec, out));
}

void judge_line(struct judge *j, const struct record *rec, struct judgement *out)
{
    json_t *root = line_read(j, rec, out);

    if (root != NULL)
        shape_check(root, out);
    json_decref(root);
    if (out->valid && j->intake != NULL)
        full_check(j, rec, out);
}
