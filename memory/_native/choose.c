/* Choose positions by a scan of all memories; the twins are in memory/search/_scans.py.
 *
 * Both functions return the chosen positions as the bytes of signed 64-bit numbers, ascending. */
#include "core.h"

#if CORE_X86
#include <immintrin.h>
#endif

/* Elements between two checks that there is room for more positions. */
#define TOGETHER 1024

typedef struct {
    int64_t *at;
    Py_ssize_t used, size;
} Chosen;

static bool reserve(Chosen *chosen, Py_ssize_t more) {
    if (chosen->used + more <= chosen->size) {
        return true;
    }
    Py_ssize_t size = 2 * chosen->size + more;
    int64_t *larger = realloc(chosen->at, (size_t)size * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    chosen->at = larger;
    chosen->size = size;
    return true;
}

/* Free the positions, and return them as bytes; NULL with an exception if there was no room for them. */
static PyObject *as_bytes(Chosen *chosen, bool is_complete) {
    PyObject *bytes = is_complete ? PyBytes_FromStringAndSize((const char *)chosen->at, chosen->used * 8)
                                  : PyErr_NoMemory();
    free(chosen->at);
    return bytes;
}

static void write_at_most(const uint16_t *numbers, Py_ssize_t first, Py_ssize_t end, uint16_t most, Chosen *chosen) {
    for (Py_ssize_t at = first; at < end; at++) {
        chosen->at[chosen->used] = at;
        chosen->used += numbers[at] <= most;
    }
}

#if CORE_X86
TARGET_AVX512 static void write_at_most_avx512(const uint16_t *numbers, Py_ssize_t first, Py_ssize_t end,
                                               uint16_t most, Chosen *chosen) {
    const __m512i limit = _mm512_set1_epi16((short)most);
    Py_ssize_t at = first;
    for (; at + 32 <= end; at += 32) {
        uint32_t found = _mm512_cmple_epu16_mask(_mm512_loadu_si512(numbers + at), limit);
        for (; found; found &= found - 1) {
            chosen->at[chosen->used++] = at + __builtin_ctz(found);
        }
    }
    write_at_most(numbers, at, end, most, chosen);
}
#endif

static PyObject *at_most(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("at_most", given, 2)) {
        return NULL;
    }
    long most = PyLong_AsLong(arguments[1]);
    Py_buffer numbers;
    if ((most == -1 && PyErr_Occurred()) ||
        !open_buffer(arguments[0], &numbers, "numbers", KIND_UNSIGNED, 2, false)) {
        return NULL;
    }
    Chosen chosen = {0};
    bool is_complete = true, is_fast = false;
#if CORE_X86
    is_fast = has_avx512();
#endif
    Py_ssize_t count = most < 0 ? 0 : count_of(&numbers);
    uint16_t limit = (uint16_t)(most > UINT16_MAX ? UINT16_MAX : most);
    PyThreadState *state = count > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t first = 0; is_complete && first < count; first += TOGETHER) {
        Py_ssize_t end = count - first < TOGETHER ? count : first + TOGETHER;
        is_complete = reserve(&chosen, TOGETHER);
        if (!is_complete) {
            break;
        }
#if CORE_X86
        if (is_fast) {
            write_at_most_avx512(numbers.buf, first, end, limit, &chosen);
            continue;
        }
#endif
        write_at_most(numbers.buf, first, end, limit, &chosen);
    }
    if (state) {
        PyEval_RestoreThread(state);
    }
    PyBuffer_Release(&numbers);
    return as_bytes(&chosen, is_complete);
}

/* What estimates are made of. */
typedef struct {
    const uint16_t *differing;
    const float *table;
    const float *words; /* or NULL */
    const float *bonus; /* or NULL */
    float weight, lowest;
} Estimates;

static void write_at_least(const Estimates *from, Py_ssize_t first, Py_ssize_t end, Chosen *chosen) {
    float values[TOGETHER];
    Py_ssize_t some = end - first;
    for (Py_ssize_t at = 0; at < some; at++) {
        values[at] = from->table[from->differing[first + at]];
    }
    if (from->words) {
        const float *words = from->words + first;
        for (Py_ssize_t at = 0; at < some; at++) {
            values[at] = words[at] * from->weight + values[at];
        }
    }
    if (from->bonus) {
        const float *bonus = from->bonus + first;
        for (Py_ssize_t at = 0; at < some; at++) {
            values[at] = values[at] + bonus[at];
        }
    }
    for (Py_ssize_t at = 0; at < some; at++) {
        chosen->at[chosen->used] = first + at;
        chosen->used += values[at] >= from->lowest;
    }
}

/* Write the positions of the estimates that are not below the lowest one. Return false without memory. */
static bool write_all_at_least(const Estimates *from, Py_ssize_t count, Chosen *chosen) {
    for (Py_ssize_t first = 0; first < count; first += TOGETHER) {
        if (!reserve(chosen, TOGETHER)) {
            return false;
        }
        write_at_least(from, first, count - first < TOGETHER ? count : first + TOGETHER, chosen);
    }
    return true;
}

/* Open an optional array of at least `count` floats. Without one, `view->buf` and `view->obj` are NULL. */
static bool open_optional(PyObject *object, Py_buffer *view, const char *name, Py_ssize_t count) {
    memset(view, 0, sizeof *view);
    if (object == Py_None) {
        return true;
    }
    if (!open_buffer(object, view, name, KIND_FLOAT, 4, false)) {
        return false;
    }
    if (count_of(view) < count) {
        PyErr_Format(PyExc_ValueError, "%s has %zd elements, not %zd", name, count_of(view), count);
        PyBuffer_Release(view);
        return false;
    }
    return true;
}

static PyObject *at_least(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("at_least", given, 6)) {
        return NULL;
    }
    double weight = PyFloat_AsDouble(arguments[3]), lowest = PyFloat_AsDouble(arguments[5]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer differing, table, words, bonus;
    PyObject *result = NULL;
    if (!open_buffer(arguments[0], &differing, "differing", KIND_UNSIGNED, 2, false)) {
        return NULL;
    }
    Py_ssize_t count = count_of(&differing);
    if (!open_buffer(arguments[1], &table, "table", KIND_FLOAT, 4, false)) {
        goto no_table;
    }
    if (!open_optional(arguments[2], &words, "words", count)) {
        goto no_words;
    }
    if (!open_optional(arguments[4], &bonus, "bonus", count)) {
        goto no_bonus;
    }
    Estimates from = {differing.buf, table.buf, words.buf, bonus.buf, (float)weight, (float)lowest};
    Chosen chosen = {0};
    bool is_complete = false;
    uint16_t largest = 0;
    PyThreadState *state = count > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t at = 0; at < count; at++) {
        largest = from.differing[at] > largest ? from.differing[at] : largest;
    }
    bool fits = count == 0 || largest < count_of(&table);
    if (fits) {
        is_complete = write_all_at_least(&from, count, &chosen);
    }
    if (state) {
        PyEval_RestoreThread(state);
    }
    if (fits) {
        result = as_bytes(&chosen, is_complete);
    } else {
        PyErr_Format(PyExc_ValueError, "%d is outside of a table of %zd", (int)largest, count_of(&table));
    }
    if (bonus.obj) {
        PyBuffer_Release(&bonus);
    }
no_bonus:
    if (words.obj) {
        PyBuffer_Release(&words);
    }
no_words:
    PyBuffer_Release(&table);
no_table:
    PyBuffer_Release(&differing);
    return result;
}

PyMethodDef choose_methods[] = {
    {"at_least", (PyCFunction)(void (*)(void))at_least, METH_FASTCALL,
     "at_least(differing, table, words, weight, bonus, lowest): the positions of the larger estimates."},
    {"at_most", (PyCFunction)(void (*)(void))at_most, METH_FASTCALL,
     "at_most(numbers, most): the positions of the numbers that are not larger."},
    {NULL, NULL, 0, NULL},
};
