/* worker/observe/metrics.h - a view as Prometheus text (exposition format 0.0.4) and as JSON. Pure; threads: any. */
#ifndef WORKER_OBSERVE_METRICS_H
#define WORKER_OBSERVE_METRICS_H

#include "base/buf.h"
#include "worker/observe/view.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

void metrics_text(const struct worker_view *v, const struct config *cfg, struct buf *out);
/* One object: state, health, model, drain, notice sources, and every metric under "counts". */
void metrics_status(const struct worker_view *v, const struct config *cfg, struct buf *out);

#endif
