/* How close the times of memories are to spans of time; the twin is `closeness_pure` in
 * memory/search/dates.py. */
#include "core.h"

#include <math.h>

static PyObject *closeness(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("closeness", given, 5)) {
        return NULL;
    }
    double steps = PyFloat_AsDouble(arguments[3]);
    if (steps == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer times, spans, table, out;
    if (!open_buffer(arguments[0], &times, "times", KIND_FLOAT, 8, false)) {
        return NULL;
    }
    if (!open_buffer(arguments[1], &spans, "spans", KIND_FLOAT, 8, false)) {
        goto no_spans;
    }
    if (!open_buffer(arguments[2], &table, "table", KIND_FLOAT, 4, false)) {
        goto no_table;
    }
    if (!open_buffer(arguments[4], &out, "out", KIND_FLOAT, 4, true)) {
        goto no_out;
    }
    Py_ssize_t count = count_of(&out), bounds = count_of(&spans), last = count_of(&table) - 1;
    bool fits = count == count_of(&times) && bounds >= 2 && bounds % 2 == 0 && last > 0;
    double nearest = (double)INFINITY;
    if (fits) {
        PyThreadState *state = count * bounds > 2 * FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
        const double *time = times.buf, *span = spans.buf;
        const float *value = table.buf;
        float *close = out.buf;
        for (Py_ssize_t at = 0; at < count; at++) {
            double distance = (double)INFINITY;
            for (Py_ssize_t bound = 0; bound < bounds; bound += 2) {
                double before = span[bound] - time[at], after = time[at] - span[bound + 1];
                double outside = before > after ? before : after;
                distance = outside < distance ? outside : distance;
            }
            nearest = distance < nearest ? distance : nearest;
            double place = distance > 0 ? distance * steps : 0.0;
            if (!(place < (double)last)) {
                close[at] = value[last];
                continue;
            }
            Py_ssize_t step = (Py_ssize_t)place;
            float part = (float)(place - (double)step);
            close[at] = value[step] + (value[step + 1] - value[step]) * part;
        }
        if (state) {
            PyEval_RestoreThread(state);
        }
    } else {
        PyErr_Format(PyExc_ValueError, "%zd times, %zd bounds of spans or %zd results do not fit",
                     count_of(&times), bounds, count);
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&table);
    PyBuffer_Release(&spans);
    PyBuffer_Release(&times);
    return fits ? PyFloat_FromDouble(nearest) : NULL;
no_out:
    PyBuffer_Release(&table);
no_table:
    PyBuffer_Release(&spans);
no_spans:
    PyBuffer_Release(&times);
    return NULL;
}

PyMethodDef date_methods[] = {
    {"closeness", (PyCFunction)(void (*)(void))closeness, METH_FASTCALL,
     "closeness(times, spans, table, steps, out): table[distance * steps]; return the least distance."},
    {NULL, NULL, 0, NULL},
};
