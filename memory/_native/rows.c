/* The checksum of a row that was read; the twin is in memory/storage/_rows.py. */
#include "core.h"

/* A CRC-32 of values in MessagePack, in the form that msgspec gives them. */
typedef struct {
    uint32_t crc;
    bool fits; /* whether all values had a known type */
} Checksum;

static void add_bytes(Checksum *sum, const char *bytes, Py_ssize_t length) {
    sum->crc = crc32_of(bytes, (size_t)length, sum->crc);
}

/* Add a byte and a big-endian number of `size` bytes. */
static void add_number(Checksum *sum, unsigned char first, uint64_t number, int size) {
    char bytes[9];
    bytes[0] = (char)first;
    for (int at = 0; at < size; at++) {
        bytes[1 + at] = (char)(number >> 8 * (size - 1 - at));
    }
    add_bytes(sum, bytes, 1 + size);
}

/* Add what precedes a text or bytes: one of these three bytes, and a length of 1, 2 or 4 bytes. */
static void add_length(Checksum *sum, Py_ssize_t length, const unsigned char first[3]) {
    if (length < 256) {
        add_number(sum, first[0], (uint64_t)length, 1);
    } else if (length < 65536) {
        add_number(sum, first[1], (uint64_t)length, 2);
    } else {
        sum->fits = sum->fits && (uint64_t)length <= UINT32_MAX;
        add_number(sum, first[2], (uint64_t)length, 4);
    }
}

static void add_integer(Checksum *sum, PyObject *value) {
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0 || (number == -1 && PyErr_Occurred())) {
        PyErr_Clear();
        sum->fits = false;
    } else if (number >= 0) {
        uint64_t positive = (uint64_t)number;
        if (positive < 128) {
            add_number(sum, (unsigned char)positive, 0, 0);
        } else if (positive <= UINT8_MAX) {
            add_number(sum, 0xcc, positive, 1);
        } else if (positive <= UINT16_MAX) {
            add_number(sum, 0xcd, positive, 2);
        } else if (positive <= UINT32_MAX) {
            add_number(sum, 0xce, positive, 4);
        } else {
            add_number(sum, 0xcf, positive, 8);
        }
    } else if (number >= -32) {
        add_number(sum, (unsigned char)number, 0, 0);
    } else if (number >= INT8_MIN) {
        add_number(sum, 0xd0, (uint64_t)number, 1);
    } else if (number >= INT16_MIN) {
        add_number(sum, 0xd1, (uint64_t)number, 2);
    } else if (number >= INT32_MIN) {
        add_number(sum, 0xd2, (uint64_t)number, 4);
    } else {
        add_number(sum, 0xd3, (uint64_t)number, 8);
    }
}

static void add_value(Checksum *sum, PyObject *value) {
    static const unsigned char of_text[3] = {0xd9, 0xda, 0xdb}, of_bytes[3] = {0xc4, 0xc5, 0xc6};
    if (PyUnicode_CheckExact(value)) {
        Py_ssize_t length = 0;
        const char *text = PyUnicode_AsUTF8AndSize(value, &length);
        if (text == NULL) {
            PyErr_Clear();
            sum->fits = false;
            return;
        }
        if (length < 32) {
            add_number(sum, (unsigned char)(0xa0 | length), 0, 0);
        } else {
            add_length(sum, length, of_text);
        }
        add_bytes(sum, text, length);
    } else if (PyBytes_CheckExact(value)) {
        Py_ssize_t length = PyBytes_Size(value);
        add_length(sum, length, of_bytes);
        add_bytes(sum, PyBytes_AsString(value), length);
    } else if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AsDouble(value);
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        add_number(sum, 0xcb, bits, 8);
    } else if (PyLong_CheckExact(value)) {
        add_integer(sum, value);
    } else if (value == Py_None) {
        add_number(sum, 0xc0, 0, 0);
    } else {
        sum->fits = false;
    }
}

static PyObject *is_row_intact(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given != 1 && !check_argument_count("is_row_intact", given, 2)) {
        return NULL;
    }
    PyObject *row = arguments[0];
    Py_ssize_t size = PyTuple_Check(row) ? PyTuple_Size(row) : 0;
    if (size < 3 || size > 16) {
        PyErr_SetString(PyExc_TypeError, "a tuple of a key, a checksum and 1 to 14 values is needed");
        return NULL;
    }
    Checksum sum = {0, true};
    add_number(&sum, (unsigned char)(0x90 | (size - 2 + (given == 2))), 0, 0);
    if (given == 2) {
        add_value(&sum, arguments[1]);
    }
    for (Py_ssize_t at = 2; sum.fits && at < size; at++) {
        add_value(&sum, PyTuple_GetItem(row, at));
    }
    PyObject *first = PyTuple_GetItem(row, 0), *second = PyTuple_GetItem(row, 1);
    if (!sum.fits || !PyLong_CheckExact(first) || !PyLong_CheckExact(second)) {
        return Py_NewRef(Py_False);
    }
    long long key = PyLong_AsLongLong(first), checksum = PyLong_AsLongLong(second);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return Py_NewRef(Py_False);
    }
    uint32_t of_key = (uint32_t)((uint64_t)(key ^ key >> 31) & UINT32_MAX);
    return Py_NewRef(checksum == (long long)(sum.crc ^ of_key) ? Py_True : Py_False);
}

PyMethodDef row_methods[] = {
    {"is_row_intact", (PyCFunction)(void (*)(void))is_row_intact, METH_FASTCALL,
     "is_row_intact(row[, id]): whether the values of a row match its checksum."},
    {NULL, NULL, 0, NULL},
};
