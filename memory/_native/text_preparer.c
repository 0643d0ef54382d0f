/* The type TextPreparer: texts to all that is stored of them, in one call.
 *
 * After each commit the caches of the processor are cold, so a memory takes as long as the code and the objects
 * that it touches. The twins are what memory/_write/intake.py does for other contents: `encode_body`,
 * `digest_of`, the embedder and `terms_of_memory`.
 */
#include "term_cache.h"
#include "token_vectors.h"
#include "tokenizer.h"

#include <math.h>

typedef struct {
    PyObject_HEAD
    PyObject *tokenizer, *cache;
    Py_buffer vectors; /* float16, one row for each token */
    size_t dimensions, few;
} TextPreparer;

/* One text on its way. The bytes are filled without the GIL, before Python code can see them. */
typedef struct {
    PyObject *text, *body; /* bytes; NULL for a text that only the twins can prepare */
    PyObject *vector;      /* bytes; NULL if no vector is wanted */
    const char *metadata, *ending;  /* of bytes that the caller holds */
    Py_ssize_t metadata_size, ending_size;
    uint64_t digest;
} Prepared;

#define PAIR 0x92 /* MessagePack for "two values follow" */
#define MOST_BYTES 0xFFFFFFFF

/* Write the head of a text in MessagePack, and return its length. */
static size_t write_head(size_t length, unsigned char *out) {
    if (length < 32) {
        out[0] = (unsigned char)(0xA0 | length);
        return 1;
    }
    int bytes = length < 1 << 8 ? 1 : length < 1 << 16 ? 2 : 4;
    out[0] = bytes == 1 ? 0xD9 : bytes == 2 ? 0xDA : 0xDB;
    for (int at = 0; at < bytes; at++) {
        out[1 + at] = (unsigned char)(length >> 8 * (bytes - 1 - at));
    }
    return 1 + (size_t)bytes;
}

void scale_to_unit(float *vector, size_t dimensions) {
    double square = 0.0;
    for (size_t at = 0; at < dimensions; at++) {
        square += (double)vector[at] * (double)vector[at];
    }
    if (!(square > 0.0)) {
        memset(vector, 0, dimensions * sizeof *vector);
        return;
    }
    float length = (float)sqrt(square);
    for (size_t at = 0; at < dimensions; at++) {
        vector[at] /= length;
    }
}

/* Begin with a text. Return false with an exception if that fails. */
static bool begin(const TextPreparer *self, PyObject *text, PyObject *metadata, PyObject *ending,
                  bool has_vector, Prepared *one) {
    const Tokenizer *tokenizer = (const Tokenizer *)self->tokenizer;
    if (PyBytes_AsStringAndSize(metadata, (char **)&one->metadata, &one->metadata_size) < 0 ||
        PyBytes_AsStringAndSize(ending, (char **)&one->ending, &one->ending_size) < 0) {
        return false;
    }
    if (!PyUnicode_CheckExact(text) || PyUnicode_GetLength(text) > tokenizer->longest_text) {
        return true;
    }
    one->text = PyUnicode_AsUTF8String(text);
    if (one->text == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            return false;
        }
        PyErr_Clear(); /* a lone surrogate */
        return true;
    }
    Py_ssize_t length = PyBytes_Size(one->text);
    unsigned char head[8];
    if (length > MOST_BYTES) {
        Py_CLEAR(one->text);
        return true;
    }
    Py_ssize_t head_length = (Py_ssize_t)write_head((size_t)length, head);
    one->body = PyBytes_FromStringAndSize(NULL, 1 + head_length + length + one->metadata_size);
    if (has_vector) {
        one->vector = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(self->dimensions * sizeof(float)));
    }
    return one->body != NULL && (one->vector != NULL || !has_vector);
}

/* Fill body, digest and vector. Needs no GIL. Return false without memory. */
static bool fill(const TextPreparer *self, TokenList *list, Prepared *one, bool *is_usual) {
    const Tokenizer *tokenizer = (const Tokenizer *)self->tokenizer;
    const char *text = PyBytes_AsString(one->text);
    size_t length = (size_t)PyBytes_Size(one->text);
    *is_usual = true;
    if (one->vector != NULL) {
        if (!tokenize(&tokenizer->vocabulary, text, length, list)) {
            return false;
        }
        *is_usual = is_short(list, self->few);
        if (!*is_usual) {
            return true;
        }
        float *vector = (float *)(void *)PyBytes_AsString(one->vector);
        add_token_vectors(self->vectors.buf, self->dimensions, list->tokens, list->count, vector);
        scale_to_unit(vector, self->dimensions);
    }
    char *body = PyBytes_AsString(one->body);
    size_t head = write_head(length, (unsigned char *)body + 1);
    body[0] = (char)PAIR;
    memcpy(body + 1 + head, text, length);
    memcpy(body + 1 + head + length, one->metadata, (size_t)one->metadata_size);
    one->digest = blake2b_of(body + 1, head + length) >> 1;
    return true;
}

/* Return (body, digest, vector, terms), or None for a text that only the twins can prepare. If no vector is
 * wanted, it is None. */
static PyObject *finish(const TextPreparer *self, const Prepared *one) {
    if (one->text == NULL) {
        return Py_NewRef(Py_None);
    }
    TermBytes out;
    START_TERMS(out);
    bool done = append_terms(self->cache, PyBytes_AsString(one->text), (size_t)PyBytes_Size(one->text), &out) &&
                append_bytes(&out, one->ending, (size_t)one->ending_size);
    PyObject *terms = finish_terms(&out, done);
    PyObject *digest = terms == NULL ? NULL : PyLong_FromUnsignedLongLong(one->digest);
    PyObject *result = digest == NULL ? NULL : PyTuple_Pack(4, one->body, digest, one->vector ? one->vector : Py_None, terms);
    Py_XDECREF(digest);
    Py_XDECREF(terms);
    return result;
}

static void release(Prepared *one) {
    Py_CLEAR(one->text);
    Py_CLEAR(one->body);
    Py_CLEAR(one->vector);
}

/* Texts with fewer bytes in all are prepared with the GIL. */
#define FEW_BYTES 2000

/* Fill all texts that were begun. Return false with an exception if that fails. */
static bool fill_all(TextPreparer *self, Prepared *all, Py_ssize_t count) {
    Tokenizer *tokenizer = (Tokenizer *)self->tokenizer;
    TokenList other, *list = borrow_list(tokenizer, &other);
    bool done = true, has_few = count == 1 && (all->text == NULL || PyBytes_Size(all->text) < FEW_BYTES);
    bool *is_usual = count == 1 ? &(bool){false} : calloc((size_t)count, sizeof *is_usual);
    list->has_cache = true;
    if (is_usual != NULL) {
        PyThreadState *state = has_few ? NULL : PyEval_SaveThread();
        for (Py_ssize_t at = 0; done && at < count; at++) {
            done = all[at].text == NULL || fill(self, list, all + at, is_usual + at);
        }
        if (state) {
            PyEval_RestoreThread(state);
        }
    }
    return_list(tokenizer, list);
    if (is_usual == NULL || !done) {
        PyErr_NoMemory();
        done = false;
    }
    for (Py_ssize_t at = 0; done && at < count; at++) {
        if (!is_usual[at]) {
            release(all + at);
        }
    }
    if (count != 1) {
        free(is_usual);
    }
    return done;
}

static PyObject *preparer_of_text(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    TextPreparer *preparer = (TextPreparer *)self;
    Prepared one = {0};
    PyObject *result = NULL;
    if (!check_argument_count("of_text", count, 3)) {
        return NULL;
    }
    if (begin(preparer, arguments[0], arguments[1], arguments[2], true, &one) && fill_all(preparer, &one, 1)) {
        result = finish(preparer, &one);
    }
    release(&one);
    return result;
}

static PyObject *prepare_all(TextPreparer *self, PyObject *const *columns, bool has_vectors, Prepared *all,
                             Py_ssize_t rows) {
    for (Py_ssize_t row = 0; row < rows; row++) {
        if (!begin(self, PyTuple_GetItem(columns[0], row), PyTuple_GetItem(columns[1], row),
                   PyTuple_GetItem(columns[2], row), has_vectors, all + row)) {
            return NULL;
        }
    }
    PyObject *result = rows == 0 || fill_all(self, all, rows) ? PyList_New(rows) : NULL;
    for (Py_ssize_t row = 0; result != NULL && row < rows; row++) {
        PyObject *one = finish(self, all + row);
        if (one == NULL || PyList_SetItem(result, row, one) < 0) {
            Py_CLEAR(result);
        }
    }
    return result;
}

static PyObject *preparer_of_texts(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    PyObject *columns[3] = {NULL, NULL, NULL}, *result = NULL;
    if (!check_argument_count("of_texts", count, 4)) {
        return NULL;
    }
    int has_vectors = PyObject_IsTrue(arguments[3]);
    if (has_vectors < 0) {
        return NULL;
    }
    bool done = true;
    for (int at = 0; done && at < 3; at++) {
        columns[at] = PySequence_Tuple(arguments[at]);
        done = columns[at] != NULL;
        if (done && PyTuple_Size(columns[at]) != PyTuple_Size(columns[0])) {
            PyErr_SetString(PyExc_ValueError, "every text needs its metadata and an ending");
            done = false;
        }
    }
    Py_ssize_t rows = done ? PyTuple_Size(columns[0]) : 0;
    Prepared *all = done ? calloc((size_t)rows + 1, sizeof *all) : NULL;
    if (all != NULL) {
        result = prepare_all((TextPreparer *)self, columns, has_vectors, all, rows);
    } else if (done) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t row = 0; all != NULL && row < rows; row++) {
        release(all + row);
    }
    free(all);
    for (int at = 0; at < 3; at++) {
        Py_XDECREF(columns[at]);
    }
    return result;
}

/* -- the type ------------------------------------------------------------------------------------ */

/* Return whether an object is of a type of this module; if not, set an exception. */
static bool is_of_type(PyTypeObject *type, PyObject *object, const char *name) {
    PyObject *module = PyType_GetModule(type);
    PyObject *wanted = module == NULL ? NULL : PyObject_GetAttrString(module, name);
    int fits = wanted == NULL ? -1 : PyObject_IsInstance(object, wanted);
    Py_XDECREF(wanted);
    if (fits == 0) {
        PyErr_Format(PyExc_TypeError, "a %s is needed", name);
    }
    return fits == 1;
}

static PyObject *preparer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    PyObject *tokenizer, *vectors, *cache;
    Py_ssize_t few;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "TextPreparer takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "OOnO", &tokenizer, &vectors, &few, &cache) ||
        !is_of_type(type, tokenizer, "Tokenizer") || !is_of_type(type, cache, "TermCache")) {
        return NULL;
    }
    Py_buffer view;
    if (!open_buffer(vectors, &view, "vectors", KIND_FLOAT, 2, false)) {
        return NULL;
    }
    Py_ssize_t known = (Py_ssize_t)((Tokenizer *)tokenizer)->vocabulary.tokens.used;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    TextPreparer *preparer = NULL;
    if (few < 0 || count_of(&view) == 0 || count_of(&view) % known) {
        PyErr_Format(PyExc_ValueError, "vectors has %zd components for %zd tokens", count_of(&view), known);
    } else {
        preparer = (TextPreparer *)allocate(type, 0);
    }
    if (preparer == NULL) {
        PyBuffer_Release(&view);
        return NULL;
    }
    preparer->tokenizer = Py_NewRef(tokenizer);
    preparer->cache = Py_NewRef(cache);
    preparer->vectors = view;
    preparer->dimensions = (size_t)(count_of(&view) / known);
    preparer->few = (size_t)few;
    return (PyObject *)preparer;
}

static void preparer_dealloc(PyObject *self) {
    TextPreparer *preparer = (TextPreparer *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyBuffer_Release(&preparer->vectors);
    Py_XDECREF(preparer->tokenizer);
    Py_XDECREF(preparer->cache);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_object(self);
    Py_DECREF(type);
}

static PyMethodDef preparer_methods[] = {
    {"of_text", (PyCFunction)(void (*)(void))preparer_of_text, METH_FASTCALL,
     "of_text(text, metadata, ending): return (body, digest, vector, terms), or None where the twins are needed."},
    {"of_texts", (PyCFunction)(void (*)(void))preparer_of_texts, METH_FASTCALL,
     "of_texts(texts, metadata, endings, vectors): return what of_text returns, for each text; without vectors, "
     "None takes their place."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot preparer_slots[] = {
    {Py_tp_doc, "Texts to all that is stored of them."},
    {Py_tp_new, preparer_new},
    {Py_tp_dealloc, preparer_dealloc},
    {Py_tp_methods, preparer_methods},
    {0, NULL},
};

PyType_Spec text_preparer_spec = {
    .name = "memory._core.TextPreparer",
    .basicsize = sizeof(TextPreparer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = preparer_slots,
};
