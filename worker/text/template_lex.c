/* The lexer: jinja2/lexer.py with trim_blocks and lstrip_blocks on. Source text that stands between tags becomes DATA,
 * with the white space that tags take away already gone; comments and raw blocks are dealt with here. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "worker/text/template_internal.h"

/* "\r\n" and "\r" become "\n", and one newline at the end goes (keep_trailing_newline=False). */
void lex_open(struct lexer *lx, struct arena *a, const char *source, size_t n, struct error *err)
{
    char *text = arena_take(a, n + 1);
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        text[at++] = source[i] == '\r' ? '\n' : source[i];
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n')
            i++;
    }
    if (at > 0 && text[at - 1] == '\n')
        at--;
    text[at] = '\0';
    *lx = (struct lexer){ .arena = a, .err = err, .source = text, .n = at, .line = 1, .line_starting = true };
}

static bool at_word(const struct lexer *lx, size_t at, const char *word)
{
    size_t n = strlen(word);

    return lx->n - at >= n && memcmp(lx->source + at, word, n) == 0;
}

/* Bytes of the white space character at `at`; 0: none there. */
static size_t space_at(const struct lexer *lx, size_t at)
{
    uint32_t code;
    int n;

    if (at >= lx->n)
        return 0;
    n = utf8_char(lx->source + at, lx->n - at, &code);
    return n > 0 && char_space(code) ? (size_t)n : 0;
}

static size_t skip_space(const struct lexer *lx, size_t at)
{
    size_t n;

    while ((n = space_at(lx, at)) > 0)
        at += n;
    return at;
}

/* Where text [from, to) ends without the white space at its end. */
static size_t strip_end(const struct lexer *lx, size_t from, size_t to)
{
    while (to > from) {
        size_t start = to - 1;

        while (start > from && ((unsigned char)lx->source[start] & 0xc0) == 0x80)
            start--;
        if (space_at(lx, start) != to - start)
            break;
        to = start;
    }
    return to;
}

/* Moves to `to`, counting lines; sets line_starting from the last byte passed. */
static void move_to(struct lexer *lx, size_t to)
{
    for (size_t i = lx->at; i < to; i++)
        lx->line += lx->source[i] == '\n';
    if (to > lx->at)
        lx->line_starting = lx->source[to - 1] == '\n';
    lx->at = to;
}

/* The end of data [at, tag) once the tag's sign has had its way: '-' takes all white space, lstrip_blocks the white
 * space between the start of the line and the tag. */
static size_t data_end(const struct lexer *lx, size_t tag, char sign, bool is_print)
{
    size_t line = tag;

    if (sign == '-')
        return strip_end(lx, lx->at, tag);
    if (sign == '+' || is_print)
        return tag;
    while (line > lx->at && lx->source[line - 1] != '\n')
        line--;
    if ((line > lx->at || lx->line_starting) && strip_end(lx, line, tag) == line)
        return line;
    return tag;
}

static char sign_at(const struct lexer *lx, size_t at)
{
    return at < lx->n && (lx->source[at] == '-' || lx->source[at] == '+') ? lx->source[at] : '\0';
}

/* Matches the end of a tag at `at`: close ("%}" or "#}") with an optional sign. Returns where the text goes on (after a
 * newline that trim_blocks takes, after all white space for '-'), 0: no match. */
static size_t close_at(const struct lexer *lx, size_t at, const char *close)
{
    char sign = sign_at(lx, at);
    size_t end = at + (sign != '\0') + 2;

    if (at >= lx->n || !at_word(lx, at + (sign != '\0'), close))
        return 0;
    if (sign == '-')
        return skip_space(lx, end);
    if (sign == '\0' && end < lx->n && lx->source[end] == '\n')
        return end + 1;
    return end;
}

/* "{%- raw -%}" at `at`: where its text begins, 0: it is none. */
static size_t raw_begin(const struct lexer *lx, size_t at)
{
    size_t p = at + 2;

    p += sign_at(lx, p) != '\0';
    p = skip_space(lx, p);
    if (!at_word(lx, p, "raw"))
        return 0;
    p = skip_space(lx, p + 3);
    if (at_word(lx, p, "-%}"))
        return skip_space(lx, p + 3);
    return at_word(lx, p, "%}") ? p + 2 : 0;
}

static void data_set(struct lexed *out, const struct lexer *lx, size_t from, size_t to)
{
    out->lexeme = LEX_DATA;
    out->line = lx->line;
    out->text = lx->source + from;
    out->n = to - from;
}

/* Inside a raw block: its text is *out; moves behind "{% endraw %}". A raw block or comment that begins where the
 * source ends is no error to jinja2. */
static status lex_raw(struct lexer *lx, struct lexed *out)
{
    if (lx->at == lx->n)
        return ST_AGAIN;
    for (size_t tag = lx->at; tag + 2 <= lx->n; tag++) {
        size_t p, end;
        char sign;

        if (!at_word(lx, tag, "{%"))
            continue;
        sign = sign_at(lx, tag + 2);
        p = skip_space(lx, tag + 2 + (sign != '\0'));
        if (!at_word(lx, p, "endraw"))
            continue;
        p = skip_space(lx, p + 6);
        if ((end = close_at(lx, p, "%}")) == 0)
            continue;
        data_set(out, lx, lx->at, data_end(lx, tag, sign, false));
        move_to(lx, end);
        return ST_OK;
    }
    return parse_fail(lx->err, lx->line, "missing end of raw block");
}

static status skip_comment(struct lexer *lx)
{
    int32_t line = lx->line;

    if (lx->at == lx->n)
        return ST_OK;
    for (size_t at = lx->at; at < lx->n; at++) {
        size_t end = close_at(lx, at, "#}");

        if (end != 0) {
            move_to(lx, end);
            return ST_OK;
        }
    }
    return parse_fail(lx->err, line, "missing end of comment");
}

/* The next tag from `from` on; n: none. */
static size_t find_tag(const struct lexer *lx, size_t from)
{
    while (from + 2 <= lx->n) {
        const char *p = memchr(lx->source + from, '{', lx->n - from);

        if (p == NULL)
            break;
        from = (size_t)(p - lx->source);
        if (from + 1 < lx->n && (p[1] == '%' || p[1] == '{' || p[1] == '#'))
            return from;
        from++;
    }
    return lx->n;
}

/* Text up to the next tag, or the begin of the tag itself. ST_AGAIN: nothing to hand out, go on. */
static status lex_data(struct lexer *lx, struct lexed *out)
{
    size_t tag = find_tag(lx, lx->at), raw = 0, end;
    char kind, sign;

    if (tag >= lx->n) {
        if (lx->at >= lx->n) {
            *out = (struct lexed){ .lexeme = LEX_EOF, .line = lx->line };
            return ST_OK;
        }
        data_set(out, lx, lx->at, lx->n);
        move_to(lx, lx->n);
        return ST_OK;
    }
    kind = lx->source[tag + 1];
    if (kind == '%')
        raw = raw_begin(lx, tag);
    sign = sign_at(lx, tag + 2);
    end = data_end(lx, tag, sign, kind == '{');
    if (end > lx->at) {
        data_set(out, lx, lx->at, end);
        move_to(lx, tag);
        lx->line_starting = false;      /* what was left of the line has been handed out or stripped */
        return ST_OK;
    }
    move_to(lx, tag);
    if (raw != 0) {
        move_to(lx, raw);
        return lex_raw(lx, out);
    }
    move_to(lx, tag + 2 + (sign != '\0'));
    if (kind == '#')
        return skip_comment(lx) == ST_OK ? ST_AGAIN : ST_REJECT;
    lx->state = kind == '%' ? LEXING_BLOCK : LEXING_PRINT;
    lx->balance_n = 0;
    *out = (struct lexed){ .lexeme = kind == '%' ? LEX_BLOCK_BEGIN : LEX_PRINT_BEGIN, .line = lx->line };
    return ST_OK;
}

/* Numbers. */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int digit_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* [0-9](_?[0-9])* from `at`: where it ends; at: none there. */
static size_t digits_end(const struct lexer *lx, size_t at)
{
    size_t end = at;

    while (end < lx->n && (is_digit(lx->source[end])
                           || (end > at && lx->source[end] == '_' && end + 1 < lx->n && is_digit(lx->source[end + 1]))))
        end++;
    return end;
}

static size_t float_end(const struct lexer *lx, size_t at)
{
    size_t whole = digits_end(lx, at), end = whole, e;

    if (at > 0 && lx->source[at - 1] == '.')
        return at;
    if (whole < lx->n && lx->source[whole] == '.' && digits_end(lx, whole + 1) > whole + 1)
        end = digits_end(lx, whole + 1);
    if (end < lx->n && (lx->source[end] | 0x20) == 'e') {
        e = end + 1;
        if (e < lx->n && (lx->source[e] == '+' || lx->source[e] == '-'))
            e++;
        if (digits_end(lx, e) > e)
            return digits_end(lx, e);
    }
    return end > whole ? end : at;
}

static status lex_float(struct lexer *lx, size_t end, struct lexed *out)
{
    char text[400];
    size_t n = 0;

    for (size_t i = lx->at; i < end; i++)
        if (lx->source[i] != '_') {
            if (n + 1 >= sizeof text)
                return parse_fail(lx->err, lx->line, "a number of more than %zu digits", sizeof text);
            text[n++] = lx->source[i];
        }
    text[n] = '\0';
    out->lexeme = LEX_FLOAT;
    out->real = strtod(text, NULL);
    move_to(lx, end);
    return ST_OK;
}

static status lex_integer(struct lexer *lx, struct lexed *out)
{
    char second = lx->at + 1 < lx->n ? (char)(lx->source[lx->at + 1] | 0x20) : '\0';
    int base = lx->source[lx->at] != '0' ? 10 : second == 'x' ? 16 : second == 'o' ? 8 : second == 'b' ? 2 : 10;
    size_t at = lx->at + (base != 10 ? 2 : 0), end = at;
    bool zeros = base == 10 && lx->source[lx->at] == '0';       /* 0, 00 and 0_0; what follows is another token */
    int64_t value = 0;

    while (end < lx->n) {
        size_t digit = end + (lx->source[end] == '_' && (base != 10 || end > at));

        if (digit >= lx->n || digit_value(lx->source[digit]) >= (zeros ? 1 : base))
            break;
        if (__builtin_mul_overflow(value, (int64_t)base, &value)
            || __builtin_add_overflow(value, (int64_t)digit_value(lx->source[digit]), &value))
            return parse_fail(lx->err, lx->line, "an integer of more than 64 bits");
        end = digit + 1;
    }
    if (end == at)      /* "0x" and no digit: the 0 alone */
        end = lx->at + 1;
    out->lexeme = LEX_INTEGER;
    out->integer = value;
    move_to(lx, end);
    return ST_OK;
}

/* Strings. */

static size_t put_code(char *to, uint32_t code)
{
    return (size_t)utf8_put(to, code);
}

/* \xHH, \uHHHH, \UHHHHHHHH: `digits` hex digits at p. */
static bool hex_code(const char *p, const char *end, int digits, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < digits; i++, p++) {
        if (p >= end || digit_value(*p) >= 16)
            return false;
        *code = *code << 4 | (uint32_t)digit_value(*p);
    }
    return *code <= 0x10ffff && (*code < 0xd800 || *code > 0xdfff);
}

static size_t put_text(char *to, const char *text)
{
    size_t n = strlen(text);

    memcpy(to, text, n);
    return n;
}

/* A backslash before a character outside ASCII: Python escapes the text to ASCII first, so that the backslash eats the
 * escape's own one and "\é" becomes "\xe9" in letters. */
static size_t escape_letters(char *to, uint32_t code)
{
    static const char hex[] = "0123456789abcdef";
    int digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    size_t n = put_text(to, digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U");

    while (digits-- > 0)
        to[n++] = hex[code >> (4 * digits) & 15];
    return n;
}

/* One escape: p is behind the backslash. Writes to `to` (at most 10 bytes), returns how many; *used: source bytes.
 * -1: malformed. */
static int unescape_one(const char *p, const char *end, char *to, size_t *used)
{
    static const char from[] = "\\'\"abfnrtv", into[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = memchr(from, *p, sizeof from - 1);
    uint32_t code = 0;

    *used = 1;
    if (simple != NULL) {
        *to = into[simple - from];
        return 1;
    }
    if (*p == '\n')
        return 0;
    if (*p >= '0' && *p <= '7') {
        for (*used = 0; *used < 3 && p + *used < end && p[*used] >= '0' && p[*used] <= '7'; ++*used)
            code = code << 3 | (uint32_t)(p[*used] - '0');
        return (int)put_code(to, code);
    }
    if (*p == 'x' || *p == 'u' || *p == 'U') {
        int digits = *p == 'x' ? 2 : *p == 'u' ? 4 : 8;

        *used = 1 + (size_t)digits;
        return hex_code(p + 1, end, digits, &code) ? (int)put_code(to, code) : -1;
    }
    if (*p == 'N')
        return -1;
    if ((unsigned char)*p >= 0x80) {
        *used = (size_t)utf8_char(p, (size_t)(end - p), &code);
        return (int)escape_letters(to, code);
    }
    to[0] = '\\';
    to[1] = *p;
    return 2;
}

static status lex_string(struct lexer *lx, struct lexed *out)
{
    const char *p = lx->source + lx->at + 1, *end = lx->source + lx->n, *close = p;
    char *to, quote = p[-1];
    size_t n = 0;

    while (close < end && *close != quote)
        close += 1 + (*close == '\\');
    if (close >= end)
        return parse_fail(lx->err, lx->line, "a string without its closing %c", quote);
    /* Longest growth: backslash and a 2-byte character (3 bytes) become 4, 3-byte (4) 6, 4-byte (5) 10. */
    to = arena_take(lx->arena, (size_t)(close - p) * 2 + 1);
    while (p < close) {
        size_t used;
        int put;

        if (*p != '\\') {
            to[n++] = *p++;
            continue;
        }
        put = unescape_one(p + 1, close, to + n, &used);
        if (put < 0)
            return parse_fail(lx->err, lx->line, "a \\%c escape that is malformed or not supported", p[1]);
        n += (size_t)put;
        p += 1 + used;
    }
    out->lexeme = LEX_STRING;
    out->text = to;
    out->n = n;
    move_to(lx, (size_t)(close - lx->source) + 1);
    return ST_OK;
}

static status lex_name(struct lexer *lx, struct lexed *out)
{
    size_t at = lx->at;

    while (at < lx->n) {
        uint32_t code;
        int n = utf8_char(lx->source + at, lx->n - at, &code);

        if (n <= 0 || !(at == lx->at ? char_word_start(code) : char_word(code)))
            break;
        at += (size_t)n;
    }
    if (at == lx->at)
        return ST_AGAIN;
    if (at - lx->at > NAME_BYTES_MAX)
        return parse_fail(lx->err, lx->line, "a name of more than %d bytes", NAME_BYTES_MAX);
    out->lexeme = LEX_NAME;
    out->text = lx->source + lx->at;
    out->n = at - lx->at;
    move_to(lx, at);
    return ST_OK;
}

static const struct { const char *text; enum lexeme lexeme; } operators[] = {
    { "//", LEX_FLOORDIV }, { "**", LEX_POW }, { "==", LEX_EQ }, { "!=", LEX_NE }, { ">=", LEX_GE }, { "<=", LEX_LE },
    { "+", LEX_ADD }, { "-", LEX_SUB }, { "/", LEX_DIV }, { "*", LEX_MUL }, { "%", LEX_MOD }, { "~", LEX_TILDE },
    { "[", LEX_LBRACKET }, { "]", LEX_RBRACKET }, { "(", LEX_LPAREN }, { ")", LEX_RPAREN }, { "{", LEX_LBRACE },
    { "}", LEX_RBRACE }, { ">", LEX_GT }, { "<", LEX_LT }, { "=", LEX_ASSIGN }, { ".", LEX_DOT }, { ":", LEX_COLON },
    { "|", LEX_PIPE }, { ",", LEX_COMMA }, { ";", LEX_SEMICOLON },
};

const char *lexeme_text(enum lexeme lexeme)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (operators[i].lexeme == lexeme)
            return operators[i].text;
    switch (lexeme) {
    case LEX_EOF: return "end of template";
    case LEX_DATA: return "text";
    case LEX_BLOCK_BEGIN: return "{%";
    case LEX_BLOCK_END: return "%}";
    case LEX_PRINT_BEGIN: return "{{";
    case LEX_PRINT_END: return "}}";
    case LEX_NAME: return "a name";
    case LEX_STRING: return "a string";
    default: return "a number";
    }
}

static status bracket(struct lexer *lx, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (lx->balance_n == sizeof lx->balance)
            return parse_fail(lx->err, lx->line, "brackets nested deeper than %d", BRACKETS_MAX);
        lx->balance[lx->balance_n++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        return ST_OK;
    }
    if (lx->balance_n == 0)
        return parse_fail(lx->err, lx->line, "unexpected '%c'", c);
    if (lx->balance[--lx->balance_n] != c)
        return parse_fail(lx->err, lx->line, "unexpected '%c', expected '%c'", c, lx->balance[lx->balance_n]);
    return ST_OK;
}

static status lex_operator(struct lexer *lx, struct lexed *out)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (!at_word(lx, lx->at, operators[i].text))
            continue;
        out->lexeme = operators[i].lexeme;
        if (strchr("()[]{}", operators[i].text[0]) != NULL && bracket(lx, operators[i].text[0]) != ST_OK)
            return ST_REJECT;
        move_to(lx, lx->at + strlen(operators[i].text));
        return ST_OK;
    }
    return parse_fail(lx->err, lx->line, "unexpected character");
}

/* The end of the tag, where no bracket is open; ST_AGAIN: not here. */
static status lex_tag_end(struct lexer *lx, struct lexed *out)
{
    size_t end;

    if (lx->balance_n > 0)
        return ST_AGAIN;
    if (lx->state == LEXING_BLOCK) {
        if ((end = close_at(lx, lx->at, "%}")) == 0)
            return ST_AGAIN;
        out->lexeme = LEX_BLOCK_END;
    } else {
        if (at_word(lx, lx->at, "-}}"))
            end = skip_space(lx, lx->at + 3);
        else if (at_word(lx, lx->at, "}}"))
            end = lx->at + 2;
        else
            return ST_AGAIN;
        out->lexeme = LEX_PRINT_END;
    }
    move_to(lx, end);
    lx->state = LEXING_DATA;
    return ST_OK;
}

static status lex_inside(struct lexer *lx, struct lexed *out)
{
    status st;
    size_t end;
    char c;

    /* jinja2 tries the end of the tag first, then white space: "{{ a -}}" ends even where '-' could be an operator. */
    if ((st = lex_tag_end(lx, out)) != ST_AGAIN)
        return st;
    if (space_at(lx, lx->at) > 0) {
        move_to(lx, skip_space(lx, lx->at));
        return ST_AGAIN;
    }
    out->line = lx->line;
    if (lx->at >= lx->n) {
        out->lexeme = LEX_EOF;
        return ST_OK;
    }
    c = lx->source[lx->at];
    if (is_digit(c)) {
        end = float_end(lx, lx->at);
        return end > lx->at ? lex_float(lx, end, out) : lex_integer(lx, out);
    }
    if ((st = lex_name(lx, out)) != ST_AGAIN)
        return st;
    if (c == '"' || c == '\'')
        return lex_string(lx, out);
    return lex_operator(lx, out);
}

status lex_next(struct lexer *lx, struct lexed *out)
{
    status st;

    do {
        *out = (struct lexed){ .line = lx->line };
        st = lx->state == LEXING_DATA ? lex_data(lx, out) : lex_inside(lx, out);
    } while (st == ST_AGAIN);
    return st;
}
