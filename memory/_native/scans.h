/* The scans that `rank.c` does one after the other, and that are functions of the module too. */
#ifndef AGENTMEMORY_SCANS_H
#define AGENTMEMORY_SCANS_H

#include "core.h"

/* A posting is position << 8 | occurrences; see memory/search/postings.py. */
#define COUNT_BITS 8
#define COUNT_MASK 255u

/* Return whether all postings name a position below `rows`. */
bool check_postings(const uint32_t *postings, Py_ssize_t count, Py_ssize_t rows);

/* Add to `scores` the BM25 of one word's postings. */
void add_postings(float *restrict scores, const float *restrict lengths, const uint32_t *postings,
                  Py_ssize_t count, float weight, float slope, float offset);

/* Write the cosines of vectors to a query: of the first `rows` vectors, or of those at `places`. */
void write_cosines(const int8_t *codes, const float *norms, const int8_t *query, Py_ssize_t dimensions,
                   const int64_t *places, Py_ssize_t rows, float scale, float *out);

/* Add to `context` what passes between elements that are `turns` apart. */
void pass_all_shares(const float *scores, const float *shares, float *context, Py_ssize_t turns,
                     Py_ssize_t count);

/* Write the largest of each element and of those `turns` before and after it. */
void write_peaks(const float *restrict from, const float *restrict barrier, float *restrict to,
                 Py_ssize_t turns, Py_ssize_t count);

#endif
