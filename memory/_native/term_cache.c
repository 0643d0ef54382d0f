/* The type TermCache: texts to the search terms that are stored with a memory.
 *
 * No word has a space in it. So the terms of a text are those of the parts between its spaces, which are
 * cached by their UTF-8 bytes. A Python function finds the terms of a part that is not in the cache. The twin
 * is `_encoded_terms` in memory/search/terms.py. All of it runs with the GIL: a text takes a microsecond.
 */
#include "term_cache.h"

#include "string_table.h"

#define COUNT_BITS 16
#define MOST_TERMS ((1 << COUNT_BITS) - 1) /* of a cached part */

typedef struct {
    PyObject_HEAD
    PyObject *terms_of_part, *terms_of_value; /* return bytes */
    Py_ssize_t capacity, longest;             /* parts, and characters of a cached part */
    StringTable parts;                        /* to a place in `terms` and a number of terms */
    uint32_t *terms;
    size_t used, size;
} TermCache;

bool append_bytes(TermBytes *out, const void *bytes, size_t length) {
    if (out->size - out->used < length) {
        size_t size = 2 * (out->size + length);
        char *larger = malloc(size);
        if (larger == NULL) {
            PyErr_NoMemory();
            return false;
        }
        memcpy(larger, out->bytes, out->used);
        if (out->bytes != out->first) {
            free(out->bytes);
        }
        out->bytes = larger;
        out->size = size;
    }
    memcpy(out->bytes + out->used, bytes, length);
    out->used += length;
    return true;
}

PyObject *finish_terms(TermBytes *out, bool done) {
    PyObject *result = done ? PyBytes_FromStringAndSize(out->bytes, (Py_ssize_t)out->used) : NULL;
    if (out->bytes != out->first) {
        free(out->bytes);
    }
    return result;
}

static bool add_known(const TermCache *cache, const char *key, size_t length, TermBytes *out, bool *known) {
    const uint64_t *found = table_find(&cache->parts, key, length);
    *known = found != NULL;
    return found == NULL || append_bytes(out, cache->terms + (*found >> COUNT_BITS), (*found & MOST_TERMS) * 4);
}

static bool keep(TermCache *cache, const char *key, size_t length, const char *terms, size_t count) {
    if (count > MOST_TERMS) {
        return true;
    }
    if (cache->parts.used >= (size_t)cache->capacity) {
        table_clear(&cache->parts);
        cache->used = 0;
    }
    if (cache->terms == NULL || cache->size - cache->used < count) { /* never NULL, also without terms */
        size_t size = 2 * (cache->size + count) + 1024;
        uint32_t *larger = realloc(cache->terms, size * sizeof *larger);
        if (larger == NULL) {
            PyErr_NoMemory();
            return false;
        }
        cache->terms = larger;
        cache->size = size;
    }
    memcpy(cache->terms + cache->used, terms, count * 4);
    if (!table_put(&cache->parts, key, length, (uint64_t)cache->used << COUNT_BITS | count)) {
        PyErr_NoMemory();
        return false;
    }
    cache->used += count;
    return true;
}

/* Append the terms that a Python function returns, and keep them under the key if it is short enough. */
static bool add_found(TermCache *cache, PyObject *function, PyObject *argument, const char *key, size_t length,
                      bool is_kept, TermBytes *out) {
    PyObject *found = PyObject_CallFunctionObjArgs(function, argument, NULL);
    char *terms;
    Py_ssize_t size;
    bool done = found != NULL && PyBytes_AsStringAndSize(found, &terms, &size) == 0;
    if (done && size % 4) {
        PyErr_SetString(PyExc_ValueError, "terms have four bytes each");
        done = false;
    }
    done = done && append_bytes(out, terms, (size_t)size) &&
           (!is_kept || keep(cache, key, length, terms, (size_t)size / 4));
    Py_XDECREF(found);
    return done;
}

static Py_ssize_t characters_of(const char *bytes, size_t length) {
    Py_ssize_t characters = 0;
    for (size_t at = 0; at < length; at++) {
        characters += (bytes[at] & 0xC0) != 0x80;
    }
    return characters;
}

static bool add_part(TermCache *cache, const char *part, size_t length, TermBytes *out) {
    bool known;
    if (length == 0) {
        return true;
    }
    if (!add_known(cache, part, length, out, &known)) {
        return false;
    }
    if (known) {
        return true;
    }
    PyObject *text = PyUnicode_DecodeUTF8(part, (Py_ssize_t)length, "surrogatepass");
    bool is_kept = characters_of(part, length) <= cache->longest;
    bool done = text != NULL && add_found(cache, cache->terms_of_part, text, part, length, is_kept, out);
    Py_XDECREF(text);
    return done;
}

bool append_terms(PyObject *cache, const char *text, size_t length, TermBytes *out) {
    const char *end = text + length;
    bool done = true;
    while (done && text < end) {
        const char *space = memchr(text, ' ', (size_t)(end - text));
        const char *stop = space == NULL ? end : space;
        done = add_part((TermCache *)cache, text, (size_t)(stop - text), out);
        text = stop + 1;
    }
    return done;
}

static bool add_text(TermCache *cache, PyObject *text, TermBytes *out) {
    PyObject *encoded = encode_utf8(text);
    if (encoded == NULL) {
        return false;
    }
    char *bytes;
    Py_ssize_t length;
    bool done = PyBytes_AsStringAndSize(encoded, &bytes, &length) == 0 &&
                append_terms((PyObject *)cache, bytes, (size_t)length, out);
    Py_DECREF(encoded);
    return done;
}

#define TERM_MASK 0x7FFFFFFF /* `_TERM_MASK` in memory/search/terms.py */

/* A whole number is one word, with its sign. Digits are their own stem, so the term is the CRC of the word. */
static bool add_whole_number(TermCache *cache, PyObject *value, TermBytes *out) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (number == -1 && PyErr_Occurred()) {
        return false;
    }
    if (overflow) {
        return add_found(cache, cache->terms_of_value, value, NULL, 0, false, out);
    }
    char word[32];
    size_t length = (size_t)PyOS_snprintf(word, sizeof word, "%lld", number);
    uint32_t term = crc32_of(word, length, 0) & TERM_MASK;
    return append_bytes(out, (const char *)&term, sizeof term);
}

/* True and False are words. Their keys begin with a space, which no part has. */
static bool add_truth(TermCache *cache, PyObject *value, TermBytes *out) {
    const char *key = value == Py_True ? " true" : " false";
    size_t length = strlen(key);
    bool known = false;
    if (!add_known(cache, key, length, out, &known)) {
        return false;
    }
    return known || add_found(cache, cache->terms_of_value, value, key, length, true, out);
}

static bool add_value(TermCache *cache, PyObject *value, TermBytes *out) {
    if (PyFloat_CheckExact(value) || value == Py_None) {
        return true;
    }
    if (PyUnicode_CheckExact(value)) {
        return add_text(cache, value, out);
    }
    if (PyBool_Check(value)) {
        return add_truth(cache, value, out);
    }
    if (PyLong_CheckExact(value)) {
        return add_whole_number(cache, value, out);
    }
    return add_found(cache, cache->terms_of_value, value, NULL, 0, false, out);
}

static PyObject *cache_of_text(PyObject *self, PyObject *text) {
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "a text is needed");
        return NULL;
    }
    TermBytes out;
    START_TERMS(out);
    bool done = add_text((TermCache *)self, text, &out);
    return finish_terms(&out, done);
}

static PyObject *cache_of_leaves(PyObject *self, PyObject *leaves) {
    TermCache *cache = (TermCache *)self;
    if (!PyList_Check(leaves)) {
        PyErr_SetString(PyExc_TypeError, "a list of leaves is needed");
        return NULL;
    }
    TermBytes out;
    START_TERMS(out);
    bool done = true;
    for (Py_ssize_t at = 0; done && at < PyList_Size(leaves); at++) {
        PyObject *path, *value;
        done = open_leaf(leaves, at, &path, &value);
        if (done) {
            done = add_text(cache, path, &out) && add_value(cache, value, &out);
            Py_DECREF(path);
            Py_DECREF(value);
        }
    }
    return finish_terms(&out, done);
}

static PyObject *cache_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    PyObject *of_part, *of_value;
    Py_ssize_t capacity, longest;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "TermCache takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "OOnn", &of_part, &of_value, &capacity, &longest)) {
        return NULL;
    }
    if (!PyCallable_Check(of_part) || !PyCallable_Check(of_value) || capacity < 1) {
        PyErr_SetString(PyExc_ValueError, "two functions and a size of at least 1 are needed");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    TermCache *cache = (TermCache *)allocate(type, 0);
    if (cache == NULL) {
        return NULL;
    }
    cache->terms_of_part = Py_NewRef(of_part);
    cache->terms_of_value = Py_NewRef(of_value);
    cache->capacity = capacity;
    cache->longest = longest;
    if (!table_init(&cache->parts, 0)) {
        Py_DECREF(cache);
        return PyErr_NoMemory();
    }
    return (PyObject *)cache;
}

static void cache_dealloc(PyObject *self) {
    TermCache *cache = (TermCache *)self;
    PyTypeObject *type = Py_TYPE(self);
    table_free(&cache->parts);
    free(cache->terms);
    Py_XDECREF(cache->terms_of_part);
    Py_XDECREF(cache->terms_of_value);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static Py_ssize_t cache_length(PyObject *self) { return (Py_ssize_t)((TermCache *)self)->parts.used; }

static PyMethodDef cache_methods[] = {
    {"of_text", cache_of_text, METH_O, "of_text(text): return the terms of a text."},
    {"of_leaves", cache_of_leaves, METH_O, "of_leaves(leaves): return the terms of all paths and values."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_doc, "Search terms of texts, with a cache of the parts between spaces."},
    {Py_tp_new, cache_new},
    {Py_tp_dealloc, cache_dealloc},
    {Py_tp_methods, cache_methods},
    {Py_sq_length, cache_length},
    {0, NULL},
};

PyType_Spec term_cache_spec = {
    .name = "memory._core.TermCache",
    .basicsize = sizeof(TermCache),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = cache_slots,
};
