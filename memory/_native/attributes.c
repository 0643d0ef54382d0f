/* Terms of attributes; the twin is `attribute_terms` in memory/search/terms.py. */
#include "core.h"

#include <math.h>

#define ATTRIBUTE_BIT 0x80000000u
#define MOST_CHARACTERS 200 /* of a text that its term depends on */

/* Write a number with three digits, as the format "%.3g" does, where that is simple and exact. Return the
 * length, or 0 for a number that needs an exponent, or that is too close to the middle of two results. */
static size_t format_simple(double number, char *out) {
    static const double powers[] = {1, 10, 100, 1e3, 1e4, 1e5, 1e6};
    static const double least[] = {100, 10, 1, 0.1, 0.01, 0.001, 0.0001};
    double size = fabs(number);
    if (number == 0.0) {
        out[0] = '0';
        return 1;
    }
    if (!(size >= 0.0001 && size < 999.0)) {
        return 0;
    }
    int decimals = 0;
    while (size < least[decimals]) {
        decimals++;
    }
    double scaled = size * powers[decimals], whole = floor(scaled), rest = scaled - whole;
    if (fabs(rest - 0.5) < 1e-6) {
        return 0;
    }
    int digits = (int)whole + (rest > 0.5);
    if (digits >= 1000) { /* 9.999 becomes 10 */
        digits /= 10;
        decimals--;
    }
    while (decimals > 0 && digits % 10 == 0) {
        digits /= 10;
        decimals--;
    }
    char reversed[16];
    size_t count = 0, length = 0;
    for (int place = 0; digits > 0 || place <= decimals; place++, digits /= 10) {
        if (place == decimals && decimals > 0) {
            reversed[count++] = '.';
        }
        reversed[count++] = (char)('0' + digits % 10);
    }
    if (number < 0) {
        out[length++] = '-';
    }
    while (count > 0) {
        out[length++] = reversed[--count];
    }
    return length;
}

static bool crc_of_number(double number, uint32_t *crc) {
    char text[32];
    size_t length = format_simple(number + 0.0, text); /* adding 0.0 turns -0.0 into 0.0 */
    if (length > 0) {
        *crc = crc32_of(text, length, *crc);
        return true;
    }
    char *exact = PyOS_double_to_string(number + 0.0, 'g', 3, 0, NULL);
    if (exact == NULL) {
        return false;
    }
    *crc = crc32_of(exact, strlen(exact), *crc);
    PyMem_Free(exact);
    return true;
}

static bool crc_of_text(PyObject *text, uint32_t *crc) {
    PyObject *encoded = encode_utf8(text);
    if (encoded == NULL) {
        return false;
    }
    *crc = crc32_of(PyBytes_AsString(encoded), (size_t)PyBytes_Size(encoded), *crc);
    Py_DECREF(encoded);
    return true;
}

static bool crc_of_value(PyObject *value, uint32_t *crc) {
    if (PyFloat_CheckExact(value)) {
        return crc_of_number(PyFloat_AsDouble(value), crc);
    }
    if (PyUnicode_Check(value)) {
        *crc = crc32_of("s", 1, *crc);
        PyObject *start = PyUnicode_GetLength(value) <= MOST_CHARACTERS
                              ? Py_NewRef(value)
                              : PyUnicode_Substring(value, 0, MOST_CHARACTERS);
        bool done = start != NULL && crc_of_text(start, crc);
        Py_XDECREF(start);
        return done;
    }
    if (value == Py_None || PyBool_Check(value)) {
        const char *name = value == Py_None ? "None" : value == Py_True ? "True" : "False";
        *crc = crc32_of(name, strlen(name), *crc);
        return true;
    }
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return false;
        }
        PyErr_Clear();
        *crc = crc32_of("huge", 4, *crc);
        return true;
    }
    return crc_of_number(number, crc);
}

static PyObject *attribute_terms(PyObject *module, PyObject *leaves) {
    (void)module;
    if (!PyList_Check(leaves)) {
        PyErr_SetString(PyExc_TypeError, "a list of leaves is needed");
        return NULL;
    }
    PyObject *terms = PySet_New(NULL);
    for (Py_ssize_t at = 0; terms != NULL && at < PyList_Size(leaves); at++) {
        PyObject *path, *value, *term = NULL;
        uint32_t crc = 0;
        if (open_leaf(leaves, at, &path, &value)) {
            if (crc_of_text(path, &crc)) {
                crc = crc32_of("\0", 1, crc);
                if (crc_of_value(value, &crc)) {
                    term = PyLong_FromUnsignedLong(crc | ATTRIBUTE_BIT);
                }
            }
            Py_DECREF(path);
            Py_DECREF(value);
        }
        if (term == NULL || PySet_Add(terms, term) < 0) {
            Py_CLEAR(terms);
        }
        Py_XDECREF(term);
    }
    return terms;
}

PyMethodDef attribute_methods[] = {
    {"attribute_terms", attribute_terms, METH_O, "attribute_terms(leaves): return the terms as a set."},
    {NULL, NULL, 0, NULL},
};
