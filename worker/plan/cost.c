/* worker/plan/cost.c - four factors, so the best non-negative fit is found by trying every set of non-zero ones. */
#include "worker/plan/cost.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define FACTORS 4
#define FORGET 0.995           /* a step counts half after 140 more */
#define RIDGE 1e-6             /* relative: shares the cost where two factors always move together */
#define TRUSTED_SAMPLES 8      /* from here on ... */
#define SURPRISE_MAX 4.0       /* ... a sample is taken for at most so many times what was predicted, or so much less */

void cost_init(struct cost_model *c)
{
    memset(c, 0, sizeof *c);
}

double cost_predict(const struct cost_model *c, int rows, int outs, double kv_positions)
{
    return c->fixed_s + rows * c->row_s + outs * c->out_s + kv_positions * c->kv_s;
}

/* Solves the normal equations for the factors in `set`, others 0. False: no non-negative solution there. */
static bool solve(const struct cost_model *c, unsigned set, double x[FACTORS])
{
    double m[FACTORS][FACTORS + 1];
    int at[FACTORS], n = 0;

    for (int i = 0; i < FACTORS; i++) {
        x[i] = 0;
        if (set & 1u << i) {
            if (c->moments[i][i] <= 0)
                return false;
            at[n++] = i;
        }
    }
    for (int i = 0; i < n; i++) {
        double di = sqrt(c->moments[at[i]][at[i]]);

        for (int j = 0; j < n; j++)            /* scaled to ones on the diagonal */
            m[i][j] = i == j ? 1 + RIDGE : c->moments[at[i]][at[j]] / di / sqrt(c->moments[at[j]][at[j]]);
        m[i][n] = c->moments[at[i]][FACTORS] / di;
    }
    for (int i = 0; i < n; i++) {              /* positive definite through the ridge: no pivoting needed */
        for (int j = i + 1; j < n; j++) {
            double f = m[j][i] / m[i][i];

            for (int k = i; k <= n; k++)
                m[j][k] -= f * m[i][k];
        }
    }
    for (int i = n; i-- > 0;) {
        for (int j = i + 1; j < n; j++)
            m[i][n] -= m[i][j] * m[j][n];
        m[i][n] /= m[i][i];
        if (!(m[i][n] >= 0))
            return false;
        x[at[i]] = m[i][n] / sqrt(c->moments[at[i]][at[i]]);
    }
    return true;
}

/* Squared error of x, less the part that no x changes. */
static double error_of(const struct cost_model *c, const double x[FACTORS])
{
    double sum = 0;

    for (int i = 0; i < FACTORS; i++) {
        sum -= 2 * c->moments[i][FACTORS] * x[i];
        for (int j = 0; j < FACTORS; j++)
            sum += x[i] * c->moments[i][j] * x[j];
    }
    return sum;
}

static void fit(struct cost_model *c)
{
    double best[FACTORS] = { 0 }, best_error = 0;

    for (unsigned set = 1; set < 1u << FACTORS; set++) {
        double x[FACTORS], error;

        if (!solve(c, set, x))
            continue;
        error = error_of(c, x);
        if (error < best_error) {
            best_error = error;
            memcpy(best, x, sizeof best);
        }
    }
    c->fixed_s = best[0];
    c->row_s = best[1];
    c->out_s = best[2];
    c->kv_s = best[3];
}

void cost_observe(struct cost_model *c, int rows, int outs, double kv_positions, double seconds)
{
    double x[FACTORS + 1] = { 1, rows, outs, kv_positions, 0 }, scale = seconds, weight;

    if (!(seconds > 0))
        return;
    if (c->samples_n >= TRUSTED_SAMPLES) {
        double expected = cost_predict(c, rows, outs, kv_positions);

        seconds = fmin(fmax(seconds, expected / SURPRISE_MAX), expected * SURPRISE_MAX);
        scale = expected;                      /* the sample's own time would give lucky steps more weight */
    }
    x[FACTORS] = seconds;
    weight = 1 / (scale * scale);
    for (int i = 0; i < FACTORS; i++)
        for (int j = 0; j <= FACTORS; j++)
            c->moments[i][j] = FORGET * c->moments[i][j] + weight * x[i] * x[j];
    c->samples_n += 1;
    fit(c);
}
