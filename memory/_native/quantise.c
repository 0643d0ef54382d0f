/* Vectors as signed bytes; the twin is memory/compression/quantise.py. */
#include "core.h"

#include <math.h>

/* Adding and subtracting this rounds a float below 2^22 to the nearest whole number, half to even. */
#define ROUNDING 12582912.0f

static float largest(const float *row, Py_ssize_t dimensions) {
    float peak = 0.0f;
    for (Py_ssize_t at = 0; at < dimensions; at++) {
        float size = fabsf(row[at]);
        peak = size > peak ? size : peak;
    }
    return peak;
}

void quantise_row(const float *restrict row, int8_t *restrict code, Py_ssize_t dimensions) {
    float peak = largest(row, dimensions);
    if (!(peak > 0.0f) || isinf(peak)) {
        memset(code, 0, (size_t)dimensions);
        return;
    }
    for (Py_ssize_t at = 0; at < dimensions; at++) {
        float scaled = row[at] / peak * 127.0f;
        scaled = (scaled + ROUNDING) - ROUNDING;
        code[at] = scaled == scaled ? (int8_t)(int)scaled : 0; /* 0 for NaN, which has no whole number */
    }
}

double quantise_query(const float *restrict vector, int8_t *restrict code, Py_ssize_t dimensions) {
    float peak = largest(vector, dimensions);
    float scale = peak > 0.0f ? (float)(127 / (double)peak) : 0.0f;
    int64_t squares = 0;
    for (Py_ssize_t at = 0; at < dimensions; at++) {
        float scaled = vector[at] * scale;
        scaled = (scaled + ROUNDING) - ROUNDING;
        code[at] = scaled >= -127.0f && scaled <= 127.0f ? (int8_t)(int)scaled : 0;
        squares += (int64_t)code[at] * code[at];
    }
    return sqrt((double)squares);
}

static PyObject *to_int8(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Py_buffer vectors, codes;
    if (!check_argument_count("to_int8", count, 3)) {
        return NULL;
    }
    Py_ssize_t dimensions = PyLong_AsSsize_t(arguments[2]);
    if (dimensions == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (!open_buffer(arguments[0], &vectors, "vectors", KIND_FLOAT, 4, false)) {
        return NULL;
    }
    if (!open_buffer(arguments[1], &codes, "codes", KIND_SIGNED, 1, true)) {
        PyBuffer_Release(&vectors);
        return NULL;
    }
    Py_ssize_t elements = count_of(&vectors);
    if (dimensions <= 0 || elements % dimensions || count_of(&codes) != elements) {
        PyErr_Format(PyExc_ValueError, "%zd components and %zd codes are no rows of %zd", elements,
                     count_of(&codes), dimensions);
        elements = -1;
    } else {
        PyThreadState *state = elements > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
        const float *row = vectors.buf;
        int8_t *code = codes.buf;
        for (Py_ssize_t start = 0; start < elements; start += dimensions) {
            quantise_row(row + start, code + start, dimensions);
        }
        if (state) {
            PyEval_RestoreThread(state);
        }
    }
    PyBuffer_Release(&codes);
    PyBuffer_Release(&vectors);
    return elements < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *to_int8_one(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Py_buffer vector, code;
    if (!check_argument_count("to_int8_one", count, 2)) {
        return NULL;
    }
    if (!open_buffer(arguments[0], &vector, "vector", KIND_FLOAT, 4, false)) {
        return NULL;
    }
    if (!open_buffer(arguments[1], &code, "code", KIND_SIGNED, 1, true)) {
        PyBuffer_Release(&vector);
        return NULL;
    }
    Py_ssize_t dimensions = count_of(&vector);
    double length = 0.0;
    bool fits = dimensions == count_of(&code);
    if (fits) {
        length = quantise_query(vector.buf, code.buf, dimensions);
    } else {
        PyErr_Format(PyExc_ValueError, "%zd components are no %zd codes", dimensions, count_of(&code));
    }
    PyBuffer_Release(&code);
    PyBuffer_Release(&vector);
    return fits ? PyFloat_FromDouble(length) : NULL;
}

static PyObject *put_vector(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    Py_buffer codes, norms;
    char *vector;
    Py_ssize_t size;
    if (!check_argument_count("put_vector", given, 4)) {
        return NULL;
    }
    Py_ssize_t row = PyLong_AsSsize_t(arguments[1]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(arguments[0], &vector, &size) < 0 ||
        !open_buffer(arguments[2], &codes, "codes", KIND_SIGNED, 1, true)) {
        return NULL;
    }
    if (!open_buffer(arguments[3], &norms, "norms", KIND_FLOAT, 4, true)) {
        PyBuffer_Release(&codes);
        return NULL;
    }
    Py_ssize_t rows = count_of(&norms), dimensions = rows ? count_of(&codes) / rows : 0;
    bool fits = row >= 0 && row < rows && dimensions > 0 && dimensions <= 1 << 16 && size == dimensions * 4;
    if (fits) {
        int8_t *code = (int8_t *)codes.buf + row * dimensions;
        float *wide = malloc((size_t)size + 1);
        if (wide != NULL) {
            memcpy(wide, vector, (size_t)size); /* bytes need not be aligned */
            quantise_row(wide, code, dimensions);
            int64_t squares = 0;
            for (Py_ssize_t at = 0; at < dimensions; at++) {
                squares += (int64_t)code[at] * code[at];
            }
            /* At least 1, so that a zero vector has the cosine 0 to every query. */
            ((float *)norms.buf)[row] = squares > 1 ? sqrtf((float)squares) : 1.0f;
            free(wide);
        } else {
            PyErr_NoMemory();
        }
    } else {
        PyErr_Format(PyExc_ValueError, "%zd bytes are no vector of row %zd of %zd", size, row, rows);
    }
    PyBuffer_Release(&norms);
    PyBuffer_Release(&codes);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyMethodDef quantise_methods[] = {
    {"put_vector", (PyCFunction)(void (*)(void))put_vector, METH_FASTCALL,
     "put_vector(vector, row, codes, norms): write the bytes of a float32 vector as int8, and its length."},
    {"to_int8_one", (PyCFunction)(void (*)(void))to_int8_one, METH_FASTCALL,
     "to_int8_one(vector, code): write one vector as signed bytes, and return the length of the result."},
    {"to_int8", (PyCFunction)(void (*)(void))to_int8, METH_FASTCALL,
     "to_int8(vectors, codes, dimensions): write rows of float32 as signed bytes into `codes`."},
    {NULL, NULL, 0, NULL},
};
