/* Which part of an array of postings belongs to each word: a list of starts and ends. */
#ifndef AGENTMEMORY_BOUNDS_H
#define AGENTMEMORY_BOUNDS_H

#include "core.h"

typedef struct {
    Py_ssize_t *at; /* start and end of each word, one after the other */
    Py_ssize_t words;
} Bounds;

/* Read a list of `words` starts and ends within an array of `postings` elements; of any number of words if
 * `words` is negative. On failure, set an exception and return false. Free `at` with free(). */
bool read_bounds(PyObject *list, Py_ssize_t postings, Py_ssize_t words, Bounds *bounds);

#endif
