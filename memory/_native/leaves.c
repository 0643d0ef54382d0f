/* The scalars of a JSON value with their paths; the twin is `leaves_of` in memory/_base/content.py. */
#include "core.h"

bool open_leaf(PyObject *leaves, Py_ssize_t at, PyObject **path, PyObject **value) {
    PyObject *leaf = PyList_GetItem(leaves, at);
    if (leaf == NULL) {
        return false;
    }
    if (!PyTuple_Check(leaf) || PyTuple_Size(leaf) != 2 || !PyUnicode_Check(PyTuple_GetItem(leaf, 0))) {
        PyErr_SetString(PyExc_TypeError, "a leaf is a path and a value");
        return false;
    }
    *path = Py_NewRef(PyTuple_GetItem(leaf, 0));
    *value = Py_NewRef(PyTuple_GetItem(leaf, 1));
    return true;
}

static bool is_scalar(PyObject *value) {
    return PyUnicode_CheckExact(value) || PyFloat_CheckExact(value) || PyLong_CheckExact(value) ||
           PyBool_Check(value) || value == Py_None;
}

static bool add_leaf(PyObject *leaves, PyObject *path, PyObject *value) {
    PyObject *leaf = PyTuple_Pack(2, path, value);
    bool done = leaf != NULL && PyList_Append(leaves, leaf) == 0;
    Py_XDECREF(leaf);
    return done;
}

typedef enum { DONE, FAILED, UNUSUAL } Outcome;

static Outcome add_leaves(PyObject *leaves, PyObject *path, PyObject *node, Py_ssize_t levels);

static Outcome add_object(PyObject *leaves, PyObject *path, PyObject *node, Py_ssize_t levels) {
    PyObject *key, *child, *prefix = NULL;
    Py_ssize_t at = 0;
    Outcome outcome = DONE;
    if (PyUnicode_GetLength(path) > 0) {
        PyObject *dot = PyUnicode_FromString(".");
        prefix = dot == NULL ? NULL : PyUnicode_Concat(path, dot);
        Py_XDECREF(dot);
        if (prefix == NULL) {
            return FAILED;
        }
    }
    while (outcome == DONE && PyDict_Next(node, &at, &key, &child)) {
        if (!PyUnicode_CheckExact(key)) {
            outcome = UNUSUAL;
            break;
        }
        PyObject *below = prefix == NULL ? Py_NewRef(key) : PyUnicode_Concat(prefix, key);
        Py_INCREF(child); /* the garbage collector may run Python code, which may change the object */
        outcome = below == NULL ? FAILED : add_leaves(leaves, below, child, levels);
        Py_DECREF(child);
        Py_XDECREF(below);
    }
    Py_XDECREF(prefix);
    return outcome;
}

/* Append the leaves of a value that may have `levels` levels of lists and objects. */
static Outcome add_leaves(PyObject *leaves, PyObject *path, PyObject *node, Py_ssize_t levels) {
    if (is_scalar(node)) {
        return add_leaf(leaves, path, node) ? DONE : FAILED;
    }
    if (levels <= 0) {
        return UNUSUAL;
    }
    if (PyDict_CheckExact(node)) {
        return add_object(leaves, path, node, levels - 1);
    }
    bool is_list = PyList_CheckExact(node);
    if (!is_list && !PyTuple_CheckExact(node)) {
        return UNUSUAL;
    }
    Outcome outcome = DONE;
    for (Py_ssize_t at = 0; outcome == DONE && at < (is_list ? PyList_Size(node) : PyTuple_Size(node)); at++) {
        PyObject *child = Py_XNewRef(is_list ? PyList_GetItem(node, at) : PyTuple_GetItem(node, at));
        outcome = child == NULL ? FAILED : add_leaves(leaves, path, child, levels - 1);
        Py_XDECREF(child);
    }
    return outcome;
}

static PyObject *leaves_of(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (!check_argument_count("leaves_of", count, 2)) {
        return NULL;
    }
    Py_ssize_t levels = PyLong_AsSsize_t(arguments[1]);
    if (levels < 0 || levels > 1000) { /* more could exceed the stack */
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "levels is not between 0 and 1000");
        }
        return NULL;
    }
    PyObject *leaves = PyList_New(0), *top = PyUnicode_FromString("");
    Outcome outcome = leaves == NULL || top == NULL ? FAILED : add_leaves(leaves, top, arguments[0], levels);
    Py_XDECREF(top);
    if (outcome == DONE) {
        return leaves;
    }
    Py_XDECREF(leaves);
    return outcome == FAILED ? NULL : Py_NewRef(Py_None);
}

PyMethodDef leaf_methods[] = {
    {"leaves_of", (PyCFunction)(void (*)(void))leaves_of, METH_FASTCALL,
     "leaves_of(value, levels): return the leaves, or None for a value that only the twin can judge."},
    {NULL, NULL, 0, NULL},
};
