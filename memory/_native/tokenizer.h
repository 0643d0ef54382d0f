/* The type Tokenizer, for other files of the core that embed texts. */
#ifndef AGENTMEMORY_TOKENIZER_H
#define AGENTMEMORY_TOKENIZER_H

#include "tokenize.h"

typedef struct {
    PyObject_HEAD
    Vocabulary vocabulary;
    Py_ssize_t longest_text; /* characters that are embedded at most */
    TokenList scratch;
    bool scratch_in_use; /* changed only with the GIL */
} Tokenizer;

/* Lend the tokenizer's own memory to one call at a time; other calls get `other`. */
TokenList *borrow_list(Tokenizer *tokenizer, TokenList *other);
void return_list(Tokenizer *tokenizer, TokenList *list);

/* Texts with few pieces are summed token by token, others by the number of times that a token occurs. */
bool is_short(const TokenList *list, size_t few);

#endif
