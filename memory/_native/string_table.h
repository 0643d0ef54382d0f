/* A table from byte strings to whole numbers: open addressing, one arena for all keys. */
#ifndef AGENTMEMORY_STRING_TABLE_H
#define AGENTMEMORY_STRING_TABLE_H

#include "core.h"

typedef struct {
    uint32_t hash;
    uint32_t length; /* of the key, in bytes */
    size_t start;    /* of the key in the arena, plus 1: 0 marks an empty place */
    uint64_t value;
} StringEntry;

typedef struct {
    StringEntry *entries;
    size_t mask; /* the number of places minus 1, a power of two minus 1 */
    size_t used;
    char *arena;
    size_t arena_used, arena_size;
} StringTable;

/* Make an empty table. Return false without memory; a table of zero bytes may be passed to `table_free`. */
bool table_init(StringTable *table, size_t expected);
void table_free(StringTable *table);

/* Remove all keys, and keep the memory. */
void table_clear(StringTable *table);

/* Add a key, or change its value. Return false without memory. */
bool table_put(StringTable *table, const char *key, size_t length, uint64_t value);

static inline uint32_t table_hash(const char *key, size_t length) {
    uint64_t hash = 0x9E3779B97F4A7C15u ^ length;
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, key, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
        key += 8;
        length -= 8;
    }
    uint64_t word = 0;
    memcpy(&word, key, length);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
    hash *= 0xD6E8FEB86659FD93u;
    return (uint32_t)(hash >> 32);
}

/* Return the place of a key's value, or NULL. The next `table_put` makes the place invalid. */
static inline uint64_t *table_find(const StringTable *table, const char *key, size_t length) {
    uint32_t hash = table_hash(key, length);
    for (size_t at = hash & table->mask;; at = (at + 1) & table->mask) {
        StringEntry *entry = &table->entries[at];
        if (entry->start == 0) {
            return NULL;
        }
        if (entry->hash == hash && entry->length == length &&
            memcmp(table->arena + entry->start - 1, key, length) == 0) {
            return &entry->value;
        }
    }
}

#endif
