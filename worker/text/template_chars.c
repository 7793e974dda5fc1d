/* Characters as Python's str sees them: case mappings in full (Unicode SpecialCasing), white space, what repr escapes.
 * Simple mappings and categories come from utf8proc. */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "worker/text/template_internal.h"

/* Characters whose upper or title case is more than one (SpecialCasing.txt, unconditional), ascending. */
static const struct special { uint32_t code, upper[3], title[3]; } special_case[] = {
    { 0xdf, { 0x53, 0x53 }, { 0x53, 0x73 } }, { 0x149, { 0x2bc, 0x4e }, { 0x2bc, 0x4e } },
    { 0x1f0, { 0x4a, 0x30c }, { 0x4a, 0x30c } }, { 0x390, { 0x399, 0x308, 0x301 }, { 0x399, 0x308, 0x301 } },
    { 0x3b0, { 0x3a5, 0x308, 0x301 }, { 0x3a5, 0x308, 0x301 } }, { 0x587, { 0x535, 0x552 }, { 0x535, 0x582 } },
    { 0x1e96, { 0x48, 0x331 }, { 0x48, 0x331 } }, { 0x1e97, { 0x54, 0x308 }, { 0x54, 0x308 } },
    { 0x1e98, { 0x57, 0x30a }, { 0x57, 0x30a } }, { 0x1e99, { 0x59, 0x30a }, { 0x59, 0x30a } },
    { 0x1e9a, { 0x41, 0x2be }, { 0x41, 0x2be } }, { 0x1f50, { 0x3a5, 0x313 }, { 0x3a5, 0x313 } },
    { 0x1f52, { 0x3a5, 0x313, 0x300 }, { 0x3a5, 0x313, 0x300 } },
    { 0x1f54, { 0x3a5, 0x313, 0x301 }, { 0x3a5, 0x313, 0x301 } },
    { 0x1f56, { 0x3a5, 0x313, 0x342 }, { 0x3a5, 0x313, 0x342 } }, { 0x1f80, { 0x1f08, 0x399 }, { 0x1f88 } },
    { 0x1f81, { 0x1f09, 0x399 }, { 0x1f89 } }, { 0x1f82, { 0x1f0a, 0x399 }, { 0x1f8a } },
    { 0x1f83, { 0x1f0b, 0x399 }, { 0x1f8b } }, { 0x1f84, { 0x1f0c, 0x399 }, { 0x1f8c } },
    { 0x1f85, { 0x1f0d, 0x399 }, { 0x1f8d } }, { 0x1f86, { 0x1f0e, 0x399 }, { 0x1f8e } },
    { 0x1f87, { 0x1f0f, 0x399 }, { 0x1f8f } }, { 0x1f88, { 0x1f08, 0x399 }, { 0x1f88 } },
    { 0x1f89, { 0x1f09, 0x399 }, { 0x1f89 } }, { 0x1f8a, { 0x1f0a, 0x399 }, { 0x1f8a } },
    { 0x1f8b, { 0x1f0b, 0x399 }, { 0x1f8b } }, { 0x1f8c, { 0x1f0c, 0x399 }, { 0x1f8c } },
    { 0x1f8d, { 0x1f0d, 0x399 }, { 0x1f8d } }, { 0x1f8e, { 0x1f0e, 0x399 }, { 0x1f8e } },
    { 0x1f8f, { 0x1f0f, 0x399 }, { 0x1f8f } }, { 0x1f90, { 0x1f28, 0x399 }, { 0x1f98 } },
    { 0x1f91, { 0x1f29, 0x399 }, { 0x1f99 } }, { 0x1f92, { 0x1f2a, 0x399 }, { 0x1f9a } },
    { 0x1f93, { 0x1f2b, 0x399 }, { 0x1f9b } }, { 0x1f94, { 0x1f2c, 0x399 }, { 0x1f9c } },
    { 0x1f95, { 0x1f2d, 0x399 }, { 0x1f9d } }, { 0x1f96, { 0x1f2e, 0x399 }, { 0x1f9e } },
    { 0x1f97, { 0x1f2f, 0x399 }, { 0x1f9f } }, { 0x1f98, { 0x1f28, 0x399 }, { 0x1f98 } },
    { 0x1f99, { 0x1f29, 0x399 }, { 0x1f99 } }, { 0x1f9a, { 0x1f2a, 0x399 }, { 0x1f9a } },
    { 0x1f9b, { 0x1f2b, 0x399 }, { 0x1f9b } }, { 0x1f9c, { 0x1f2c, 0x399 }, { 0x1f9c } },
    { 0x1f9d, { 0x1f2d, 0x399 }, { 0x1f9d } }, { 0x1f9e, { 0x1f2e, 0x399 }, { 0x1f9e } },
    { 0x1f9f, { 0x1f2f, 0x399 }, { 0x1f9f } }, { 0x1fa0, { 0x1f68, 0x399 }, { 0x1fa8 } },
    { 0x1fa1, { 0x1f69, 0x399 }, { 0x1fa9 } }, { 0x1fa2, { 0x1f6a, 0x399 }, { 0x1faa } },
    { 0x1fa3, { 0x1f6b, 0x399 }, { 0x1fab } }, { 0x1fa4, { 0x1f6c, 0x399 }, { 0x1fac } },
    { 0x1fa5, { 0x1f6d, 0x399 }, { 0x1fad } }, { 0x1fa6, { 0x1f6e, 0x399 }, { 0x1fae } },
    { 0x1fa7, { 0x1f6f, 0x399 }, { 0x1faf } }, { 0x1fa8, { 0x1f68, 0x399 }, { 0x1fa8 } },
    { 0x1fa9, { 0x1f69, 0x399 }, { 0x1fa9 } }, { 0x1faa, { 0x1f6a, 0x399 }, { 0x1faa } },
    { 0x1fab, { 0x1f6b, 0x399 }, { 0x1fab } }, { 0x1fac, { 0x1f6c, 0x399 }, { 0x1fac } },
    { 0x1fad, { 0x1f6d, 0x399 }, { 0x1fad } }, { 0x1fae, { 0x1f6e, 0x399 }, { 0x1fae } },
    { 0x1faf, { 0x1f6f, 0x399 }, { 0x1faf } }, { 0x1fb2, { 0x1fba, 0x399 }, { 0x1fba, 0x345 } },
    { 0x1fb3, { 0x391, 0x399 }, { 0x1fbc } }, { 0x1fb4, { 0x386, 0x399 }, { 0x386, 0x345 } },
    { 0x1fb6, { 0x391, 0x342 }, { 0x391, 0x342 } }, { 0x1fb7, { 0x391, 0x342, 0x399 }, { 0x391, 0x342, 0x345 } },
    { 0x1fbc, { 0x391, 0x399 }, { 0x1fbc } }, { 0x1fc2, { 0x1fca, 0x399 }, { 0x1fca, 0x345 } },
    { 0x1fc3, { 0x397, 0x399 }, { 0x1fcc } }, { 0x1fc4, { 0x389, 0x399 }, { 0x389, 0x345 } },
    { 0x1fc6, { 0x397, 0x342 }, { 0x397, 0x342 } }, { 0x1fc7, { 0x397, 0x342, 0x399 }, { 0x397, 0x342, 0x345 } },
    { 0x1fcc, { 0x397, 0x399 }, { 0x1fcc } }, { 0x1fd2, { 0x399, 0x308, 0x300 }, { 0x399, 0x308, 0x300 } },
    { 0x1fd3, { 0x399, 0x308, 0x301 }, { 0x399, 0x308, 0x301 } }, { 0x1fd6, { 0x399, 0x342 }, { 0x399, 0x342 } },
    { 0x1fd7, { 0x399, 0x308, 0x342 }, { 0x399, 0x308, 0x342 } },
    { 0x1fe2, { 0x3a5, 0x308, 0x300 }, { 0x3a5, 0x308, 0x300 } },
    { 0x1fe3, { 0x3a5, 0x308, 0x301 }, { 0x3a5, 0x308, 0x301 } }, { 0x1fe4, { 0x3a1, 0x313 }, { 0x3a1, 0x313 } },
    { 0x1fe6, { 0x3a5, 0x342 }, { 0x3a5, 0x342 } }, { 0x1fe7, { 0x3a5, 0x308, 0x342 }, { 0x3a5, 0x308, 0x342 } },
    { 0x1ff2, { 0x1ffa, 0x399 }, { 0x1ffa, 0x345 } }, { 0x1ff3, { 0x3a9, 0x399 }, { 0x1ffc } },
    { 0x1ff4, { 0x38f, 0x399 }, { 0x38f, 0x345 } }, { 0x1ff6, { 0x3a9, 0x342 }, { 0x3a9, 0x342 } },
    { 0x1ff7, { 0x3a9, 0x342, 0x399 }, { 0x3a9, 0x342, 0x345 } }, { 0x1ffc, { 0x3a9, 0x399 }, { 0x1ffc } },
    { 0xfb00, { 0x46, 0x46 }, { 0x46, 0x66 } }, { 0xfb01, { 0x46, 0x49 }, { 0x46, 0x69 } },
    { 0xfb02, { 0x46, 0x4c }, { 0x46, 0x6c } }, { 0xfb03, { 0x46, 0x46, 0x49 }, { 0x46, 0x66, 0x69 } },
    { 0xfb04, { 0x46, 0x46, 0x4c }, { 0x46, 0x66, 0x6c } }, { 0xfb05, { 0x53, 0x54 }, { 0x53, 0x74 } },
    { 0xfb06, { 0x53, 0x54 }, { 0x53, 0x74 } }, { 0xfb13, { 0x544, 0x546 }, { 0x544, 0x576 } },
    { 0xfb14, { 0x544, 0x535 }, { 0x544, 0x565 } }, { 0xfb15, { 0x544, 0x53b }, { 0x544, 0x56b } },
    { 0xfb16, { 0x54e, 0x546 }, { 0x54e, 0x576 } }, { 0xfb17, { 0x544, 0x53d }, { 0x544, 0x56d } },
};

struct char_range { uint32_t first, last; };

/* Lower and upper case outside Ll and Lu (Other_Lowercase, Other_Uppercase); digits outside Nd (Numeric_Type=Digit). */
static const struct char_range other_lower[] = {
    { 0xaa, 0xaa }, { 0xba, 0xba }, { 0x2b0, 0x2b8 }, { 0x2c0, 0x2c1 }, { 0x2e0, 0x2e4 }, { 0x345, 0x345 },
    { 0x37a, 0x37a }, { 0x1d2c, 0x1d6a }, { 0x1d78, 0x1d78 }, { 0x1d9b, 0x1dbf }, { 0x2071, 0x2071 },
    { 0x207f, 0x207f }, { 0x2090, 0x209c }, { 0x2170, 0x217f }, { 0x24d0, 0x24e9 }, { 0x2c7c, 0x2c7d },
    { 0xa69c, 0xa69d }, { 0xa770, 0xa770 }, { 0xa7f8, 0xa7f9 }, { 0xab5c, 0xab5f }, { 0x10780, 0x10780 },
    { 0x10783, 0x10785 }, { 0x10787, 0x107b0 }, { 0x107b2, 0x107ba },
};
static const struct char_range other_upper[] = {
    { 0x2160, 0x216f }, { 0x24b6, 0x24cf }, { 0x1f130, 0x1f149 }, { 0x1f150, 0x1f169 }, { 0x1f170, 0x1f189 },
};
static const struct char_range other_digit[] = {
    { 0xb2, 0xb3 }, { 0xb9, 0xb9 }, { 0x1369, 0x1371 }, { 0x19da, 0x19da }, { 0x2070, 0x2070 }, { 0x2074, 0x2079 },
    { 0x2080, 0x2089 }, { 0x2460, 0x2468 }, { 0x2474, 0x247c }, { 0x2488, 0x2490 }, { 0x24ea, 0x24ea },
    { 0x24f5, 0x24fd }, { 0x24ff, 0x24ff }, { 0x2776, 0x277e }, { 0x2780, 0x2788 }, { 0x278a, 0x2792 },
    { 0x10a40, 0x10a43 }, { 0x10e60, 0x10e68 }, { 0x11052, 0x1105a }, { 0x1f100, 0x1f10a },
};

static bool in_ranges(const struct char_range *ranges, size_t n, uint32_t code)
{
    for (size_t i = 0; i < n && ranges[i].first <= code; i++)
        if (code <= ranges[i].last)
            return true;
    return false;
}
#define IN_RANGES(ranges, code) in_ranges(ranges, sizeof (ranges) / sizeof (ranges)[0], code)

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

bool char_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x1f);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028
           || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool char_printable(uint32_t code)
{
    if (code < 0x7f)
        return code >= 0x20;
    switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static bool is_letter(utf8proc_category_t c)
{
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool char_word_start(uint32_t code)
{
    if (code < 0x80)
        return code == '_' || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
    return is_letter(category(code)) || category(code) == UTF8PROC_CATEGORY_NL;
}

bool char_word(uint32_t code)
{
    if (code < 0x80)
        return char_word_start(code) || (code >= '0' && code <= '9');
    switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return char_word_start(code);
    }
}

bool char_is(uint32_t code, enum char_class what)
{
    utf8proc_category_t c = category(code);

    switch (what) {
    case CHAR_UPPER:
        return c == UTF8PROC_CATEGORY_LU || IN_RANGES(other_upper, code);
    case CHAR_LOWER:
        return c == UTF8PROC_CATEGORY_LL || IN_RANGES(other_lower, code);
    case CHAR_TITLE:
        return c == UTF8PROC_CATEGORY_LT;
    case CHAR_CASED:
        return c == UTF8PROC_CATEGORY_LT || char_is(code, CHAR_UPPER) || char_is(code, CHAR_LOWER);
    case CHAR_ALPHA:
        return is_letter(c);
    case CHAR_DECIMAL:
        return c == UTF8PROC_CATEGORY_ND;
    case CHAR_DIGIT:
        return c == UTF8PROC_CATEGORY_ND || IN_RANGES(other_digit, code);
    case CHAR_NUMERIC:
        return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
    }
    return false;
}

static const struct special *special_find(uint32_t code)
{
    size_t low = 0, high = sizeof special_case / sizeof special_case[0];

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (special_case[middle].code == code)
            return &special_case[middle];
        if (special_case[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int char_case(uint32_t code, enum text_case to, uint32_t out[3])
{
    const struct special *s = to == CASE_LOWER ? NULL : special_find(code);
    utf8proc_int32_t c = (utf8proc_int32_t)code;

    if (s != NULL) {
        memcpy(out, to == CASE_UPPER ? s->upper : s->title, 3 * sizeof out[0]);
        return out[2] != 0 ? 3 : out[1] != 0 ? 2 : 1;
    }
    if (to == CASE_LOWER && code == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    c = to == CASE_LOWER ? utf8proc_tolower(c) : to == CASE_UPPER ? utf8proc_toupper(c) : utf8proc_totitle(c);
    out[0] = (uint32_t)c;
    return 1;
}

/* Case_Ignorable, closely enough for the final sigma. */
static bool case_ignorable(uint32_t code)
{
    if (code < 0x80)
        return code == '\'' || code == '.' || code == ':' || code == '^' || code == '`';
    switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return code == 0xb7 || code == 0x387 || code == 0x2018 || code == 0x2019 || code == 0x2024 || code == 0x2027;
    }
}

/* Greek capital sigma at `at` of text[start, n): final when a cased letter stands before it and none after, ignorable ones skipped. The
 * look around is bounded so that a text of apostrophes and sigmas stays linear; no word comes near the bound. */
static bool sigma_is_final(const char *text, size_t start, size_t n, size_t at)
{
    enum { LOOK_MAX = 64 };
    size_t before = at, after = at + 2;
    uint32_t code = 0;
    bool cased = false;

    for (int look = 0; before > start && look < LOOK_MAX; look++) {
        do
            before--;
        while (((unsigned char)text[before] & 0xc0) == 0x80);
        utf8_char(text + before, n - before, &code);
        if (!case_ignorable(code)) {
            cased = char_is(code, CHAR_CASED);
            break;
        }
    }
    for (int look = 0; cased && after < n && look < LOOK_MAX; look++) {
        after += (size_t)utf8_char(text + after, n - after, &code);
        if (!case_ignorable(code))
            return !char_is(code, CHAR_CASED);
    }
    return cased;
}

/* Characters that begin a word for the title filter: re "[-\s({\[<]+". */
static bool word_break(uint32_t code)
{
    return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || char_space(code);
}

static enum text_case style_case(enum case_style style, uint32_t code, bool first, bool inside)
{
    switch (style) {
    case STYLE_LOWER:
        return CASE_LOWER;
    case STYLE_UPPER:
        return CASE_UPPER;
    case STYLE_CAPITALIZE:
        return first ? CASE_TITLE : CASE_LOWER;
    case STYLE_TITLE:
        return inside ? CASE_LOWER : CASE_TITLE;
    case STYLE_SWAP:
        return char_is(code, CHAR_UPPER) ? CASE_LOWER : CASE_UPPER;
    case STYLE_WORDS:
        return inside ? CASE_LOWER : CASE_UPPER;
    }
    return CASE_LOWER;
}

/* The stretch of ASCII at `at` in a case that asks for no more than the character itself: all lower or all upper.
 * Returns where it ends. */
static size_t ascii_case(struct text_build *b, const struct value *v, size_t n, size_t at, enum case_style style,
                         size_t *span_i)
{
    const char *text = v->u.text.spans[0].text;
    char first = style == STYLE_LOWER ? 'A' : 'a', bytes[256];

    while (at < n && (unsigned char)text[at] < 0x80 && !b->over) {
        enum text_trust trust = text_trust_at(v, at, span_i);
        const struct text_span *s = &v->u.text.spans[*span_i];
        size_t end = (size_t)(s->text + s->n - text), i = 0;

        for (; at < end && i < sizeof bytes && (unsigned char)text[at] < 0x80; at++, i++)
            bytes[i] = (char)(text[at] ^ ((unsigned char)(text[at] - first) < 26 ? 0x20 : 0));
        text_build_copy(b, bytes, i, trust);
    }
    return at;
}

const struct value *text_case(struct run *r, const struct value *v, enum case_style style)
{
    size_t n, at = 0, word = 0, span_i = 0;
    const char *text = run_flat(r, v, &n);
    bool inside = false, simple = style == STYLE_LOWER || style == STYLE_UPPER;
    struct text_build b;

    if (text == NULL || !run_charge(r, (int64_t)(n >> (simple ? 6 : 2))))
        return NULL;
    run_build(r, &b);
    while (at < n && !b.over) {
        uint32_t code = 0, to[3];
        int used = utf8_char(text + at, n - at, &code), to_n;
        enum text_case c = style_case(style, code, at == 0, inside);
        char bytes[12];
        size_t bytes_n = 0;

        if (simple && code < 0x80) {
            at = ascii_case(&b, v, n, at, style, &span_i);
            continue;
        }
        if (simple && !run_charge(r, 1))
            return NULL;
        to_n = char_case(code, c, to);
        if (code == 0x3a3 && c == CASE_LOWER && sigma_is_final(text, word, n, at))
            to[0] = 0x3c2;
        for (int i = 0; i < to_n; i++)
            bytes_n += (size_t)utf8_put(bytes + bytes_n, to[i]);
        text_build_copy(&b, bytes, bytes_n, text_trust_at(v, at, &span_i));
        at += (size_t)used;
        if (style == STYLE_WORDS && !inside)
            word = at;          /* the title filter lowers what follows a word's first character on its own */
        if (!simple)
            inside = style == STYLE_WORDS ? !word_break(code) : char_is(code, CHAR_CASED);
    }
    return run_build_end(r, &b);
}
