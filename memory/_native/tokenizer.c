/* The type Tokenizer: texts to tokens, and to the sums of their vectors.
 *
 * The twins are memory/embedding/tokens.py and memory/embedding/wordllama.py.
 */
#include "tokenizer.h"

#include "token_vectors.h"

#define FEWEST_TOKENS (3 + 256) /* the special tokens, then one for each byte */
#define MOST_TOKENS (1 << 15)

/* -- texts --------------------------------------------------------------------------------------- */

/* Return the part of a text that is embedded, in UTF-8, with a question mark for each lone surrogate. */
static PyObject *encode_text(const Tokenizer *tokenizer, PyObject *text) {
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "a text is needed");
        return NULL;
    }
    PyObject *part = NULL;
    if (PyUnicode_GetLength(text) > tokenizer->longest_text) {
        part = text = PyUnicode_Substring(text, 0, tokenizer->longest_text);
        if (text == NULL) {
            return NULL;
        }
    }
    PyObject *encoded = PyUnicode_AsUTF8String(text);
    if (encoded == NULL && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear();
        encoded = PyUnicode_AsEncodedString(text, "utf-8", "replace");
    }
    Py_XDECREF(part);
    return encoded;
}

TokenList *borrow_list(Tokenizer *tokenizer, TokenList *other) {
    if (!tokenizer->scratch_in_use) {
        tokenizer->scratch_in_use = true;
        tokenizer->scratch.has_cache = true;
        return &tokenizer->scratch;
    }
    memset(other, 0, sizeof *other);
    return other;
}

void return_list(Tokenizer *tokenizer, TokenList *list) {
    if (list != &tokenizer->scratch || list->marked_size > 1 << 16) {
        token_list_free(list);
    }
    if (list == &tokenizer->scratch) {
        tokenizer->scratch_in_use = false;
    }
}

/* A text with more bytes than this is tokenized without the GIL. */
#define FEW_BYTES 2000

/* Tokenize a text into a list that the caller returns. Return NULL with an exception if that fails. */
static TokenList *tokens_of(Tokenizer *tokenizer, PyObject *text, TokenList *other) {
    PyObject *encoded = encode_text(tokenizer, text);
    if (encoded == NULL) {
        return NULL;
    }
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(encoded, &bytes, &length) < 0) {
        Py_DECREF(encoded);
        return NULL;
    }
    TokenList *list = borrow_list(tokenizer, other);
    PyThreadState *state = length > FEW_BYTES ? PyEval_SaveThread() : NULL;
    bool done = tokenize(&tokenizer->vocabulary, bytes, (size_t)length, list);
    if (state) {
        PyEval_RestoreThread(state);
    }
    Py_DECREF(encoded);
    if (!done) {
        return_list(tokenizer, list);
        PyErr_NoMemory();
        return NULL;
    }
    return list;
}

/* -- sums ---------------------------------------------------------------------------------------- */

/* The arguments `vectors`, `out` and `few` of the methods below. */
typedef struct {
    Py_buffer vectors, out;
    size_t dimensions, few;
} Output;

static void close_output(Output *to) {
    PyBuffer_Release(&to->out);
    PyBuffer_Release(&to->vectors);
}

/* Open the vectors of the tokens, and the matrix that receives `rows` sums. */
static bool open_output(const Tokenizer *tokenizer, PyObject *const *arguments, Py_ssize_t rows, Output *to) {
    Py_ssize_t few = PyLong_AsSsize_t(arguments[2]);
    if (few < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "few is negative");
        }
        return false;
    }
    to->few = (size_t)few;
    if (!open_buffer(arguments[0], &to->vectors, "vectors", KIND_FLOAT, 2, false)) {
        return false;
    }
    if (!open_buffer(arguments[1], &to->out, "out", KIND_FLOAT, 4, true)) {
        PyBuffer_Release(&to->vectors);
        return false;
    }
    Py_ssize_t known = (Py_ssize_t)tokenizer->vocabulary.tokens.used;
    Py_ssize_t dimensions = count_of(&to->vectors) / known;
    to->dimensions = (size_t)dimensions;
    if (dimensions == 0 || count_of(&to->vectors) % known || count_of(&to->out) != rows * dimensions) {
        PyErr_Format(PyExc_ValueError, "vectors has %zd components for %zd tokens, out has %zd for %zd rows",
                     count_of(&to->vectors), known, count_of(&to->out), rows);
        close_output(to);
        return false;
    }
    return true;
}

bool is_short(const TokenList *list, size_t few) {
    return list->pieces <= few && (list->pieces != 1 || list->count <= few);
}

/* Return (times, vectors): how often each distinct token occurs, in the order of their first occurrence, and
 * their vectors as float32. */
static PyObject *distinct_tokens(const Tokenizer *tokenizer, const TokenList *list, const Output *to) {
    size_t vocabulary = tokenizer->vocabulary.tokens.used, count = 0;
    uint32_t *place = calloc(vocabulary, sizeof *place); /* plus 1 */
    float *times = malloc((list->count + 1) * sizeof *times);
    int32_t *tokens = malloc((list->count + 1) * sizeof *tokens);
    PyObject *result = NULL, *counts = NULL, *vectors = NULL;
    if (place == NULL || times == NULL || tokens == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (size_t at = 0; at < list->count; at++) {
        int32_t token = list->tokens[at];
        if (place[token] == 0) {
            tokens[count] = token;
            times[count++] = 0.0f;
            place[token] = (uint32_t)count;
        }
        times[place[token] - 1] += 1.0f;
    }
    counts = PyBytes_FromStringAndSize((const char *)times, (Py_ssize_t)(count * sizeof *times));
    vectors = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * to->dimensions * sizeof(float)));
    if (counts == NULL || vectors == NULL) {
        goto end;
    }
    float *wide = (float *)(void *)PyBytes_AsString(vectors);
    widen_token_vectors(to->vectors.buf, to->dimensions, tokens, count, wide);
    result = PyTuple_Pack(2, counts, vectors);
end:
    Py_XDECREF(counts);
    Py_XDECREF(vectors);
    free(place);
    free(times);
    free(tokens);
    return result;
}

static PyObject *tokenizer_sum(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Tokenizer *tokenizer = (Tokenizer *)self;
    Output to;
    if (!check_argument_count("sum", count, 4) || !open_output(tokenizer, arguments + 1, 1, &to)) {
        return NULL;
    }
    TokenList other, *list = tokens_of(tokenizer, arguments[0], &other);
    PyObject *result = NULL;
    if (list != NULL) {
        if (is_short(list, to.few)) {
            add_token_vectors(to.vectors.buf, to.dimensions, list->tokens, list->count, to.out.buf);
            result = Py_NewRef(Py_None);
        } else {
            result = distinct_tokens(tokenizer, list, &to);
        }
        return_list(tokenizer, list);
    }
    close_output(&to);
    return result;
}

static PyObject *tokenizer_sums(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Tokenizer *tokenizer = (Tokenizer *)self;
    if (!check_argument_count("sums", count, 4)) {
        return NULL;
    }
    PyObject *texts = PySequence_Tuple(arguments[0]);
    if (texts == NULL) {
        return NULL;
    }
    Py_ssize_t rows = PyTuple_Size(texts), opened = 0;
    PyObject *result = NULL;
    struct {
        PyObject *owner; /* bytes, which never change: they may be read without the GIL */
        char *bytes;
        Py_ssize_t length;
    } *encoded = calloc((size_t)rows + 1, sizeof *encoded);
    char *is_long = calloc((size_t)rows + 1, 1);
    Output to;
    if (encoded == NULL || is_long == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (; opened < rows; opened++) {
        PyObject *owner = encode_text(tokenizer, PyTuple_GetItem(texts, opened));
        encoded[opened].owner = owner;
        if (owner == NULL || PyBytes_AsStringAndSize(owner, &encoded[opened].bytes, &encoded[opened].length) < 0) {
            Py_XDECREF(owner);
            goto end;
        }
    }
    if (!open_output(tokenizer, arguments + 1, rows, &to)) {
        goto end;
    }
    TokenList other, *list = borrow_list(tokenizer, &other);
    list->has_cache = true;
    float *sums = to.out.buf;
    bool done = true;
    PyThreadState *state = PyEval_SaveThread();
    for (Py_ssize_t row = 0; row < rows && done; row++) {
        done = tokenize(&tokenizer->vocabulary, encoded[row].bytes, (size_t)encoded[row].length, list);
        if (done && is_short(list, to.few)) {
            add_token_vectors(to.vectors.buf, to.dimensions, list->tokens, list->count,
                              sums + (size_t)row * to.dimensions);
        } else {
            is_long[row] = 1;
        }
    }
    PyEval_RestoreThread(state);
    return_list(tokenizer, list);
    close_output(&to);
    result = done ? PyList_New(0) : PyErr_NoMemory();
    for (Py_ssize_t row = 0; result != NULL && row < rows; row++) {
        if (is_long[row]) {
            PyObject *number = PyLong_FromSsize_t(row);
            if (number == NULL || PyList_Append(result, number) < 0) {
                Py_CLEAR(result);
            }
            Py_XDECREF(number);
        }
    }
end:
    for (Py_ssize_t row = 0; row < opened; row++) {
        Py_DECREF(encoded[row].owner);
    }
    free(encoded);
    free(is_long);
    Py_DECREF(texts);
    return result;
}

static PyObject *tokenizer_tokens(PyObject *self, PyObject *text) {
    Tokenizer *tokenizer = (Tokenizer *)self;
    TokenList other, *list = tokens_of(tokenizer, text, &other);
    if (list == NULL) {
        return NULL;
    }
    PyObject *result = PyList_New((Py_ssize_t)list->count);
    for (size_t at = 0; result != NULL && at < list->count; at++) {
        PyObject *number = PyLong_FromLong(list->tokens[at]);
        if (number == NULL || PyList_SetItem(result, (Py_ssize_t)at, number) < 0) {
            Py_CLEAR(result);
        }
    }
    return_list(tokenizer, list);
    return result;
}

static PyObject *tokenizer_count(PyObject *self, PyObject *text) {
    Tokenizer *tokenizer = (Tokenizer *)self;
    TokenList other, *list = tokens_of(tokenizer, text, &other);
    if (list == NULL) {
        return NULL;
    }
    size_t count = list->count;
    return_list(tokenizer, list);
    return PyLong_FromSize_t(count);
}

/* -- the type ------------------------------------------------------------------------------------ */

/* Add the texts of all tokens, in the order of their numbers. */
static bool add_vocabulary(Tokenizer *tokenizer, PyObject *texts) {
    Py_ssize_t count = PyList_Size(texts);
    if (count < FEWEST_TOKENS || count > MOST_TOKENS) {
        PyErr_Format(PyExc_ValueError, "a vocabulary has %d to %d tokens, not %zd", FEWEST_TOKENS, MOST_TOKENS,
                     count);
        return false;
    }
    if (!table_init(&tokenizer->vocabulary.tokens, (size_t)count)) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t number = 0; number < count; number++) {
        PyObject *text = PyList_GetItem(texts, number);
        PyObject *encoded = text == NULL ? NULL : PyUnicode_AsUTF8String(text);
        if (encoded == NULL) {
            return false;
        }
        size_t length = (size_t)PyBytes_Size(encoded);
        bool done = table_put(&tokenizer->vocabulary.tokens, PyBytes_AsString(encoded), length, (uint64_t)number);
        Py_DECREF(encoded);
        if (!done) {
            PyErr_NoMemory();
            return false;
        }
        tokenizer->vocabulary.longest = length > tokenizer->vocabulary.longest ? length : tokenizer->vocabulary.longest;
    }
    if (tokenizer->vocabulary.tokens.used != (size_t)count) {
        PyErr_SetString(PyExc_ValueError, "two tokens have the same text");
        return false;
    }
    return true;
}

static PyObject *tokenizer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    PyObject *texts;
    Py_ssize_t longest_text;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Tokenizer takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "O!n", &PyList_Type, &texts, &longest_text)) {
        return NULL;
    }
    if (longest_text <= 0) {
        PyErr_SetString(PyExc_ValueError, "the longest text has no characters");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Tokenizer *tokenizer = (Tokenizer *)allocate(type, 0);
    if (tokenizer == NULL) {
        return NULL;
    }
    tokenizer->longest_text = longest_text;
    if (!add_vocabulary(tokenizer, texts)) {
        Py_DECREF(tokenizer);
        return NULL;
    }
    return (PyObject *)tokenizer;
}

static void tokenizer_dealloc(PyObject *self) {
    Tokenizer *tokenizer = (Tokenizer *)self;
    PyTypeObject *type = Py_TYPE(self);
    table_free(&tokenizer->vocabulary.tokens);
    token_list_free(&tokenizer->scratch);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef tokenizer_methods[] = {
    {"sum", (PyCFunction)(void (*)(void))tokenizer_sum, METH_FASTCALL,
     "sum(text, vectors, out, few): write the sum of the tokens' vectors, or return (times, vectors) of a long text."},
    {"sums", (PyCFunction)(void (*)(void))tokenizer_sums, METH_FASTCALL,
     "sums(texts, vectors, out, few): write the sums of all short texts, and return the numbers of the long ones."},
    {"tokens", tokenizer_tokens, METH_O, "tokens(text): return the tokens of a text."},
    {"count", tokenizer_count, METH_O, "count(text): return the number of tokens of a text."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tokenizer_slots[] = {
    {Py_tp_doc, "The tokenizer of the default embedder."},
    {Py_tp_new, tokenizer_new},
    {Py_tp_dealloc, tokenizer_dealloc},
    {Py_tp_methods, tokenizer_methods},
    {0, NULL},
};

PyType_Spec tokenizer_spec = {
    .name = "memory._core.Tokenizer",
    .basicsize = sizeof(Tokenizer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tokenizer_slots,
};
