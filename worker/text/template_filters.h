/* worker/text/template_filters.h - the filters that template_filters_list.c gives to the table in template_filters.c. */
#ifndef WORKER_TEXT_TEMPLATE_FILTERS_H
#define WORKER_TEXT_TEMPLATE_FILTERS_H

#include "worker/text/template_internal.h"

const struct value *filter_batch(struct run *r, const struct bound *b);
const struct value *filter_dictsort(struct run *r, const struct bound *b);
const struct value *filter_first(struct run *r, const struct bound *b);
const struct value *filter_items(struct run *r, const struct bound *b);
const struct value *filter_join(struct run *r, const struct bound *b);
const struct value *filter_last(struct run *r, const struct bound *b);
const struct value *filter_list(struct run *r, const struct bound *b);
const struct value *filter_map(struct run *r, const struct bound *b);
const struct value *filter_max(struct run *r, const struct bound *b);
const struct value *filter_min(struct run *r, const struct bound *b);
const struct value *filter_reject(struct run *r, const struct bound *b);
const struct value *filter_rejectattr(struct run *r, const struct bound *b);
const struct value *filter_reverse(struct run *r, const struct bound *b);
const struct value *filter_select(struct run *r, const struct bound *b);
const struct value *filter_selectattr(struct run *r, const struct bound *b);
const struct value *filter_slice(struct run *r, const struct bound *b);
const struct value *filter_sort(struct run *r, const struct bound *b);
const struct value *filter_sum(struct run *r, const struct bound *b);
const struct value *filter_unique(struct run *r, const struct bound *b);

#endif
