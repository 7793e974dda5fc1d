#include "tests/support/small_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

static void alphabet_put(struct buf *out, unsigned char byte)
{
    char text[4];
    uint32_t code = 0x100;

    /* The place of the byte among those that do not stand for themselves. */
    for (int b = 0; b < byte; b++)
        code += !((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad));
    if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad))
        code = byte;
    buf_add(out, text, (size_t)utf8_put(text, code));
}

static void alphabet_add(struct buf *out, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        alphabet_put(out, (unsigned char)bytes[i]);
}

static int32_t text_find(const struct small_vocab *v, const struct buf *text)
{
    for (int32_t id = 0; id < v->spec.vocab_n; id++) {
        if (v->tokens_bytes[id] == text->n && memcmp(v->tokens[id], text->data, text->n) == 0)
            return id;
    }
    return -1;
}

int32_t small_vocab_add(struct small_vocab *v, const char *bytes, size_t n, enum token_kind kind)
{
    struct buf text = BUF_EMPTY;
    int32_t id;

    if (kind == TOKEN_NORMAL)
        alphabet_add(&text, bytes, n);
    else
        buf_add(&text, bytes, n);
    id = text_find(v, &text);
    if (kind == TOKEN_NORMAL && id >= 0) {
        buf_fini(&text);
        return id;
    }
    id = v->spec.vocab_n++;
    ASSERT(id < SMALL_VOCAB_MAX);
    v->kinds[id] = kind;
    v->tokens_bytes[id] = text.n;
    v->tokens[id] = buf_steal(&text);
    return id;
}

int32_t small_vocab_add_text(struct small_vocab *v, const char *text, enum token_kind kind)
{
    return small_vocab_add(v, text, strlen(text), kind);
}

int32_t small_vocab_merge(struct small_vocab *v, const char *left, const char *right)
{
    struct buf merge = BUF_EMPTY, made = BUF_EMPTY;
    int32_t i = v->spec.merges_n++, id;

    ASSERT(i < SMALL_VOCAB_MAX);
    alphabet_add(&merge, left, strlen(left));
    buf_add_byte(&merge, ' ');
    alphabet_add(&merge, right, strlen(right));
    v->merges_bytes[i] = merge.n;
    v->merges[i] = buf_steal(&merge);
    buf_add_text(&made, left);
    buf_add_text(&made, right);
    id = small_vocab_add(v, made.data, made.n, TOKEN_NORMAL);
    buf_fini(&made);
    return id;
}

void small_vocab_init(struct small_vocab *v)
{
    memset(v, 0, sizeof(*v));
    v->spec = (struct tokenizer_spec){
        .model = "gpt2", .pre = "gpt2", .tokens = (const char *const *)v->tokens, .tokens_bytes = v->tokens_bytes,
        .kinds = v->kinds, .merges = (const char *const *)v->merges, .merges_bytes = v->merges_bytes,
        .bos = -1, .eos = -1, .unknown = -1
    };
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;

        small_vocab_add(v, &byte, 1, TOKEN_NORMAL);
    }
}

void small_vocab_fini(struct small_vocab *v)
{
    for (int32_t i = 0; i < v->spec.vocab_n; i++)
        free(v->tokens[i]);
    for (int32_t i = 0; i < v->spec.merges_n; i++)
        free(v->merges[i]);
}

struct tokenizer *small_vocab_open(struct small_vocab *v, const char *pre)
{
    struct tokenizer *t;
    struct error err;

    v->spec.pre = pre;
    if (tokenizer_open(&v->spec, &t, &err) != ST_OK) {
        fprintf(stderr, "small_vocab_open: %s\n", err.text);
        abort();
    }
    return t;
}
