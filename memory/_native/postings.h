/* Looking up words in postings, for other files of the core. */
#ifndef AGENTMEMORY_POSTINGS_H
#define AGENTMEMORY_POSTINGS_H

#include "bounds.h"

#define ATTRIBUTE_BIT 0x80000000u /* of a term that is no word */

/* Postings that are collected one after the other. Free `postings` with free(). */
typedef struct {
    uint32_t *postings;
    Py_ssize_t used, size;
} Gathered;

/* Append ascending postings below `most`: a list of numbers, or an array. On failure, set an exception. */
bool gather(PyObject *postings, unsigned long most, Gathered *gathered);

/* Return the place of a term among ascending ones, or -1. */
Py_ssize_t find_term(const uint32_t *terms, Py_ssize_t count, uint32_t wanted);

/* Return whether one of the ascending postings from `start` to `end` - 1 is that of a position. */
bool holds(const uint32_t *postings, Py_ssize_t start, Py_ssize_t end, uint32_t position);

#endif
