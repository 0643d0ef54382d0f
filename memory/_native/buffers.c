/* Checked access to the arguments of a call. */
#include "core.h"

static bool has_kind(char format, ElementKind kind) {
    switch (kind) {
    case KIND_SIGNED:
        return strchr("bhilqn", format) != NULL;
    case KIND_UNSIGNED:
        return strchr("?BHILQN", format) != NULL;
    case KIND_FLOAT:
        return strchr("efd", format) != NULL;
    }
    return false;
}

bool open_buffer(PyObject *object, Py_buffer *view, const char *name, ElementKind kind, Py_ssize_t item_size,
                 bool writable) {
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0) {
        return false;
    }
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=') {
        format++;
    }
    bool fits = format[0] != '\0' && format[1] == '\0' && has_kind(format[0], kind);
    if (!fits || view->itemsize != item_size) {
        PyErr_Format(PyExc_TypeError, "%s has elements of format '%s' and %zd bytes", name, format,
                     view->itemsize);
        PyBuffer_Release(view);
        return false;
    }
    return true;
}

bool check_argument_count(const char *function, Py_ssize_t given, Py_ssize_t wanted) {
    if (given == wanted) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", function, wanted, given);
    return false;
}

PyObject *encode_utf8(PyObject *text) {
    PyObject *encoded = PyUnicode_AsUTF8String(text);
    if (encoded == NULL && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear();
        encoded = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
    }
    return encoded;
}
