/* Scores that pass between the turns of a conversation; the twins are in memory/search/_scans.py. */
#include "scans.h"

/* Open an array of floats of `length` elements, or of any length if that is negative. */
static bool open_floats(PyObject *object, Py_buffer *view, const char *name, bool writable, Py_ssize_t length) {
    if (!open_buffer(object, view, name, KIND_FLOAT, 4, writable)) {
        return false;
    }
    if (length >= 0 && count_of(view) < length) {
        PyErr_Format(PyExc_ValueError, "%s has %zd elements, not %zd", name, count_of(view), length);
        PyBuffer_Release(view);
        return false;
    }
    return true;
}

static void pass_shares(const float *restrict scores, const float *restrict shares, float *restrict context,
                        Py_ssize_t turns, Py_ssize_t count) {
    /* Two loops, so that the compiler can use vectors: in one, each element is written twice. */
    for (Py_ssize_t at = turns; at < count; at++) {
        context[at] += shares[at] * scores[at - turns];
    }
    for (Py_ssize_t at = turns; at < count; at++) {
        context[at - turns] += shares[at] * scores[at];
    }
}

void pass_all_shares(const float *scores, const float *shares, float *context, Py_ssize_t turns,
                     Py_ssize_t count) {
    /* In parts that the processor's cache holds between the two loops. The order of the sums of each
     * element stays the same: first the earlier turn, then the later one. */
    const Py_ssize_t part = 4096;
    for (Py_ssize_t first = 0; first < count; first += part) {
        Py_ssize_t size = count - first < part + turns ? count - first : part + turns;
        pass_shares(scores + first, shares + first, context + first, turns, size);
    }
}

static PyObject *add_shares(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("add_shares", given, 4)) {
        return NULL;
    }
    Py_ssize_t turns = PyLong_AsSsize_t(arguments[3]);
    if (turns == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer scores, shares, context;
    if (!open_floats(arguments[0], &scores, "scores", false, -1)) {
        return NULL;
    }
    Py_ssize_t count = count_of(&scores);
    if (!open_floats(arguments[1], &shares, "shares", false, count)) {
        PyBuffer_Release(&scores);
        return NULL;
    }
    if (!open_floats(arguments[2], &context, "context", true, count)) {
        PyBuffer_Release(&shares);
        PyBuffer_Release(&scores);
        return NULL;
    }
    if (turns > 0) {
        PyThreadState *state = count > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
        pass_all_shares(scores.buf, shares.buf, context.buf, turns, count);
        if (state) {
            PyEval_RestoreThread(state);
        }
    } else {
        PyErr_Format(PyExc_ValueError, "turns is %zd: use a number above 0", turns);
    }
    PyBuffer_Release(&context);
    PyBuffer_Release(&shares);
    PyBuffer_Release(&scores);
    return turns > 0 ? Py_NewRef(Py_None) : NULL;
}

static inline float larger(float one, float two) { return one > two ? one : two; }

void write_peaks(const float *restrict from, const float *restrict barrier, float *restrict to,
                 Py_ssize_t turns, Py_ssize_t count) {
    Py_ssize_t middle = count - turns;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (at == turns && middle > turns) {
            for (; at < middle; at++) {
                float best = larger(from[at], from[at - turns] + barrier[at]);
                to[at] = larger(best, from[at + turns] + barrier[at + turns]);
            }
        }
        float best = from[at];
        best = at >= turns ? larger(best, from[at - turns] + barrier[at]) : best;
        to[at] = at < middle ? larger(best, from[at + turns] + barrier[at + turns]) : best;
    }
}

static PyObject *best_of_turns(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("best_of_turns", given, 4)) {
        return NULL;
    }
    Py_ssize_t turns = PyLong_AsSsize_t(arguments[3]);
    if (turns == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer scores, barriers, peaks;
    if (!open_floats(arguments[0], &scores, "scores", false, -1)) {
        return NULL;
    }
    Py_ssize_t count = count_of(&scores);
    if (!open_floats(arguments[1], &barriers, "barriers", false, count)) {
        PyBuffer_Release(&scores);
        return NULL;
    }
    if (!open_floats(arguments[2], &peaks, "peaks", true, count)) {
        PyBuffer_Release(&barriers);
        PyBuffer_Release(&scores);
        return NULL;
    }
    bool fits = turns > 0 && peaks.buf != scores.buf;
    if (fits) {
        PyThreadState *state = count > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
        write_peaks(scores.buf, barriers.buf, peaks.buf, turns, count);
        if (state) {
            PyEval_RestoreThread(state);
        }
    } else {
        PyErr_Format(PyExc_ValueError, "turns is %zd, or peaks and scores are the same array", turns);
    }
    PyBuffer_Release(&peaks);
    PyBuffer_Release(&barriers);
    PyBuffer_Release(&scores);
    return fits ? Py_NewRef(Py_None) : NULL;
}

PyMethodDef neighbour_methods[] = {
    {"add_shares", (PyCFunction)(void (*)(void))add_shares, METH_FASTCALL,
     "add_shares(scores, shares, context, turns): add to each element its share of two others."},
    {"best_of_turns", (PyCFunction)(void (*)(void))best_of_turns, METH_FASTCALL,
     "best_of_turns(scores, barriers, peaks, turns): the largest of each element and two others."},
    {NULL, NULL, 0, NULL},
};
