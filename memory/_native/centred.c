/* Codes of the codec `centred` as signed bytes; the twin is memory/compression/vectors/centred.py. */
#include "core.h"

#include <stdlib.h>

#define LEVELS 64
#define SCALE_BYTES 2

static bool is_zero(const unsigned char *code, Py_ssize_t width) {
    for (Py_ssize_t at = 0; at < width; at++) {
        if (code[at]) {
            return false;
        }
    }
    return true;
}

/* Write the vector of one code into `row`, whose length is a multiple of 4. */
static void decode_row(const unsigned char *restrict packed, float scale, const float *restrict levels,
                       float *restrict row, Py_ssize_t fours) {
    for (Py_ssize_t four = 0; four < fours; four++) {
        const unsigned char *from = packed + 3 * four;
        uint32_t bits = from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16;
        float *to = row + 4 * four;
        to[0] = levels[bits & 63] * scale;
        to[1] = levels[bits >> 6 & 63] * scale;
        to[2] = levels[bits >> 12 & 63] * scale;
        to[3] = levels[bits >> 18] * scale;
    }
}

static void decode_rows(const Py_buffer *codes, const Py_buffer *scales, const Py_buffer *levels,
                        const Py_buffer *mean, const Py_buffer *out, float *row) {
    Py_ssize_t dimensions = count_of(mean), fours = (dimensions + 3) / 4;
    Py_ssize_t width = SCALE_BYTES + 3 * fours;
    const unsigned char *code = codes->buf;
    const float *centre = mean->buf, *scale = scales->buf;
    int8_t *to = out->buf;
    for (Py_ssize_t at = 0; at < count_of(scales); at++, code += width, to += dimensions) {
        if (is_zero(code, width)) {
            memset(to, 0, (size_t)dimensions);
            continue;
        }
        decode_row(code + SCALE_BYTES, scale[at], levels->buf, row, fours);
        for (Py_ssize_t place = 0; place < dimensions; place++) {
            row[place] += centre[place];
        }
        quantise_row(row, to, dimensions);
    }
}

static PyObject *centred_to_int8(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    static const char *const names[] = {"codes", "scales", "levels", "mean", "out"};
    static const ElementKind kinds[] = {KIND_UNSIGNED, KIND_FLOAT, KIND_FLOAT, KIND_FLOAT, KIND_SIGNED};
    static const Py_ssize_t sizes[] = {1, 4, 4, 4, 1};
    Py_buffer views[5];
    if (!check_argument_count("centred_to_int8", count, 5)) {
        return NULL;
    }
    int opened = 0;
    while (opened < 5 && open_buffer(arguments[opened], &views[opened], names[opened], kinds[opened],
                                     sizes[opened], opened == 4)) {
        opened++;
    }
    PyObject *result = NULL;
    if (opened == 5) {
        Py_ssize_t rows = count_of(&views[1]), dimensions = count_of(&views[3]);
        Py_ssize_t fours = (dimensions + 3) / 4, width = SCALE_BYTES + 3 * fours;
        float *row = NULL;
        if (dimensions < 1 || count_of(&views[2]) != LEVELS || count_of(&views[0]) / width != rows ||
            count_of(&views[0]) % width || count_of(&views[4]) / dimensions != rows ||
            count_of(&views[4]) % dimensions) {
            PyErr_SetString(PyExc_ValueError, "the sizes of codes, scales, levels, mean and out do not match");
        } else if ((row = malloc((size_t)fours * 4 * sizeof *row)) == NULL) {
            PyErr_NoMemory();
        } else {
            PyThreadState *state = count_of(&views[4]) > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
            decode_rows(&views[0], &views[1], &views[2], &views[3], &views[4], row);
            if (state) {
                PyEval_RestoreThread(state);
            }
            free(row);
            result = Py_NewRef(Py_None);
        }
    }
    while (opened > 0) {
        PyBuffer_Release(&views[--opened]);
    }
    return result;
}

PyMethodDef centred_methods[] = {
    {"centred_to_int8", (PyCFunction)(void (*)(void))centred_to_int8, METH_FASTCALL,
     "centred_to_int8(codes, scales, levels, mean, out): write vectors of the codec as signed bytes."},
    {NULL, NULL, 0, NULL},
};
