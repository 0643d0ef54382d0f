/* The ranking of up to 65,536 memories in one call; the twin is `rank_pure` in memory/search/_rank.py.
 *
 * Scores are 32-bit floats, and every element is computed by the same operations as in the twin. Means are
 * sums of 64-bit floats in 16 lanes: element i is added to lane i % 16, and then the lanes are added in order.
 */
#include "bounds.h"
#include "scans.h"

#define LANES 16
#define BEST 10
#define MAX_PARTS 4
#define MAX_BUFFERS 32

/* Memories from which the GIL is released. The ranking of fewer takes less time than another thread needs to
 * wake up. Each release then costs more than it gives, and lets the caller wait for the GIL. */
#define MANY_MEMORIES 2048

/* -- arguments ------------------------------------------------------------------------------------ */

typedef struct {
    Py_buffer opened[MAX_BUFFERS];
    int count;
} Buffers;

static void release_all(Buffers *buffers) {
    while (buffers->count > 0) {
        PyBuffer_Release(&buffers->opened[--buffers->count]);
    }
}

/* Return the elements of an array of at least `least` elements, and write their number if `count` is not
 * NULL. NULL with an exception if it is something else. */
static const void *open_array(Buffers *buffers, PyObject *object, const char *name, ElementKind kind,
                              Py_ssize_t size, Py_ssize_t least, Py_ssize_t *count) {
    static const char nothing[8];
    if (buffers->count == MAX_BUFFERS) {
        PyErr_SetString(PyExc_ValueError, "too many arrays");
        return NULL;
    }
    Py_buffer *view = &buffers->opened[buffers->count];
    if (!open_buffer(object, view, name, kind, size, false)) {
        return NULL;
    }
    buffers->count++;
    if (count_of(view) < least) {
        PyErr_Format(PyExc_ValueError, "%s has %zd elements, not %zd", name, count_of(view), least);
        return NULL;
    }
    if (count != NULL) {
        *count = count_of(view);
    }
    return view->len ? view->buf : nothing;
}

/* Return an element of a tuple that has `size` elements; NULL with an exception if it is none. */
static PyObject *element(PyObject *tuple, Py_ssize_t at, Py_ssize_t size, const char *name) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != size) {
        PyErr_Format(PyExc_TypeError, "%s is no tuple of %zd elements", name, size);
        return NULL;
    }
    return PyTuple_GetItem(tuple, at);
}

typedef struct {
    const uint32_t *postings;
    Bounds bounds;
} WordPart;

typedef struct {
    WordPart parts[MAX_PARTS];
    int part_count;
    float *weights;
    Py_ssize_t words;
    const float *lengths;
    float slope, offset;
} Words;

static bool read_words(PyObject *object, Py_ssize_t count, Words *words, Buffers *buffers) {
    PyObject *parts = element(object, 0, 5, "words"), *weights = element(object, 1, 5, "words");
    if (parts == NULL || weights == NULL) {
        return false;
    }
    if (!PyList_Check(parts) || PyList_Size(parts) > MAX_PARTS || !PyList_Check(weights)) {
        PyErr_SetString(PyExc_TypeError, "words has no list of up to four parts, or no list of weights");
        return false;
    }
    words->lengths = open_array(buffers, element(object, 2, 5, "words"), "lengths", KIND_FLOAT, 4, count, NULL);
    if (words->lengths == NULL) {
        return false;
    }
    words->slope = (float)PyFloat_AsDouble(element(object, 3, 5, "words"));
    words->offset = (float)PyFloat_AsDouble(element(object, 4, 5, "words"));
    words->words = PyList_Size(weights);
    words->weights = malloc((size_t)(words->words ? words->words : 1) * sizeof(float));
    if (words->weights == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t at = 0; at < words->words; at++) {
        words->weights[at] = (float)PyFloat_AsDouble(PyList_GetItem(weights, at));
    }
    if (PyErr_Occurred()) {
        return false;
    }
    for (Py_ssize_t at = 0; at < PyList_Size(parts); at++) {
        PyObject *part = PyList_GetItem(parts, at);
        PyObject *packed = element(part, 0, 2, "a part of words");
        Py_ssize_t found;
        WordPart *read = &words->parts[at];
        read->postings = packed == NULL ? NULL
                                        : open_array(buffers, packed, "postings", KIND_UNSIGNED, 4, 0, &found);
        if (read->postings == NULL ||
            !read_bounds(element(part, 1, 2, "a part of words"), found, words->words, &read->bounds)) {
            return false;
        }
        words->part_count++;
    }
    return true;
}

static void free_words(Words *words) {
    for (int at = 0; at < words->part_count; at++) {
        free(words->parts[at].bounds.at);
    }
    free(words->weights);
}

/* Links between memories that are one or two turns apart. */
typedef struct {
    const float *shares, *barriers;
    const int32_t *later, *earlier;
    Py_ssize_t pairs;
    float share;
} Distance;

static bool read_distance(PyObject *object, Py_ssize_t count, Distance *links, Buffers *buffers) {
    PyObject *given[5];
    for (Py_ssize_t at = 0; at < 5; at++) {
        given[at] = element(object, at, 5, "links");
        if (given[at] == NULL) {
            return false;
        }
    }
    Py_ssize_t earlier;
    links->shares = open_array(buffers, given[0], "shares", KIND_FLOAT, 4, count, NULL);
    links->barriers = links->shares ? open_array(buffers, given[1], "barriers", KIND_FLOAT, 4, count, NULL) : NULL;
    links->later = links->barriers ? open_array(buffers, given[2], "later", KIND_SIGNED, 4, 0, &links->pairs) : NULL;
    links->earlier = links->later ? open_array(buffers, given[3], "earlier", KIND_SIGNED, 4, 0, &earlier) : NULL;
    if (links->earlier == NULL) {
        return false;
    }
    links->share = (float)PyFloat_AsDouble(given[4]);
    bool fits = links->pairs == earlier;
    for (Py_ssize_t at = 0; fits && at < links->pairs; at++) {
        fits = links->later[at] >= 0 && links->later[at] < count && links->earlier[at] >= 0 &&
               links->earlier[at] < count;
    }
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "a link is outside of %zd memories", count);
    }
    return fits && !PyErr_Occurred();
}

typedef struct {
    const float *own;
    Distance near, far;
    const int64_t *starts, *numbers; /* of runs of consecutive memories of one session */
    Py_ssize_t runs, sessions;
    const uint8_t *alone;
    float peak_share, session_share, own_share;
} Links;

static bool read_links(PyObject *object, Py_ssize_t count, Links *links, Buffers *buffers) {
    PyObject *given[10];
    for (Py_ssize_t at = 0; at < 10; at++) {
        given[at] = element(object, at, 10, "links");
        if (given[at] == NULL) {
            return false;
        }
    }
    links->own = open_array(buffers, given[0], "own", KIND_FLOAT, 4, count, NULL);
    if (links->own == NULL || !read_distance(given[1], count, &links->near, buffers) ||
        !read_distance(given[2], count, &links->far, buffers)) {
        return false;
    }
    Py_ssize_t numbers;
    links->starts = open_array(buffers, given[3], "starts", KIND_SIGNED, 8, 0, &links->runs);
    links->numbers = links->starts ? open_array(buffers, given[4], "numbers", KIND_SIGNED, 8, 0, &numbers) : NULL;
    if (links->numbers == NULL) {
        return false;
    }
    links->sessions = PyLong_AsSsize_t(given[5]);
    if (given[6] != Py_None) {
        links->alone = open_array(buffers, given[6], "alone", KIND_UNSIGNED, 1, count, NULL);
        if (links->alone == NULL) {
            return false;
        }
    }
    links->peak_share = (float)PyFloat_AsDouble(given[7]);
    links->session_share = (float)PyFloat_AsDouble(given[8]);
    links->own_share = (float)PyFloat_AsDouble(given[9]);
    if (PyErr_Occurred()) {
        return false;
    }
    bool fits = links->runs == numbers && links->sessions >= 0 && (links->runs == 0 || links->starts[0] == 0);
    for (Py_ssize_t at = 0; fits && at < links->runs; at++) {
        Py_ssize_t end = at + 1 < links->runs ? links->starts[at + 1] : count;
        fits = links->starts[at] < end && end <= count && links->numbers[at] >= -1 &&
               links->numbers[at] < links->sessions;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the runs of sessions do not fit the memories");
    }
    return fits;
}

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

typedef struct {
    float score;
    int32_t position;
} Ranked;

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

typedef struct {
    Py_ssize_t count, k;
    const int8_t *codes, *query;
    const float *norms;
    Py_ssize_t dimensions;
    float scale;
    Words words;
    Links links;
    bool has_words, has_links;
    const uint8_t *living, *allowed;
    const float *bonus;
} Request;

typedef struct {
    float *cosines, *context;
    Ranked *best;
    Py_ssize_t found;
    float best_cosine;
} Outcome;

/* Return whether every posting names one of the memories; if not, nothing is ranked. */
static bool postings_fit(const Words *words, Py_ssize_t count) {
    bool fits = true;
    for (Py_ssize_t word = 0; word < words->words; word++) {
        for (int part = 0; part < words->part_count; part++) {
            const Py_ssize_t *bounds = words->parts[part].bounds.at + 2 * word;
            fits &= check_postings(words->parts[part].postings + bounds[0], bounds[1] - bounds[0], count);
        }
    }
    return fits;
}

static void rank_all(const Request *request, float *memory, float *of_sessions, Outcome *outcome) {
    Py_ssize_t count = request->count;
    float *cosines = memory, *own = memory + count, *context = own + count, *total = context + count;
    float *peaks = total + count;
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

static PyObject *floats(const Outcome *outcome, const float *values) {
    PyObject *list = PyList_New(outcome->found);
    for (Py_ssize_t at = 0; list != NULL && at < outcome->found; at++) {
        float value = values == NULL ? outcome->best[at].score : values[outcome->best[at].position];
        PyObject *number = PyFloat_FromDouble((double)value);
        if (number == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SetItem(list, at, number);
    }
    return list;
}

static PyObject *positions(const Outcome *outcome) {
    PyObject *list = PyList_New(outcome->found);
    for (Py_ssize_t at = 0; list != NULL && at < outcome->found; at++) {
        PyObject *number = PyLong_FromLong(outcome->best[at].position);
        if (number == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SetItem(list, at, number);
    }
    return list;
}

static bool read_request(PyObject *const *arguments, Request *request, Buffers *buffers) {
    request->count = PyLong_AsSsize_t(arguments[0]);
    request->k = PyLong_AsSsize_t(arguments[1]);
    if (PyErr_Occurred()) {
        return false;
    }
    Py_ssize_t count = request->count;
    if (count < 1 || count > 1 << 16 || request->k < 1) {
        PyErr_Format(PyExc_ValueError, "the %zd best of %zd memories can't be ranked in one call", request->k,
                     count);
        return false;
    }
    request->k = request->k < count ? request->k : count;
    PyObject *vectors = arguments[2];
    PyObject *codes = element(vectors, 0, 4, "vectors"), *norms = element(vectors, 1, 4, "vectors");
    PyObject *query = element(vectors, 2, 4, "vectors"), *scale = element(vectors, 3, 4, "vectors");
    if (codes == NULL || norms == NULL || query == NULL || scale == NULL) {
        return false;
    }
    request->query = open_array(buffers, query, "query", KIND_SIGNED, 1, 1, &request->dimensions);
    if (request->query == NULL || request->dimensions > 1 << 16) {
        if (request->query) {
            PyErr_SetString(PyExc_ValueError, "query has too many elements");
        }
        return false;
    }
    request->codes =
        open_array(buffers, codes, "codes", KIND_SIGNED, 1, count * request->dimensions, NULL);
    request->norms = request->codes ? open_array(buffers, norms, "norms", KIND_FLOAT, 4, count, NULL) : NULL;
    if (request->norms == NULL) {
        return false;
    }
    request->scale = (float)PyFloat_AsDouble(scale);
    request->has_words = arguments[3] != Py_None;
    request->has_links = arguments[5] != Py_None;
    if (PyErr_Occurred() || (request->has_words && !read_words(arguments[3], count, &request->words, buffers)) ||
        (request->has_links && !read_links(arguments[5], count, &request->links, buffers))) {
        return false;
    }
    if (arguments[4] != Py_None) {
        request->living = open_array(buffers, arguments[4], "living", KIND_UNSIGNED, 1, count, NULL);
    }
    if (arguments[6] != Py_None && !PyErr_Occurred()) {
        request->bonus = open_array(buffers, arguments[6], "bonus", KIND_FLOAT, 4, count, NULL);
    }
    if (arguments[7] != Py_None && !PyErr_Occurred()) {
        request->allowed = open_array(buffers, arguments[7], "allowed", KIND_UNSIGNED, 1, count, NULL);
    }
    return !PyErr_Occurred();
}

static PyObject *rank(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("rank", given, 8)) {
        return NULL;
    }
    Buffers buffers;
    buffers.count = 0;
    Request request = {0};
    Outcome outcome = {0};
    PyObject *result = NULL;
    float *memory = NULL, *of_sessions = NULL;
    if (read_request(arguments, &request, &buffers)) {
        size_t rows = (size_t)request.count, sessions = (size_t)request.links.sessions;
        memory = malloc(5 * rows * sizeof *memory);
        of_sessions = malloc((sessions ? sessions : 1) * sizeof *of_sessions);
        outcome.best = malloc((size_t)request.k * sizeof *outcome.best);
        if (memory == NULL || of_sessions == NULL || outcome.best == NULL) {
            PyErr_NoMemory();
        } else {
            PyThreadState *state = request.count >= MANY_MEMORIES ? PyEval_SaveThread() : NULL;
            bool fits = postings_fit(&request.words, request.count);
            if (fits) {
                rank_all(&request, memory, of_sessions, &outcome);
            }
            if (state) {
                PyEval_RestoreThread(state);
            }
            if (!fits) {
                PyErr_Format(PyExc_ValueError, "a posting is outside of %zd memories", request.count);
            }
            PyObject *places = positions(&outcome), *scores = floats(&outcome, NULL);
            PyObject *cosines = floats(&outcome, outcome.cosines);
            PyObject *context = request.has_links ? floats(&outcome, outcome.context) : Py_NewRef(Py_None);
            PyObject *bonus = request.bonus ? floats(&outcome, request.bonus) : Py_NewRef(Py_None);
            if (fits && places && scores && cosines && context && bonus) {
                result = Py_BuildValue("(OOOOOd)", places, scores, cosines, context, bonus,
                                       (double)outcome.best_cosine);
            }
            Py_XDECREF(places);
            Py_XDECREF(scores);
            Py_XDECREF(cosines);
            Py_XDECREF(context);
            Py_XDECREF(bonus);
        }
    }
    free(outcome.best);
    free(of_sessions);
    free(memory);
    free_words(&request.words);
    release_all(&buffers);
    return result;
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

PyMethodDef rank_methods[] = {
    {"rank", (PyCFunction)(void (*)(void))rank, METH_FASTCALL,
     "rank(count, k, vectors, words, living, links, bonus, allowed): the k best memories; see _rank.py."},
    {"scale_of", (PyCFunction)(void (*)(void))scale_of_scores, METH_FASTCALL,
     "scale_of(scores, living): the mean, and 1 / what the best ones have above it."},
    {NULL, NULL, 0, NULL},
};
