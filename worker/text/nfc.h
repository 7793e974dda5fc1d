/* worker/text/nfc.h - Unicode normalisation form C, as the reference tokenizers do it (their data is Unicode 9).
 * Threads: one owner of a struct nfc. Cost: linear, also for a megabyte of combining marks. */
#ifndef WORKER_TEXT_NFC_H
#define WORKER_TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct nfc {                       /* working memory; zeroed at first */
    int32_t *codes, *sorted;
    size_t room;
};

/* text is valid UTF-8, table as unicode_expand filled it. false: text is in NFC already and out is untouched; true: out
 * holds the normalised text. */
bool nfc_text(struct nfc *w, const uint8_t *table, const char *text, size_t n, struct buf *out);
void nfc_fini(struct nfc *w);

#endif
