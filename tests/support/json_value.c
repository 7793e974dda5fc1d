#include "tests/support/json_value.h"

#include <string.h>

static const struct value *make(struct arena *a, const json_t *j, const char *trusted, enum text_trust trust)
{
    struct value *v;
    const char *key;
    json_t *item;
    size_t i;

    switch (json_typeof(j)) {
    case JSON_NULL: return value_none();
    case JSON_TRUE: return value_bool(true);
    case JSON_FALSE: return value_bool(false);
    case JSON_INTEGER: return value_int(a, json_integer_value(j));
    case JSON_REAL: return value_real(a, json_real_value(j));
    case JSON_STRING: return value_text(a, json_string_value(j), json_string_length(j), trust);
    case JSON_ARRAY:
        v = value_list(a);
        json_array_foreach(j, i, item)
            value_list_add(a, v, make(a, item, "", TEXT_PLAIN));
        return v;
    default:
        v = value_dict(a);
        json_object_foreach((json_t *)j, key, item)
            value_dict_set(a, v, key, strlen(key), make(a, item, "", strstr(trusted, key) ? TEXT_TRUSTED : TEXT_PLAIN));
        return v;
    }
}

const struct value *json_value_make(struct arena *a, const json_t *j, const char *trusted)
{
    return make(a, j, trusted, TEXT_PLAIN);
}
