/* The numbers of a state as a direction, mixed into the vector of its words.
 *
 * The twin is `_with_numbers_pure` in memory/embedding/content.py. The sums have another order of additions, so
 * the components may differ by a few units in the last place.
 */
#include "core.h"

#include <math.h>

/* Add the rows of a matrix, each times its amount. */
static void add_rows(const double *restrict amounts, const float *restrict rows, Py_ssize_t count,
                     Py_ssize_t dimensions, float *restrict total) {
    for (Py_ssize_t row = 0; row < count; row++, rows += dimensions) {
        float amount = (float)amounts[row];
        for (Py_ssize_t at = 0; at < dimensions; at++) {
            total[at] += amount * rows[at];
        }
    }
}

/* Read the values of (path, value) pairs. Return false with an exception if that fails. */
static bool read_values(PyObject *numbers, double *values, Py_ssize_t count) {
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *pair = PyTuple_GetItem(numbers, at);
        PyObject *value = pair == NULL ? NULL : PyTuple_GetItem(pair, 1);
        if (value == NULL) {
            return false;
        }
        values[at] = PyFloat_AsDouble(value);
        if (PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

/* What a call works with. All buffers are open. */
typedef struct {
    Py_buffer words, slots, directions, frequencies;
    bool has_slots;
} Arguments;

/* Return the number of amounts; -1 with an exception if the sizes do not fit each other. */
static Py_ssize_t check_sizes(const Arguments *all, Py_ssize_t count) {
    Py_ssize_t dimensions = count_of(&all->words), per_slot = 2 * count_of(&all->frequencies);
    Py_ssize_t rows = dimensions > 0 ? count_of(&all->directions) / dimensions : 0;
    bool fits = dimensions > 0 && per_slot > 0 && rows * dimensions == count_of(&all->directions) &&
                rows % per_slot == 0;
    if (all->has_slots) {
        const int64_t *slots = all->slots.buf;
        fits = fits && count_of(&all->slots) == count;
        for (Py_ssize_t at = 0; fits && at < count; at++) {
            fits = slots[at] >= 0 && slots[at] < rows / per_slot;
        }
    } else {
        fits = fits && rows / per_slot == count;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the directions do not fit the numbers");
        return -1;
    }
    return rows;
}

/* Mix the vector of the numbers into the words. `work` has room for the amounts and for one vector. */
static void mix(const Arguments *all, const double *values, Py_ssize_t count, Py_ssize_t rows, double share,
                double *amounts, float *total) {
    const double *frequencies = all->frequencies.buf;
    const int64_t *slots = all->has_slots ? all->slots.buf : NULL;
    Py_ssize_t few = count_of(&all->frequencies), dimensions = count_of(&all->words);
    float *words = all->words.buf;
    for (Py_ssize_t at = 0; at < count; at++) {
        double *own = amounts + 2 * few * (slots ? (Py_ssize_t)slots[at] : at), wave = asinh(values[at]);
        for (Py_ssize_t one = 0; one < few; one++) {
            own[one] += cos(wave * frequencies[one]);
            own[few + one] += sin(wave * frequencies[one]);
        }
    }
    add_rows(amounts, all->directions.buf, rows, dimensions, total);
    scale_to_unit(total, (size_t)dimensions);
    float of_words = (float)sqrt(1.0 - share), of_numbers = (float)sqrt(share);
    for (Py_ssize_t at = 0; at < dimensions; at++) {
        words[at] = of_words * words[at] + of_numbers * total[at];
    }
    scale_to_unit(words, (size_t)dimensions);
}

static PyObject *mix_opened(const Arguments *all, PyObject *numbers, double share) {
    Py_ssize_t count = PyTuple_Size(numbers), rows = count < 0 ? -1 : check_sizes(all, count);
    if (rows < 0) {
        return NULL;
    }
    Py_ssize_t dimensions = count_of(&all->words);
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    double *amounts = calloc((size_t)rows + 1, sizeof *amounts);
    float *total = calloc((size_t)dimensions, sizeof *total);
    bool done = values != NULL && amounts != NULL && total != NULL;
    if (!done) {
        PyErr_NoMemory();
    } else if ((done = read_values(numbers, values, count))) {
        PyThreadState *state = rows * dimensions > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
        mix(all, values, count, rows, share, amounts, total);
        if (state) {
            PyEval_RestoreThread(state);
        }
    }
    free(values);
    free(amounts);
    free(total);
    return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *mix_numbers(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Arguments all = {.has_slots = false};
    PyObject *result = NULL;
    if (!check_argument_count("mix_numbers", count, 6)) {
        return NULL;
    }
    double share = PyFloat_AsDouble(arguments[5]);
    if (PyErr_Occurred() || !open_buffer(arguments[0], &all.words, "words", KIND_FLOAT, 4, true)) {
        return NULL;
    }
    if (open_buffer(arguments[3], &all.directions, "directions", KIND_FLOAT, 4, false)) {
        if (open_buffer(arguments[4], &all.frequencies, "frequencies", KIND_FLOAT, 8, false)) {
            all.has_slots = arguments[2] != Py_None;
            if (!all.has_slots || open_buffer(arguments[2], &all.slots, "slots", KIND_SIGNED, 8, false)) {
                result = mix_opened(&all, arguments[1], share);
                if (all.has_slots) {
                    PyBuffer_Release(&all.slots);
                }
            }
            PyBuffer_Release(&all.frequencies);
        }
        PyBuffer_Release(&all.directions);
    }
    PyBuffer_Release(&all.words);
    return result;
}

PyMethodDef number_methods[] = {
    {"mix_numbers", (PyCFunction)(void (*)(void))mix_numbers, METH_FASTCALL,
     "mix_numbers(words, numbers, slots, directions, frequencies, share): mix numbers into a vector of words."},
    {NULL, NULL, 0, NULL},
};
