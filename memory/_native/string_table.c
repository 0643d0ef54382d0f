/* See string_table.h. */
#include "string_table.h"

bool table_init(StringTable *table, size_t expected) {
    memset(table, 0, sizeof *table);
    size_t places = 64;
    while (places < 2 * expected) {
        places *= 2;
    }
    table->entries = calloc(places, sizeof *table->entries);
    table->arena_size = 1024;
    table->arena = malloc(table->arena_size);
    table->mask = places - 1;
    if (table->entries == NULL || table->arena == NULL) {
        table_free(table);
        return false;
    }
    return true;
}

void table_free(StringTable *table) {
    free(table->entries);
    free(table->arena);
    memset(table, 0, sizeof *table);
}

void table_clear(StringTable *table) {
    memset(table->entries, 0, (table->mask + 1) * sizeof *table->entries);
    table->used = table->arena_used = 0;
}

static bool grow(StringTable *table) {
    size_t places = 2 * (table->mask + 1);
    StringEntry *larger = calloc(places, sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    for (size_t old = 0; old <= table->mask; old++) {
        if (table->entries[old].start != 0) {
            size_t at = table->entries[old].hash & (places - 1);
            while (larger[at].start != 0) {
                at = (at + 1) & (places - 1);
            }
            larger[at] = table->entries[old];
        }
    }
    free(table->entries);
    table->entries = larger;
    table->mask = places - 1;
    return true;
}

bool table_put(StringTable *table, const char *key, size_t length, uint64_t value) {
    uint64_t *known = table_find(table, key, length);
    if (known != NULL) {
        *known = value;
        return true;
    }
    if (length > UINT32_MAX || (2 * (table->used + 1) > table->mask && !grow(table))) {
        return false;
    }
    if (table->arena_size - table->arena_used < length) {
        size_t size = 2 * (table->arena_size + length);
        char *larger = realloc(table->arena, size);
        if (larger == NULL) {
            return false;
        }
        table->arena = larger;
        table->arena_size = size;
    }
    memcpy(table->arena + table->arena_used, key, length);
    uint32_t hash = table_hash(key, length);
    size_t at = hash & table->mask;
    while (table->entries[at].start != 0) {
        at = (at + 1) & table->mask;
    }
    table->entries[at] = (StringEntry){hash, (uint32_t)length, table->arena_used + 1, value};
    table->arena_used += length;
    table->used++;
    return true;
}
