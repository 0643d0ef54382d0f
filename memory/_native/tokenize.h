/* Texts to the tokens of Llama 2, as memory/embedding/byte_pairs.py describes it. */
#ifndef AGENTMEMORY_TOKENIZE_H
#define AGENTMEMORY_TOKENIZE_H

#include "string_table.h"

typedef struct {
    StringTable tokens; /* by text in UTF-8 */
    size_t longest;     /* bytes of the longest token */
} Vocabulary;

/* The tokens of one text, and memory for the next text. Only one thread at a time may use it. */
typedef struct {
    int32_t *tokens;
    size_t count, size;
    size_t pieces; /* parts between spaces; 1 where spaces are repeated or a special token is inside */
    bool has_cache; /* whether to keep the tokens of words, for more than one text */
    struct CachedWord *words;
    char *marked; /* scratch: one word with its marks */
    size_t marked_size;
    struct Symbol *symbols;
    size_t symbols_size;
    struct Candidate *heap;
    size_t heap_size;
} TokenList;

/* Append the tokens of a text in UTF-8 to an emptied list. Return false without memory. Needs no GIL. */
bool tokenize(const Vocabulary *vocabulary, const char *text, size_t length, TokenList *list);
void token_list_free(TokenList *list);

#endif
