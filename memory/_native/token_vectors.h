/* The vectors of tokens: float16 as in the file, widened to float32 while they are used. */
#ifndef AGENTMEMORY_TOKEN_VECTORS_H
#define AGENTMEMORY_TOKEN_VECTORS_H

#include "core.h"

/* Write the sum of the tokens' vectors. The order of the additions is that of the tokens, as in NumPy. */
void add_token_vectors(const uint16_t *vectors, size_t dimensions, const int32_t *tokens, size_t count,
                       float *out);

/* Write the vectors of the tokens, one row each. */
void widen_token_vectors(const uint16_t *vectors, size_t dimensions, const int32_t *tokens, size_t count,
                         float *out);

#endif
