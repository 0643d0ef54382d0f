/* The ranking of the memories of one block: what is given, what is found, and the functions for both. */
#ifndef AGENTMEMORY_RANK_H
#define AGENTMEMORY_RANK_H

#include "bounds.h"
#include "scans.h"

#define MAX_PARTS 4
#define MAX_BUFFERS 32

/* The arrays of one call; begin with a count of 0, and end with `release_all`. */
typedef struct {
    Py_buffer opened[MAX_BUFFERS];
    int count;
} Buffers;

/* The postings of all words in one part of the block. */
typedef struct {
    const uint32_t *postings;
    Bounds bounds;
} WordPart;

typedef struct {
    WordPart parts[MAX_PARTS];
    int part_count;
    float *weights;
    Py_ssize_t words;
    const float *lengths;
    float slope, offset;
} Words;

/* Links between memories that are one or two turns apart. */
typedef struct {
    const float *shares, *barriers;
    const int32_t *later, *earlier;
    Py_ssize_t pairs;
    float share;
} Distance;

typedef struct {
    const float *own;
    Distance near, far;
    const int64_t *starts, *numbers; /* of runs of consecutive memories of one session */
    Py_ssize_t runs, sessions;
    const uint8_t *alone;
    float peak_share, session_share, own_share;
} Links;

typedef struct {
    float score;
    int32_t position;
} Ranked;

typedef struct {
    Py_ssize_t count, k;
    const int8_t *codes, *query;
    const float *norms;
    Py_ssize_t dimensions;
    float scale;
    Words words;
    Links links;
    bool has_words, has_links;
    const uint8_t *living, *allowed;
    const float *bonus;
} Request;

typedef struct {
    float *cosines, *context;
    Ranked *best;
    Py_ssize_t found;
    float best_cosine;
    float *memory, *of_sessions; /* what the arrays above are parts of */
} Outcome;

void release_all(Buffers *buffers);

/* Return the elements of an array of at least `least` elements, and write their number if `count` is not
 * NULL. NULL with an exception if it is something else. */
const void *open_array(Buffers *buffers, PyObject *object, const char *name, ElementKind kind, Py_ssize_t size,
                       Py_ssize_t least, Py_ssize_t *count);

/* Return an element of a tuple that has `size` elements; NULL with an exception if it is none. */
PyObject *element(PyObject *tuple, Py_ssize_t at, Py_ssize_t size, const char *name);

/* Read the number of memories and of wanted ones, their limits, the links between them, and masks. */
bool read_counts(PyObject *count, PyObject *k, Request *request);
bool read_filters(PyObject *living, PyObject *links, PyObject *bonus, PyObject *allowed, Request *request,
                  Buffers *buffers);
void free_words(Words *words);

/* Give the outcome its arrays. Return false with an exception if that fails. Free it with `free_outcome`, also
 * after a failure. */
bool reserve_outcome(const Request *request, Outcome *outcome);
void free_outcome(Outcome *outcome);

/* Release the GIL if ranking takes long enough for that. Give the result to `end_ranking`. */
PyThreadState *begin_ranking(const Request *request);
void end_ranking(PyThreadState *state);

/* Rank all memories. Needs no GIL. The postings must have been checked. */
void rank_all(const Request *request, Outcome *outcome);

/* Return a list with what each found memory has: its element of `values`, its score if `values` is NULL. */
PyObject *floats(const Outcome *outcome, const float *values);
PyObject *positions(const Outcome *outcome);

#endif
