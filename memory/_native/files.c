/* What tells a file from another one, and an old state of it from a new one; the twin is in
 * memory/_base/file_state.py.
 *
 * `os.stat` releases the GIL. A thread that waits for the GIL takes it then, and the caller waits for many times
 * as long as the kernel needs for a file that is open already.
 */
#include "core.h"

#include <errno.h>
#include <sys/stat.h>

#ifdef __APPLE__
#define CHANGED_AT st_mtimespec
#else
#define CHANGED_AT st_mtim
#endif

static PyObject *file_state(PyObject *module, PyObject *path) {
    (void)module;
    char *name;
    struct stat found;
    if (PyBytes_AsStringAndSize(path, &name, NULL) < 0) {
        return NULL;
    }
    if (stat(name, &found) != 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    long long nanoseconds = (long long)found.CHANGED_AT.tv_sec * 1000000000 + found.CHANGED_AT.tv_nsec;
    return Py_BuildValue("(KKL)", (unsigned long long)found.st_dev, (unsigned long long)found.st_ino, nanoseconds);
}

PyMethodDef file_methods[] = {
    {"file_state", file_state, METH_O, "file_state(path): device, inode and time of the last change."},
    {NULL, NULL, 0, NULL},
};
