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

/* The places of terms by their low bits, and the terms in their order. */
typedef struct {
    uint32_t *terms;
    Py_ssize_t *places; /* 0 for none, else 1 + the place in `terms` */
    size_t mask;
    Py_ssize_t count;
} DistinctTerms;

static void add_distinct(DistinctTerms *to, uint32_t term) {
    size_t slot = term & to->mask;
    while (to->places[slot]) {
        if (to->terms[to->places[slot] - 1] == term) {
            return;
        }
        slot = (slot + 1) & to->mask;
    }
    to->terms[to->count++] = term;
    to->places[slot] = to->count;
}

/* Add the term of a leaf. Return false with an exception if that fails. */
static bool add_leaf(DistinctTerms *to, PyObject *leaves, Py_ssize_t at) {
    PyObject *path, *value;
    uint32_t crc = 0;
    if (!open_leaf(leaves, at, &path, &value)) {
        return false;
    }
    bool done = crc_of_text(path, &crc);
    if (done) {
        crc = crc32_of("\0", 1, crc);
        done = crc_of_value(value, &crc);
    }
    if (done) {
        add_distinct(to, crc | ATTRIBUTE_BIT);
    }
    Py_DECREF(path);
    Py_DECREF(value);
    return done;
}

static PyObject *attribute_terms(PyObject *module, PyObject *leaves) {
    (void)module;
    if (!PyList_Check(leaves)) {
        PyErr_SetString(PyExc_TypeError, "a list of leaves is needed");
        return NULL;
    }
    Py_ssize_t leaf_count = PyList_Size(leaves);
    size_t slots = 4;
    while (slots < 2 * (size_t)leaf_count) {
        slots *= 2;
    }
    DistinctTerms found = {.mask = slots - 1};
    found.terms = malloc(((size_t)leaf_count + 1) * sizeof *found.terms);
    found.places = calloc(slots, sizeof *found.places);
    PyObject *result = NULL;
    if (found.terms == NULL || found.places == NULL) {
        PyErr_NoMemory();
    } else {
        bool done = true;
        for (Py_ssize_t at = 0; done && at < leaf_count; at++) {
            done = add_leaf(&found, leaves, at);
        }
        if (done) {
            result = PyBytes_FromStringAndSize((const char *)found.terms, found.count * (Py_ssize_t)sizeof *found.terms);
        }
    }
    free(found.terms);
    free(found.places);
    return result;
}

PyMethodDef attribute_methods[] = {
    {"attribute_terms", attribute_terms, METH_O,
     "attribute_terms(leaves): return the distinct terms, in the order of the leaves, as bytes to be stored."},
    {NULL, NULL, 0, NULL},
};
