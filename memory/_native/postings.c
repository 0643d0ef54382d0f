/* Look up words in postings; the twins are in memory/search/_lookups.py.
 *
 * Most calls take a few microseconds, so they keep the GIL. `count_living` reads all postings of the words. */
#include "postings.h"
#include "scans.h"

/* Set the elements 2 * at and 2 * at + 1 of a list. */
static bool set_bounds(PyObject *list, Py_ssize_t at, Py_ssize_t start, Py_ssize_t end) {
    PyObject *first = PyLong_FromSsize_t(start), *last = PyLong_FromSsize_t(end);
    if (first == NULL || last == NULL) {
        Py_XDECREF(first);
        Py_XDECREF(last);
        return false;
    }
    PyList_SetItem(list, 2 * at, first); /* takes over the references, also if it fails */
    PyList_SetItem(list, 2 * at + 1, last);
    return true;
}

bool read_bounds(PyObject *list, Py_ssize_t postings, Py_ssize_t words, Bounds *bounds) {
    if (!PyList_Check(list) || PyList_Size(list) % 2) {
        PyErr_SetString(PyExc_TypeError, "a list of starts and ends is needed");
        return false;
    }
    Py_ssize_t size = PyList_Size(list);
    if (words >= 0 && size != 2 * words) {
        PyErr_Format(PyExc_ValueError, "there are starts and ends of %zd words, not of %zd", size / 2, words);
        return false;
    }
    Py_ssize_t *at = malloc((size_t)(size ? size : 1) * sizeof *at);
    if (at == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t place = 0; place < size; place++) {
        at[place] = PyLong_AsSsize_t(PyList_GetItem(list, place));
        bool is_end = place % 2;
        if (at[place] < (is_end ? at[place - 1] : 0) || at[place] > postings) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_ValueError, "%zd is outside of %zd postings", at[place], postings);
            }
            free(at);
            return false;
        }
    }
    *bounds = (Bounds){at, size / 2};
    return true;
}

Py_ssize_t find_term(const uint32_t *terms, Py_ssize_t count, uint32_t wanted) {
    Py_ssize_t low = 0, high = count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (terms[middle] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && terms[low] == wanted ? low : -1;
}

bool holds(const uint32_t *postings, Py_ssize_t start, Py_ssize_t end, uint32_t position) {
    Py_ssize_t low = start, high = end;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (postings[middle] >> COUNT_BITS < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < end && postings[low] >> COUNT_BITS == position;
}

static PyObject *find_postings(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("find_postings", given, 3)) {
        return NULL;
    }
    PyObject *wanted = arguments[2];
    if (!PyList_Check(wanted)) {
        PyErr_SetString(PyExc_TypeError, "a list of terms is needed");
        return NULL;
    }
    Py_buffer terms, starts;
    if (!open_buffer(arguments[0], &terms, "terms", KIND_UNSIGNED, 4, false)) {
        return NULL;
    }
    if (!open_buffer(arguments[1], &starts, "starts", KIND_SIGNED, 8, false)) {
        PyBuffer_Release(&terms);
        return NULL;
    }
    const uint32_t *known = terms.buf;
    const int64_t *start = starts.buf;
    Py_ssize_t count = count_of(&terms), size = PyList_Size(wanted);
    PyObject *bounds = NULL;
    if (count_of(&starts) != count + 1) {
        PyErr_Format(PyExc_ValueError, "there are %zd starts of %zd terms", count_of(&starts), count);
    } else {
        bounds = PyList_New(2 * size);
    }
    for (Py_ssize_t at = 0; bounds != NULL && at < size; at++) {
        unsigned long term = PyLong_AsUnsignedLong(PyList_GetItem(wanted, at));
        Py_ssize_t low = term > UINT32_MAX ? -1 : find_term(known, count, (uint32_t)term);
        bool found = low >= 0;
        if (PyErr_Occurred() || !set_bounds(bounds, at, found ? (Py_ssize_t)start[low] : 0,
                                            found ? (Py_ssize_t)start[low + 1] : 0)) {
            Py_CLEAR(bounds);
        }
    }
    PyBuffer_Release(&starts);
    PyBuffer_Release(&terms);
    return bounds;
}

static bool reserve(Gathered *gathered, Py_ssize_t more) {
    if (gathered->used + more <= gathered->size) {
        return true;
    }
    Py_ssize_t size = 2 * gathered->size + more;
    uint32_t *larger = realloc(gathered->postings, (size_t)size * sizeof *larger);
    if (larger == NULL) {
        PyErr_NoMemory();
        return false;
    }
    gathered->postings = larger;
    gathered->size = size;
    return true;
}

bool gather(PyObject *postings, unsigned long most, Gathered *gathered) {
    if (PyList_Check(postings)) {
        Py_ssize_t count = PyList_Size(postings);
        if (!reserve(gathered, count)) {
            return false;
        }
        for (Py_ssize_t at = 0; at < count; at++) {
            unsigned long posting = PyLong_AsUnsignedLong(PyList_GetItem(postings, at));
            if (posting == (unsigned long)-1 && PyErr_Occurred()) {
                return false;
            }
            if (posting >= most) {
                break;
            }
            gathered->postings[gathered->used++] = (uint32_t)posting;
        }
        return true;
    }
    Py_buffer view;
    if (!open_buffer(postings, &view, "postings", KIND_UNSIGNED, 4, false)) {
        return false;
    }
    Py_ssize_t count = count_of(&view);
    bool done = reserve(gathered, count);
    const uint32_t *from = view.buf;
    for (Py_ssize_t at = 0; done && at < count && from[at] < most; at++) {
        gathered->postings[gathered->used++] = from[at];
    }
    PyBuffer_Release(&view);
    return done;
}

static PyObject *find_in_tail(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("find_in_tail", given, 3)) {
        return NULL;
    }
    PyObject *tail = arguments[0], *wanted = arguments[1];
    if (!PyDict_Check(tail) || !PyList_Check(wanted)) {
        PyErr_SetString(PyExc_TypeError, "a dict of postings and a list of terms are needed");
        return NULL;
    }
    unsigned long most = PyLong_AsUnsignedLong(arguments[2]);
    if (most == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t size = PyList_Size(wanted);
    PyObject *bounds = PyList_New(2 * size);
    Gathered gathered = {0};
    bool done = bounds != NULL;
    for (Py_ssize_t at = 0; done && at < size; at++) {
        PyObject *postings = PyDict_GetItemWithError(tail, PyList_GetItem(wanted, at));
        Py_ssize_t start = gathered.used;
        done = postings == NULL ? !PyErr_Occurred() : gather(postings, most, &gathered);
        done = done && set_bounds(bounds, at, start, gathered.used);
    }
    PyObject *packed = NULL, *result = NULL;
    if (done) {
        packed = PyBytes_FromStringAndSize((const char *)gathered.postings, gathered.used * 4);
        result = packed == NULL ? NULL : PyTuple_Pack(2, packed, bounds);
    }
    free(gathered.postings);
    Py_XDECREF(packed);
    Py_XDECREF(bounds);
    return result;
}

static PyObject *count_living(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("count_living", given, 3)) {
        return NULL;
    }
    Py_buffer packed, living;
    Bounds bounds;
    if (!open_buffer(arguments[0], &packed, "postings", KIND_UNSIGNED, 4, false)) {
        return NULL;
    }
    if (!open_buffer(arguments[2], &living, "living", KIND_UNSIGNED, 1, false)) {
        PyBuffer_Release(&packed);
        return NULL;
    }
    PyObject *counts = NULL;
    if (read_bounds(arguments[1], count_of(&packed), -1, &bounds)) {
        const uint32_t *postings = packed.buf;
        const uint8_t *lives = living.buf;
        Py_ssize_t rows = count_of(&living), total = 0;
        for (Py_ssize_t word = 0; word < bounds.words; word++) {
            total += bounds.at[2 * word + 1] - bounds.at[2 * word];
        }
        bool fits = true;
        PyThreadState *state = total > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
        for (Py_ssize_t word = 0; fits && word < bounds.words; word++) {
            Py_ssize_t start = bounds.at[2 * word], end = bounds.at[2 * word + 1], found = 0;
            fits = check_postings(postings + start, end - start, rows);
            for (Py_ssize_t at = start; fits && at < end; at++) {
                found += lives[postings[at] >> COUNT_BITS] != 0;
            }
            bounds.at[word] = found; /* in the place of bounds that were read */
        }
        if (state) {
            PyEval_RestoreThread(state);
        }
        if (fits) {
            counts = PyList_New(bounds.words);
        } else {
            PyErr_Format(PyExc_ValueError, "a posting is outside of %zd memories", rows);
        }
        for (Py_ssize_t word = 0; counts != NULL && word < bounds.words; word++) {
            PyObject *number = PyLong_FromSsize_t(bounds.at[word]);
            if (number == NULL) {
                Py_CLEAR(counts);
                break;
            }
            PyList_SetItem(counts, word, number);
        }
        free(bounds.at);
    }
    PyBuffer_Release(&living);
    PyBuffer_Release(&packed);
    return counts;
}

/* Return the numbers of the words that the memory at a position holds, as a list. */
static PyObject *words_of(const uint32_t *postings, const Bounds *bounds, unsigned long position) {
    PyObject *words = PyList_New(0);
    for (Py_ssize_t word = 0; words != NULL && word < bounds->words; word++) {
        if (holds(postings, bounds->at[2 * word], bounds->at[2 * word + 1], (uint32_t)position)) {
            PyObject *number = PyLong_FromSsize_t(word);
            if (number == NULL || PyList_Append(words, number) < 0) {
                Py_CLEAR(words);
            }
            Py_XDECREF(number);
        }
    }
    return words;
}

static PyObject *words_at(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("words_at", given, 3)) {
        return NULL;
    }
    if (!PyList_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "a list of positions is needed");
        return NULL;
    }
    Py_buffer packed;
    Bounds bounds;
    if (!open_buffer(arguments[0], &packed, "postings", KIND_UNSIGNED, 4, false)) {
        return NULL;
    }
    PyObject *found = NULL;
    if (read_bounds(arguments[1], count_of(&packed), -1, &bounds)) {
        Py_ssize_t size = PyList_Size(arguments[2]);
        found = PyList_New(size);
        for (Py_ssize_t at = 0; found != NULL && at < size; at++) {
            unsigned long position = PyLong_AsUnsignedLong(PyList_GetItem(arguments[2], at));
            PyObject *words = PyErr_Occurred() ? NULL : words_of(packed.buf, &bounds, position);
            if (words == NULL) {
                Py_CLEAR(found);
                break;
            }
            PyList_SetItem(found, at, words);
        }
        free(bounds.at);
    }
    PyBuffer_Release(&packed);
    return found;
}

/* Return the last posting of a list or an array; -1 with an exception if it has none. */
static long long last_posting(PyObject *postings) {
    Py_ssize_t size = PySequence_Size(postings);
    PyObject *last = size < 1 ? NULL : PySequence_GetItem(postings, size - 1);
    if (last == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a term of the tail has no postings");
        }
        return -1;
    }
    long long posting = PyLong_AsLongLong(last);
    Py_DECREF(last);
    return posting;
}

/* Count one more occurrence of a term at a position in the term's list or array. */
static bool count_occurrence(PyObject *tail, PyObject *term, PyObject *postings, uint32_t once, Py_ssize_t longest,
                             PyObject *to_array) {
    long long last = last_posting(postings);
    if (last < 0) {
        return false;
    }
    bool is_new = last < once;
    long long posting = is_new ? once : last < (once | COUNT_MASK) ? last + 1 : last;
    PyObject *number = PyLong_FromLongLong(posting);
    if (number == NULL) {
        return false;
    }
    bool done, is_list = PyList_Check(postings);
    if (!is_new) {
        done = PySequence_SetItem(postings, PySequence_Size(postings) - 1, number) == 0;
    } else if (is_list) {
        done = PyList_Append(postings, number) == 0;
    } else {
        PyObject *nothing = PyObject_CallMethod(postings, "append", "O", number);
        done = nothing != NULL;
        Py_XDECREF(nothing);
    }
    Py_DECREF(number);
    if (done && is_new && is_list && PyList_Size(postings) == longest) {
        PyObject *longer = PyObject_CallFunctionObjArgs(to_array, postings, NULL);
        done = longer != NULL && PyDict_SetItem(tail, term, longer) == 0;
        Py_XDECREF(longer);
    }
    return done;
}

static bool add_occurrence(PyObject *tail, uint32_t term, uint32_t once, Py_ssize_t longest, PyObject *to_array) {
    PyObject *key = PyLong_FromUnsignedLong(term);
    PyObject *postings = key == NULL ? NULL : PyDict_GetItemWithError(tail, key);
    bool done = false;
    if (postings != NULL) {
        done = count_occurrence(tail, key, postings, once, longest, to_array);
    } else if (key != NULL && !PyErr_Occurred()) {
        PyObject *first = Py_BuildValue("[k]", (unsigned long)once);
        done = first != NULL && PyDict_SetItem(tail, key, first) == 0;
        Py_XDECREF(first);
    }
    Py_XDECREF(key);
    return done;
}

static PyObject *add_to_tail(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("add_to_tail", given, 5)) {
        return NULL;
    }
    PyObject *tail = arguments[0];
    unsigned long position = PyLong_AsUnsignedLong(arguments[1]);
    Py_ssize_t longest = PyErr_Occurred() ? -1 : PyLong_AsSsize_t(arguments[3]), size;
    char *terms;
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(arguments[2], &terms, &size) < 0) {
        return NULL;
    }
    if (!PyDict_Check(tail) || size % 4 || position > 0xFFFF) {
        PyErr_SetString(PyExc_ValueError, "a dict, a position in a block and whole terms are needed");
        return NULL;
    }
    Py_ssize_t words = 0;
    uint32_t once = (uint32_t)position << COUNT_BITS | 1;
    for (Py_ssize_t at = 0; at < size; at += 4) {
        uint32_t term;
        memcpy(&term, terms + at, 4);
        words += term < ATTRIBUTE_BIT;
        if (!add_occurrence(tail, term, once, longest, arguments[4])) {
            return NULL;
        }
    }
    return PyLong_FromSsize_t(words);
}

PyMethodDef posting_methods[] = {
    {"add_to_tail", (PyCFunction)(void (*)(void))add_to_tail, METH_FASTCALL,
     "add_to_tail(tail, position, terms, longest, to_array): add the postings of a memory; return its words."},
    {"find_postings", (PyCFunction)(void (*)(void))find_postings, METH_FASTCALL,
     "find_postings(terms, starts, wanted): the start and the end of each wanted term's postings."},
    {"find_in_tail", (PyCFunction)(void (*)(void))find_in_tail, METH_FASTCALL,
     "find_in_tail(tail, wanted, most): the postings below `most` of the wanted terms, starts and ends."},
    {"count_living", (PyCFunction)(void (*)(void))count_living, METH_FASTCALL,
     "count_living(postings, bounds, living): the number of each word's postings of living memories."},
    {"words_at", (PyCFunction)(void (*)(void))words_at, METH_FASTCALL,
     "words_at(postings, bounds, positions): the numbers of the words that each memory holds."},
    {NULL, NULL, 0, NULL},
};
