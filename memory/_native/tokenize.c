/* Byte-pair encoding with a SentencePiece vocabulary; the twin is memory/embedding/byte_pairs.py.
 *
 * Merging two neighbours of a word always gives a part of that word. So a symbol is a place in the word, and
 * no text is ever joined. Characters that the vocabulary lacks become the tokens of their bytes, which are
 * never merged.
 */
#include "tokenize.h"

#define FIRST_BYTE_TOKEN 3
#define TOKEN_BITS 15
#define NEVER UINT64_MAX
#define NONE SIZE_MAX

static const char MARK[] = "\xE2\x96\x81"; /* U+2581 */
#define MARK_BYTES 3

typedef struct Symbol {
    size_t start, length; /* in the word; the length of a merged symbol's right part becomes 0 */
    size_t before, after;
    uint64_t rank; /* of this symbol with the next one */
    int32_t token;
    bool is_byte;
} Symbol;

typedef struct Candidate {
    uint64_t rank;
    size_t at;
} Candidate;

#define CACHED_WORDS 8192 /* a power of two; 512 KB */
#define CACHED_BYTES 34
#define CACHED_TOKENS 12

/* A word and its tokens. Each word has one place, where the last one replaces the one before. */
typedef struct CachedWord {
    uint32_t hash;
    uint8_t length, count; /* 0 for an empty place */
    char text[CACHED_BYTES];
    uint16_t tokens[CACHED_TOKENS];
} CachedWord;

void token_list_free(TokenList *list) {
    free(list->words);
    free(list->tokens);
    free(list->marked);
    free(list->symbols);
    free(list->heap);
    memset(list, 0, sizeof *list);
}

/* Make room for `needed` elements in an array. */
static bool reserve(void **array, size_t *size, size_t needed, size_t element) {
    if (needed <= *size) {
        return true;
    }
    size_t larger = 2 * needed + 64;
    void *grown = realloc(*array, larger * element);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *size = larger;
    return true;
}

static bool add_token(TokenList *list, int32_t token) {
    if (!reserve((void **)&list->tokens, &list->size, list->count + 1, sizeof *list->tokens)) {
        return false;
    }
    list->tokens[list->count++] = token;
    return true;
}

static size_t bytes_of_character(unsigned char first) {
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* -- merging ------------------------------------------------------------------------------------- */

static int32_t find_token(const Vocabulary *vocabulary, const char *text, size_t length) {
    if (length > vocabulary->longest) {
        return -1;
    }
    const uint64_t *found = table_find(&vocabulary->tokens, text, length);
    return found == NULL ? -1 : (int32_t)*found;
}

/* Return the place of a pair in the order of merges: the lowest is merged first. */
static uint64_t rank_of(const Vocabulary *vocabulary, const char *word, const Symbol *left,
                        const Symbol *right) {
    if (left->is_byte || right->is_byte) {
        return NEVER;
    }
    int32_t merged = find_token(vocabulary, word + left->start, left->length + right->length);
    if (merged < 0) {
        return NEVER;
    }
    uint64_t rank = ((uint64_t)merged << TOKEN_BITS | (uint64_t)left->token) << TOKEN_BITS |
                    (uint64_t)right->token;
    bool is_mark = right->length >= MARK_BYTES && memcmp(word + right->start, MARK, MARK_BYTES) == 0;
    return is_mark ? rank | (uint64_t)1 << 3 * TOKEN_BITS : rank;
}

static bool is_before(Candidate left, Candidate right) {
    return left.rank < right.rank || (left.rank == right.rank && left.at < right.at);
}

static void sift_down(Candidate *heap, size_t count, size_t at) {
    Candidate moved = heap[at];
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_before(heap[child + 1], heap[child])) {
            child++;
        }
        if (!is_before(heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void push(Candidate *heap, size_t *count, Candidate added) {
    size_t at = (*count)++;
    while (at > 0 && is_before(added, heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = added;
}

static void rank_pair(const Vocabulary *vocabulary, const char *word, Symbol *symbols, size_t at,
                      Candidate *heap, size_t *heaped) {
    Symbol *symbol = &symbols[at];
    symbol->rank = symbol->after == NONE ? NEVER : rank_of(vocabulary, word, symbol, &symbols[symbol->after]);
    if (symbol->rank != NEVER) {
        push(heap, heaped, (Candidate){symbol->rank, at});
    }
}

static bool merge(const Vocabulary *vocabulary, const char *word, TokenList *list, size_t count) {
    /* Every merge takes one candidate and adds at most two; there are fewer merges than symbols. */
    if (!reserve((void **)&list->heap, &list->heap_size, 3 * count, sizeof *list->heap)) {
        return false;
    }
    Symbol *symbols = list->symbols;
    Candidate *heap = list->heap;
    size_t heaped = 0;
    for (size_t at = 0; at < count; at++) {
        symbols[at].before = at == 0 ? NONE : at - 1;
        symbols[at].after = at + 1 == count ? NONE : at + 1;
    }
    for (size_t at = 0; at < count; at++) {
        rank_pair(vocabulary, word, symbols, at, heap, &heaped);
    }
    while (heaped > 0) {
        Candidate best = heap[0];
        heap[0] = heap[--heaped];
        sift_down(heap, heaped, 0);
        Symbol *left = &symbols[best.at];
        if (left->rank != best.rank || left->length == 0) {
            continue; /* one of the two symbols was merged meanwhile */
        }
        Symbol *right = &symbols[left->after];
        left->token = (int32_t)(best.rank >> 2 * TOKEN_BITS & ((1u << TOKEN_BITS) - 1));
        left->length += right->length;
        left->after = right->after;
        right->length = 0;
        right->rank = NEVER;
        if (left->after != NONE) {
            symbols[left->after].before = best.at;
        }
        if (left->before != NONE) {
            rank_pair(vocabulary, word, symbols, left->before, heap, &heaped);
        }
        rank_pair(vocabulary, word, symbols, best.at, heap, &heaped);
    }
    for (size_t at = 0; at < count; at++) {
        if (symbols[at].length > 0 && !add_token(list, symbols[at].token)) {
            return false;
        }
    }
    return true;
}

/* -- words --------------------------------------------------------------------------------------- */

/* Append the tokens of one word, which begins with its marks. */
static bool add_new_word(const Vocabulary *vocabulary, const char *word, size_t length, TokenList *list) {
    int32_t whole = find_token(vocabulary, word, length);
    if (whole >= 0) { /* merging would give this token */
        return add_token(list, whole);
    }
    /* A character is one symbol or, if the vocabulary lacks it, one symbol for each of its bytes. */
    if (!reserve((void **)&list->symbols, &list->symbols_size, length, sizeof *list->symbols)) {
        return false;
    }
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        size_t bytes = bytes_of_character((unsigned char)word[at]);
        bytes = bytes <= length - at ? bytes : length - at;
        int32_t token = find_token(vocabulary, word + at, bytes);
        if (token >= 0) {
            list->symbols[count++] = (Symbol){.start = at, .length = bytes, .token = token};
        } else {
            for (size_t byte = at; byte < at + bytes; byte++) {
                int32_t value = FIRST_BYTE_TOKEN + (unsigned char)word[byte];
                list->symbols[count++] = (Symbol){.start = byte, .length = 1, .token = value, .is_byte = true};
            }
        }
        at += bytes;
    }
    return merge(vocabulary, word, list, count);
}

/* Do what `add_new_word` does, with a cache: merging a word takes fifty times as long as finding it. */
static bool add_word(const Vocabulary *vocabulary, const char *word, size_t length, TokenList *list) {
    if (list->has_cache && list->words == NULL) {
        list->words = calloc(CACHED_WORDS, sizeof *list->words);
    }
    if (list->words == NULL || length > CACHED_BYTES) {
        return add_new_word(vocabulary, word, length, list);
    }
    uint32_t hash = table_hash(word, length);
    CachedWord *cached = &list->words[hash & (CACHED_WORDS - 1)];
    if (cached->hash == hash && cached->length == length && memcmp(cached->text, word, length) == 0) {
        if (!reserve((void **)&list->tokens, &list->size, list->count + cached->count, sizeof *list->tokens)) {
            return false;
        }
        for (size_t at = 0; at < cached->count; at++) {
            list->tokens[list->count++] = cached->tokens[at];
        }
        return true;
    }
    size_t first = list->count;
    if (!add_new_word(vocabulary, word, length, list)) {
        return false;
    }
    size_t added = list->count - first;
    if (added <= CACHED_TOKENS) {
        cached->hash = hash;
        cached->length = (uint8_t)length;
        cached->count = (uint8_t)added;
        memcpy(cached->text, word, length);
        for (size_t at = 0; at < added; at++) {
            cached->tokens[at] = (uint16_t)list->tokens[first + at];
        }
    }
    return true;
}

static const struct {
    const char *text;
    size_t length;
} special_tokens[] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4}}; /* in the order of their numbers, from 0 */

/* Return the number of the special token at the start of a text, or -1. */
static int32_t special_at(const char *text, size_t length) {
    if (length < 3 || text[0] != '<') {
        return -1;
    }
    for (int32_t number = 0; number < 3; number++) {
        size_t bytes = special_tokens[number].length;
        if (bytes <= length && memcmp(text, special_tokens[number].text, bytes) == 0) {
            return number;
        }
    }
    return -1;
}

/* Return the bytes of the space at the start of a text, which may be a mark; 0 for other characters. */
static size_t space_at(const char *text, size_t length) {
    if (text[0] == ' ') {
        return 1;
    }
    return length >= MARK_BYTES && text[0] == MARK[0] && memcmp(text, MARK, MARK_BYTES) == 0 ? MARK_BYTES : 0;
}

bool tokenize(const Vocabulary *vocabulary, const char *text, size_t length, TokenList *list) {
    list->count = list->pieces = 0;
    if (length == 0) {
        return true;
    }
    if (!reserve((void **)&list->marked, &list->marked_size, MARK_BYTES * (length + 1), 1)) {
        return false;
    }
    bool is_split = true, starts_part = true;
    size_t at = 0, words = 0;
    while (at < length) {
        int32_t special = special_at(text + at, length - at);
        if (special >= 0) {
            if (!add_token(list, special)) {
                return false;
            }
            at += special_tokens[special].length;
            is_split = false;
            starts_part = true;
            continue;
        }
        /* The first word of a part has a mark without a space. */
        size_t marked = 0, marks = starts_part ? 1 : 0, space;
        starts_part = false;
        while (at < length && (space = space_at(text + at, length - at)) > 0) {
            is_split = is_split && space == 1;
            at += space;
            marks++;
        }
        is_split = is_split && marks == 1;
        for (size_t mark = 0; mark < marks; mark++, marked += MARK_BYTES) {
            memcpy(list->marked + marked, MARK, MARK_BYTES);
        }
        while (at < length && space_at(text + at, length - at) == 0 &&
               special_at(text + at, length - at) < 0) {
            list->marked[marked++] = text[at++];
        }
        is_split = is_split && marked > marks * MARK_BYTES;
        words++;
        if (!add_word(vocabulary, list->marked, marked, list)) {
            return false;
        }
    }
    list->pieces = is_split ? words : 1;
    return true;
}
