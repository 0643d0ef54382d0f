/* The search terms of texts, for other files of the core that prepare memories. */
#ifndef AGENTMEMORY_TERM_CACHE_H
#define AGENTMEMORY_TERM_CACHE_H

#include "core.h"

/* Terms that are being collected. Begin with START_TERMS, and end with `finish_terms`, also after a failure. */
typedef struct {
    char *bytes;
    size_t used, size;
    char first[1024];
} TermBytes;

#define START_TERMS(out) ((out).bytes = (out).first, (out).used = 0, (out).size = sizeof (out).first)

/* Append bytes. On failure, set an exception and return false. */
bool append_bytes(TermBytes *out, const void *bytes, size_t length);

/* Append the terms of a text in UTF-8. `cache` must be a TermCache. On failure, set an exception. */
bool append_terms(PyObject *cache, const char *text, size_t length, TermBytes *out);

/* Return the terms as bytes if all was done; free the memory. */
PyObject *finish_terms(TermBytes *out, bool done);

#endif
