/* The ranking of up to 65,536 memories in one call; the twin is `rank_pure` in memory/search/_rank.py.
 *
 * Scores are 32-bit floats, and every element is computed by the same operations as in the twin. Means are
 * sums of 64-bit floats in 16 lanes: element i is added to lane i % 16, and then the lanes are added in order.
 */
#include "rank.h"

#define LANES 16
#define BEST 10

/* Memories from which the GIL is released. The ranking of fewer takes less time than another thread needs to
 * wake up. Each release then costs more than it gives, and lets the caller wait for the GIL. */
#define MANY_MEMORIES 2048

/* -- scores --------------------------------------------------------------------------------------- */

typedef struct {
    float mean, factor;
} Scale;

/* Keep the largest of all values: `best` is ascending. */
static inline int keep_value(float *best, int used, int most, float value) {
    int at;
    if (used < most) {
        for (at = used; at > 0 && best[at - 1] > value; at--) {
            best[at] = best[at - 1];
        }
        best[at] = value;
        return used + 1;
    }
    for (at = 0; at + 1 < most && best[at + 1] < value; at++) {
        best[at] = best[at + 1];
    }
    best[at] = value;
    return used;
}

static Scale scale_of(const float *scores, Py_ssize_t count, const uint8_t *living) {
    double lanes[LANES] = {0};
    Py_ssize_t counted = 0;
    if (living == NULL) {
        counted = count;
        for (Py_ssize_t first = 0; first + LANES <= count; first += LANES) {
            for (int lane = 0; lane < LANES; lane++) {
                lanes[lane] += (double)scores[first + lane];
            }
        }
        for (Py_ssize_t at = count - count % LANES; at < count; at++) {
            lanes[at % LANES] += (double)scores[at];
        }
    } else {
        for (Py_ssize_t at = 0; at < count; at++) {
            if (living[at]) {
                lanes[counted++ % LANES] += (double)scores[at];
            }
        }
    }
    if (counted == 0) {
        return (Scale){0.0f, 0.0f};
    }
    int few = counted / 10 < BEST ? (int)(counted / 10) : BEST;
    few = few < 1 ? 1 : few;
    float best[BEST];
    int used = 0;
    for (Py_ssize_t first = 0; first < count; first += LANES) {
        Py_ssize_t end = first + LANES < count ? first + LANES : count;
        if (used == few) {
            int above = 0;
            for (Py_ssize_t at = first; at < end; at++) {
                above |= scores[at] > best[0];
            }
            if (!above) {
                continue;
            }
        }
        for (Py_ssize_t at = first; at < end; at++) {
            if ((living == NULL || living[at]) && (used < few || scores[at] > best[0])) {
                used = keep_value(best, used, few, scores[at]);
            }
        }
    }
    double sum = 0, best_sum = 0;
    for (int lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    for (int at = 0; at < few; at++) {
        best_sum += (double)best[at];
    }
    double mean = sum / (double)counted;
    double spread = best_sum / few - mean;
    return (Scale){(float)mean, spread > 1e-9 ? (float)(1 / spread) : 0.0f};
}

static void add_pairs(const Distance *links, const float *scores, float *context) {
    for (Py_ssize_t at = 0; at < links->pairs; at++) {
        context[links->later[at]] += links->share * scores[links->earlier[at]];
    }
    for (Py_ssize_t at = 0; at < links->pairs; at++) {
        context[links->earlier[at]] += links->share * scores[links->later[at]];
    }
}

static inline float larger(float one, float two) { return one > two ? one : two; }

static void peaks_of(const Distance *links, Py_ssize_t turns, const float *scores, float *peaks,
                     Py_ssize_t count) {
    write_peaks(scores, links->barriers, peaks, turns, count);
    for (Py_ssize_t at = 0; at < links->pairs; at++) {
        peaks[links->later[at]] = larger(peaks[links->later[at]], scores[links->earlier[at]]);
        peaks[links->earlier[at]] = larger(peaks[links->earlier[at]], scores[links->later[at]]);
    }
}

/* Write what its neighbours add to each memory's score. `spare` and `peaks` have room for `count` floats,
 * `of_sessions` for one of each session. */
static void write_context(const Links *links, const float *scores, float *context, float *spare, float *peaks,
                          float *of_sessions, Py_ssize_t count) {
    for (Py_ssize_t at = 0; at < count; at++) {
        context[at] = links->own[at] * scores[at];
    }
    pass_all_shares(scores, links->near.shares, context, 1, count);
    add_pairs(&links->near, scores, context);
    pass_all_shares(scores, links->far.shares, context, 2, count);
    add_pairs(&links->far, scores, context);
    peaks_of(&links->near, 1, scores, peaks, count);
    peaks_of(&links->near, 1, peaks, spare, count);
    peaks_of(&links->far, 2, spare, peaks, count);
    for (Py_ssize_t at = 0; at < count; at++) {
        context[at] += links->peak_share * peaks[at];
    }
    Py_ssize_t runs = links->sessions ? links->runs : 0;
    for (Py_ssize_t session = 0; session < links->sessions; session++) {
        of_sessions[session] = -__builtin_inff();
    }
    for (Py_ssize_t run = 0; run < runs; run++) {
        Py_ssize_t end = run + 1 < runs ? links->starts[run + 1] : count;
        float best = scores[links->starts[run]];
        for (Py_ssize_t at = links->starts[run] + 1; at < end; at++) {
            best = larger(best, scores[at]);
        }
        if (links->numbers[run] >= 0) {
            of_sessions[links->numbers[run]] = larger(of_sessions[links->numbers[run]], best);
        }
    }
    for (Py_ssize_t run = 0; run < runs; run++) {
        Py_ssize_t end = run + 1 < runs ? links->starts[run + 1] : count;
        for (Py_ssize_t at = links->starts[run]; links->numbers[run] >= 0 && at < end; at++) {
            peaks[at] = of_sessions[links->numbers[run]];
        }
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        context[at] += links->session_share * peaks[at];
    }
    for (Py_ssize_t at = 0; links->alone && at < count; at++) {
        context[at] = links->alone[at] ? links->own_share * scores[at] : context[at];
    }
}

/* -- the best --------------------------------------------------------------------------------------- */

/* Of equal scores the newer memory is better. */
static inline bool is_worse(Ranked one, Ranked two) {
    return one.score < two.score || (one.score == two.score && one.position < two.position);
}

/* Move the element at `at` down until none below it is worse: the worst one is at 0. */
static void sift(Ranked *heap, Py_ssize_t size, Py_ssize_t at) {
    Ranked moved = heap[at];
    for (Py_ssize_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && is_worse(heap[child + 1], heap[child])) {
            child++;
        }
        if (!is_worse(heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* Write the k best allowed memories, best first; return how many there are. */
static Py_ssize_t choose_best(const float *scores, Py_ssize_t count, const uint8_t *allowed, Ranked *best,
                              Py_ssize_t k) {
    Py_ssize_t used = 0;
    for (Py_ssize_t first = 0; first < count; first += LANES) {
        Py_ssize_t end = first + LANES < count ? first + LANES : count;
        if (used == k) {
            int above = 0;
            for (Py_ssize_t at = first; at < end; at++) {
                above |= scores[at] >= best[0].score;
            }
            if (!above) {
                continue;
            }
        }
        for (Py_ssize_t at = first; at < end; at++) {
            Ranked found = {scores[at], (int32_t)at};
            if (allowed != NULL && !allowed[at]) {
                continue;
            }
            if (used < k) {
                best[used++] = found;
                for (Py_ssize_t root = used == k ? k / 2 : 0; root-- > 0;) {
                    sift(best, k, root);
                }
            } else if (is_worse(best[0], found)) {
                best[0] = found;
                sift(best, k, 0);
            }
        }
    }
    for (Py_ssize_t root = used < k ? used / 2 : 0; root-- > 0;) {
        sift(best, used, root);
    }
    for (Py_ssize_t size = used; size > 1;) {
        Ranked worst = best[0];
        best[0] = best[--size];
        sift(best, size, 0);
        best[size] = worst;
    }
    return used;
}

/* -- the call --------------------------------------------------------------------------------------- */

void rank_all(const Request *request, Outcome *outcome) {
    Py_ssize_t count = request->count;
    float *cosines = outcome->memory, *own = cosines + count, *context = own + count, *total = context + count;
    float *peaks = total + count, *of_sessions = outcome->of_sessions;
    write_cosines(request->codes, request->norms, request->query, request->dimensions, NULL, count,
                  request->scale, cosines);
    float best_cosine = -__builtin_inff();
    for (Py_ssize_t at = 0; at < count; at++) {
        best_cosine = request->living == NULL || request->living[at] ? larger(best_cosine, cosines[at]) : best_cosine;
    }
    Scale scale = scale_of(cosines, count, request->living);
    for (Py_ssize_t at = 0; at < count; at++) {
        own[at] = (cosines[at] - scale.mean) * scale.factor;
    }
    if (request->has_words) {
        const Words *words = &request->words;
        float *held = total; /* not needed yet */
        memset(held, 0, (size_t)count * sizeof *held);
        for (Py_ssize_t word = 0; word < words->words; word++) {
            for (int part = 0; part < words->part_count; part++) {
                const Py_ssize_t *bounds = words->parts[part].bounds.at + 2 * word;
                add_postings(held, words->lengths, words->parts[part].postings + bounds[0],
                             bounds[1] - bounds[0], words->weights[word], words->slope, words->offset);
            }
        }
        scale = scale_of(held, count, request->living);
        for (Py_ssize_t at = 0; at < count; at++) {
            own[at] += (held[at] - scale.mean) * scale.factor;
        }
    }
    for (Py_ssize_t at = 0; request->living && at < count; at++) {
        own[at] = request->living[at] ? own[at] : 0.0f;
    }
    if (request->has_links) {
        write_context(&request->links, own, context, total, peaks, of_sessions, count);
        for (Py_ssize_t at = 0; at < count; at++) {
            total[at] = own[at] + context[at];
        }
    } else {
        total = own;
    }
    for (Py_ssize_t at = 0; request->bonus && at < count; at++) {
        total[at] += request->bonus[at];
    }
    outcome->found = choose_best(total, count, request->allowed, outcome->best, request->k);
    outcome->best_cosine = best_cosine;
    outcome->cosines = cosines;
    outcome->context = context;
}

bool reserve_outcome(const Request *request, Outcome *outcome) {
    size_t rows = (size_t)request->count, sessions = (size_t)request->links.sessions;
    outcome->memory = malloc(5 * rows * sizeof *outcome->memory);
    outcome->of_sessions = malloc((sessions ? sessions : 1) * sizeof *outcome->of_sessions);
    outcome->best = malloc((size_t)request->k * sizeof *outcome->best);
    if (outcome->memory == NULL || outcome->of_sessions == NULL || outcome->best == NULL) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

PyThreadState *begin_ranking(const Request *request) {
    return request->count >= MANY_MEMORIES ? PyEval_SaveThread() : NULL;
}

void end_ranking(PyThreadState *state) {
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
}

void free_outcome(Outcome *outcome) {
    free(outcome->best);
    free(outcome->of_sessions);
    free(outcome->memory);
}

static PyObject *scale_of_scores(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("scale_of", given, 2)) {
        return NULL;
    }
    Buffers buffers;
    buffers.count = 0;
    Py_ssize_t count = 0;
    const uint8_t *living = NULL;
    const float *scores = open_array(&buffers, arguments[0], "scores", KIND_FLOAT, 4, 0, &count);
    if (scores != NULL && arguments[1] != Py_None) {
        living = open_array(&buffers, arguments[1], "living", KIND_UNSIGNED, 1, count, NULL);
    }
    PyObject *result = NULL;
    if (!PyErr_Occurred()) {
        PyThreadState *state = count > 16 * FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
        Scale scale = scale_of(scores, count, living);
        if (state) {
            PyEval_RestoreThread(state);
        }
        result = Py_BuildValue("(dd)", (double)scale.mean, (double)scale.factor);
    }
    release_all(&buffers);
    return result;
}

PyMethodDef scale_methods[] = {
    {"scale_of", (PyCFunction)(void (*)(void))scale_of_scores, METH_FASTCALL,
     "scale_of(scores, living): the mean, and 1 / what the best ones have above it."},
    {NULL, NULL, 0, NULL},
};
