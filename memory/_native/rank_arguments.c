/* The arguments and the result of `rank`; the twin is `rank_pure` in memory/search/_rank.py. */
#include "rank.h"

void release_all(Buffers *buffers) {
    while (buffers->count > 0) {
        PyBuffer_Release(&buffers->opened[--buffers->count]);
    }
}

const void *open_array(Buffers *buffers, PyObject *object, const char *name, ElementKind kind, Py_ssize_t size,
                       Py_ssize_t least, Py_ssize_t *count) {
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

PyObject *element(PyObject *tuple, Py_ssize_t at, Py_ssize_t size, const char *name) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != size) {
        PyErr_Format(PyExc_TypeError, "%s is no tuple of %zd elements", name, size);
        return NULL;
    }
    return PyTuple_GetItem(tuple, at);
}



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

void free_words(Words *words) {
    for (int at = 0; at < words->part_count; at++) {
        free(words->parts[at].bounds.at);
    }
    free(words->weights);
}


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

PyObject *floats(const Outcome *outcome, const float *values) {
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

PyObject *positions(const Outcome *outcome) {
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

bool read_counts(PyObject *count, PyObject *k, Request *request) {
    request->count = PyLong_AsSsize_t(count);
    request->k = PyLong_AsSsize_t(k);
    if (PyErr_Occurred()) {
        return false;
    }
    if (request->count < 1 || request->count > 1 << 16 || request->k < 1) {
        PyErr_Format(PyExc_ValueError, "the %zd best of %zd memories can't be ranked in one call", request->k,
                     request->count);
        return false;
    }
    request->k = request->k < request->count ? request->k : request->count;
    return true;
}

bool read_filters(PyObject *living, PyObject *links, PyObject *bonus, PyObject *allowed, Request *request,
                  Buffers *buffers) {
    Py_ssize_t count = request->count;
    request->has_links = links != Py_None;
    if (request->has_links && !read_links(links, count, &request->links, buffers)) {
        return false;
    }
    if (living != Py_None) {
        request->living = open_array(buffers, living, "living", KIND_UNSIGNED, 1, count, NULL);
    }
    if (bonus != Py_None && !PyErr_Occurred()) {
        request->bonus = open_array(buffers, bonus, "bonus", KIND_FLOAT, 4, count, NULL);
    }
    if (allowed != Py_None && !PyErr_Occurred()) {
        request->allowed = open_array(buffers, allowed, "allowed", KIND_UNSIGNED, 1, count, NULL);
    }
    return !PyErr_Occurred();
}

static bool read_request(PyObject *const *arguments, Request *request, Buffers *buffers) {
    if (!read_counts(arguments[0], arguments[1], request)) {
        return false;
    }
    Py_ssize_t count = request->count;
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
    if (PyErr_Occurred() || (request->has_words && !read_words(arguments[3], count, &request->words, buffers))) {
        return false;
    }
    return read_filters(arguments[4], arguments[5], arguments[6], arguments[7], request, buffers);
}

/* Return whether every posting names one of the memories. */
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

/* Rank all memories. Return false with an exception if that fails. */
static bool rank_request(const Request *request, Outcome *outcome) {
    if (!reserve_outcome(request, outcome)) {
        return false;
    }
    PyThreadState *state = begin_ranking(request);
    bool fits = postings_fit(&request->words, request->count);
    if (fits) {
        rank_all(request, outcome);
    }
    end_ranking(state);
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "a posting is outside of %zd memories", request->count);
    }
    return fits;
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
    if (read_request(arguments, &request, &buffers) && rank_request(&request, &outcome)) {
        PyObject *places = positions(&outcome), *scores = floats(&outcome, NULL);
        PyObject *cosines = floats(&outcome, outcome.cosines);
        PyObject *context = request.has_links ? floats(&outcome, outcome.context) : Py_NewRef(Py_None);
        PyObject *bonus = request.bonus ? floats(&outcome, request.bonus) : Py_NewRef(Py_None);
        if (places && scores && cosines && context && bonus) {
            result = Py_BuildValue("(OOOOOd)", places, scores, cosines, context, bonus,
                                   (double)outcome.best_cosine);
        }
        Py_XDECREF(places);
        Py_XDECREF(scores);
        Py_XDECREF(cosines);
        Py_XDECREF(context);
        Py_XDECREF(bonus);
    }
    free_outcome(&outcome);
    free_words(&request.words);
    release_all(&buffers);
    return result;
}

PyMethodDef rank_methods[] = {
    {"rank", (PyCFunction)(void (*)(void))rank, METH_FASTCALL,
     "rank(count, k, vectors, words, living, links, bonus, allowed): the k best memories; see _rank.py."},
    {NULL, NULL, 0, NULL},
};
