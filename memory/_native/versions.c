/* Atomic changes of versions in shared memory; the twin is `replace_pure` in memory/storage/shared_versions.py. */
#include "core.h"

static PyObject *replace_version(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Py_buffer slots;
    if (!check_argument_count("replace_version", count, 4)) {
        return NULL;
    }
    Py_ssize_t slot = PyLong_AsSsize_t(arguments[1]);
    if (slot == -1 && PyErr_Occurred()) {
        return NULL;
    }
    unsigned long long expected = PyLong_AsUnsignedLongLong(arguments[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    unsigned long long version = PyLong_AsUnsignedLongLong(arguments[3]);
    if (PyErr_Occurred() || !open_buffer(arguments[0], &slots, "slots", KIND_UNSIGNED, 8, true)) {
        return NULL;
    }
    bool fits = slot >= 0 && slot < count_of(&slots), done = false;
    if (fits) {
        uint64_t old = expected, *place = (uint64_t *)slots.buf + slot;
        done = __atomic_compare_exchange_n(place, &old, (uint64_t)version, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    } else {
        PyErr_Format(PyExc_ValueError, "there is no slot %zd of %zd", slot, count_of(&slots));
    }
    PyBuffer_Release(&slots);
    return fits ? PyBool_FromLong(done) : NULL;
}

PyMethodDef version_methods[] = {
    {"replace_version", (PyCFunction)(void (*)(void))replace_version, METH_FASTCALL,
     "replace_version(slots, slot, expected, version): store a version if the slot has the expected one."},
    {NULL, NULL, 0, NULL},
};
