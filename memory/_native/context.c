/* The neighbours of some memories in their conversations, and what these add to their scores; the twins are in
 * memory/search/_context.py.
 *
 * Both make every sum of 32-bit floats in the same order, so they give the same bits.
 */
#include "core.h"

/* The buffers of a call, in the order of its arguments. */
enum { POSITIONS, BEFORE, AFTER, OWN, SESSIONS, SCORES, OUT, BUFFERS };

static const struct {
    const char *name;
    ElementKind kind;
    Py_ssize_t item_size;
} forms[BUFFERS] = {
    {"positions", KIND_SIGNED, 8}, {"before", KIND_SIGNED, 4}, {"after", KIND_SIGNED, 4}, {"own", KIND_FLOAT, 4},
    {"sessions", KIND_SIGNED, 8},  {"scores", KIND_FLOAT, 4},  {"out", KIND_FLOAT, 4},
};

typedef struct {
    const int64_t *positions; /* ascending */
    const int32_t *before, *after;
    const float *own;
    const int64_t *sessions;
    const float *scores;
    float *out;
    Py_ssize_t count, memories;
    float near, far, peak, session;
    int64_t no_session;
} Call;

/* The places of a memory's neighbours among the positions; -1 if they are not there. */
typedef struct {
    int32_t before, after, before_it, after_it;
} Linked;

typedef struct {
    int64_t session;
    float best;
    bool used;
} Slot;

/* Return the place of the neighbour of the memory at a place, or -1. Most neighbours are next to it: they are stored one
 * after the other. Positions ascend, so the neighbour can't be there if one farther away comes next. */
static int32_t place_of(const Call *call, int64_t neighbour, Py_ssize_t at) {
    Py_ssize_t low, high;
    if (neighbour < call->positions[at]) {
        low = 0, high = at;
        if (at == 0 || call->positions[at - 1] <= neighbour) {
            return at > 0 && call->positions[at - 1] == neighbour ? (int32_t)(at - 1) : -1;
        }
    } else {
        low = at + 1, high = call->count;
        if (low == high || call->positions[low] >= neighbour) {
            return low < high && call->positions[low] == neighbour ? (int32_t)low : -1;
        }
    }
    Py_ssize_t end = high;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (call->positions[middle] < neighbour) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < end && call->positions[low] == neighbour ? (int32_t)low : -1;
}

static bool find_linked(const Call *call, Linked *linked) {
    for (Py_ssize_t at = 0; at < call->count; at++) {
        int64_t position = call->positions[at];
        if (position < 0 || position >= call->memories) {
            return false;
        }
        int64_t before = call->before[position], after = call->after[position];
        linked[at].before = before == position ? -1 : place_of(call, before, at);
        linked[at].after = after == position ? -1 : place_of(call, after, at);
    }
    for (Py_ssize_t at = 0; at < call->count; at++) {
        int32_t before = linked[at].before, after = linked[at].after;
        linked[at].before_it = before < 0 ? -1 : linked[before].before;
        linked[at].after_it = after < 0 ? -1 : linked[after].after;
    }
    return true;
}

static inline float score_at(const float *scores, int32_t place) { return place < 0 ? 0.0f : scores[place]; }

static void write_shares(const Call *call, const Linked *linked) {
    for (Py_ssize_t at = 0; at < call->count; at++) {
        float sum = call->own[call->positions[at]] * call->scores[at];
        sum = sum + call->near * score_at(call->scores, linked[at].before);
        sum = sum + call->near * score_at(call->scores, linked[at].after);
        sum = sum + call->far * score_at(call->scores, linked[at].before_it);
        sum = sum + call->far * score_at(call->scores, linked[at].after_it);
        call->out[at] = sum;
    }
}

static inline float larger(float one, float two) { return one > two ? one : two; }

/* Write the largest of each element and of two others, one or two turns away. */
static void widen(const Call *call, const Linked *linked, bool two_turns, const float *from, float *to) {
    for (Py_ssize_t at = 0; at < call->count; at++) {
        int32_t before = two_turns ? linked[at].before_it : linked[at].before;
        int32_t after = two_turns ? linked[at].after_it : linked[at].after;
        float best = before < 0 ? from[at] : larger(from[at], from[before]);
        to[at] = after < 0 ? best : larger(best, from[after]);
    }
}

/* Return the slot of a session, or the free one for it. There is always a free one. */
static Slot *slot_of(Slot *slots, size_t mask, int64_t session) {
    size_t at = (size_t)(((uint64_t)session * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & mask;
    while (slots[at].used && slots[at].session != session) {
        at = (at + 1) & mask;
    }
    return slots + at;
}

/* Add the best of each memory's session; `otherwise` for memories without a session. */
static bool add_sessions(const Call *call, const float *otherwise) {
    size_t runs = 0;
    for (Py_ssize_t at = 0; at < call->count; at++) {
        runs += at == 0 || call->sessions[at] != call->sessions[at - 1];
    }
    size_t size = 2;
    while (size < 2 * runs) {
        size *= 2;
    }
    Slot *slots = calloc(size, sizeof *slots), *slot = NULL;
    if (slots == NULL) {
        return false;
    }
    for (Py_ssize_t at = 0; at < call->count; at++) {
        if (slot == NULL || slot->session != call->sessions[at]) {
            slot = slot_of(slots, size - 1, call->sessions[at]);
        }
        slot->best = slot->used ? larger(slot->best, call->scores[at]) : call->scores[at];
        slot->session = call->sessions[at];
        slot->used = true;
    }
    for (Py_ssize_t at = 0; at < call->count; at++) {
        int64_t session = call->sessions[at];
        if (slot->session != session) {
            slot = slot_of(slots, size - 1, session);
        }
        call->out[at] += call->session * (session == call->no_session ? otherwise[at] : slot->best);
    }
    free(slots);
    return true;
}

typedef enum { DONE, NO_MEMORY, OUTSIDE } Outcome;

static Outcome write_context(const Call *call) {
    size_t count = (size_t)call->count;
    Linked *linked = calloc(count + 1, sizeof *linked);
    float *peaks = calloc(2 * count + 1, sizeof *peaks);
    Outcome outcome = linked == NULL || peaks == NULL ? NO_MEMORY : DONE;
    if (outcome == DONE && !find_linked(call, linked)) {
        outcome = OUTSIDE;
    }
    if (outcome == DONE && count > 0) {
        write_shares(call, linked);
        /* Each step widens the reach: to one, two and then four turns. */
        widen(call, linked, false, call->scores, peaks);
        widen(call, linked, false, peaks, peaks + count);
        widen(call, linked, true, peaks + count, peaks);
        for (size_t at = 0; at < count; at++) {
            call->out[at] += call->peak * peaks[at];
        }
        outcome = add_sessions(call, peaks) ? DONE : NO_MEMORY;
    }
    free(peaks);
    free(linked);
    return outcome;
}

static PyObject *context_of(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("context_of", given, BUFFERS + 2)) {
        return NULL;
    }
    float shares[4];
    if (!PyTuple_Check(arguments[BUFFERS]) || PyTuple_Size(arguments[BUFFERS]) != 4) {
        PyErr_SetString(PyExc_TypeError, "a tuple of four shares is needed");
        return NULL;
    }
    for (Py_ssize_t at = 0; at < 4; at++) {
        shares[at] = (float)PyFloat_AsDouble(PyTuple_GetItem(arguments[BUFFERS], at));
    }
    int64_t no_session = PyLong_AsLongLong(arguments[BUFFERS + 1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer views[BUFFERS];
    int opened = 0;
    while (opened < BUFFERS && open_buffer(arguments[opened], &views[opened], forms[opened].name,
                                           forms[opened].kind, forms[opened].item_size, opened == OUT)) {
        opened++;
    }
    Outcome outcome = DONE;
    bool fits = opened == BUFFERS;
    if (fits) {
        Call call = {views[POSITIONS].buf, views[BEFORE].buf, views[AFTER].buf, views[OWN].buf,
                     views[SESSIONS].buf, views[SCORES].buf, views[OUT].buf, count_of(&views[POSITIONS]),
                     count_of(&views[BEFORE]), shares[0], shares[1], shares[2], shares[3], no_session};
        fits = count_of(&views[AFTER]) >= call.memories && count_of(&views[OWN]) >= call.memories &&
               count_of(&views[SESSIONS]) == call.count && count_of(&views[SCORES]) == call.count &&
               count_of(&views[OUT]) == call.count && call.count < INT32_MAX;
        if (fits) {
            PyThreadState *state = call.count > FEW_ELEMENTS / 8 ? PyEval_SaveThread() : NULL;
            outcome = write_context(&call);
            if (state) {
                PyEval_RestoreThread(state);
            }
        } else {
            PyErr_SetString(PyExc_ValueError, "the arrays have different lengths");
        }
    }
    while (opened > 0) {
        PyBuffer_Release(&views[--opened]);
    }
    if (outcome == NO_MEMORY) {
        return PyErr_NoMemory();
    }
    if (outcome == OUTSIDE) {
        PyErr_SetString(PyExc_ValueError, "a position is outside of the links");
        return NULL;
    }
    return fits ? Py_NewRef(Py_None) : NULL;
}

/* Mark positions and those up to some links away in one direction. Return false if a position is outside. */
static bool mark_along(const int32_t *links, Py_ssize_t memories, const int64_t *positions, int64_t *at,
                       Py_ssize_t count, long turns, uint64_t *marks) {
    for (Py_ssize_t one = 0; one < count; one++) {
        at[one] = positions[one];
        if (at[one] < 0 || at[one] >= memories) {
            return false;
        }
        marks[at[one] / 64] |= UINT64_C(1) << (at[one] % 64);
    }
    /* All of them take one step before the next: so their reads from RAM overlap. */
    for (long turn = 0; turn < turns; turn++) {
        for (Py_ssize_t one = 0; one < count; one++) {
            int64_t next = links[at[one]];
            /* A later memory may have been linked since this view was made. */
            at[one] = next < memories ? next : memories - 1;
            if (at[one] < 0) {
                return false;
            }
            marks[at[one] / 64] |= UINT64_C(1) << (at[one] % 64);
        }
    }
    return true;
}

/* Return the marked positions, ascending, as bytes. */
static PyObject *marked(const uint64_t *marks, size_t words) {
    size_t count = 0;
    for (size_t word = 0; word < words; word++) {
        count += (size_t)__builtin_popcountll(marks[word]);
    }
    PyObject *found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t)));
    if (found == NULL) {
        return NULL;
    }
    char *out = PyBytes_AsString(found);
    for (size_t word = 0; word < words; word++) {
        for (uint64_t left = marks[word]; left != 0; left &= left - 1) {
            int64_t position = (int64_t)(word * 64) + __builtin_ctzll(left);
            memcpy(out, &position, sizeof position);
            out += sizeof position;
        }
    }
    return found;
}

static PyObject *around(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("around", given, 5)) {
        return NULL;
    }
    Py_ssize_t memories = PyLong_AsSsize_t(arguments[3]);
    long turns = PyLong_AsLong(arguments[4]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    static const int used[] = {POSITIONS, BEFORE, AFTER};
    Py_buffer views[3];
    int opened = 0;
    while (opened < 3 && open_buffer(arguments[opened], &views[opened], forms[used[opened]].name,
                                     forms[used[opened]].kind, forms[used[opened]].item_size, false)) {
        opened++;
    }
    PyObject *found = NULL;
    if (opened == 3) {
        Py_ssize_t count = count_of(&views[0]);
        bool fits = memories >= 0 && count_of(&views[1]) >= memories && count_of(&views[2]) >= memories;
        size_t words = fits ? (size_t)memories / 64 + 1 : 1;
        uint64_t *marks = calloc(words, sizeof *marks);
        int64_t *at = calloc((size_t)count + 1, sizeof *at);
        if (marks == NULL || at == NULL) {
            PyErr_NoMemory();
        } else if (!fits || !mark_along(views[1].buf, memories, views[0].buf, at, count, turns, marks) ||
                   !mark_along(views[2].buf, memories, views[0].buf, at, count, turns, marks)) {
            PyErr_SetString(PyExc_ValueError, "a position is outside of the links");
        } else {
            found = marked(marks, words);
        }
        free(at);
        free(marks);
    }
    while (opened > 0) {
        PyBuffer_Release(&views[--opened]);
    }
    return found;
}

PyMethodDef context_methods[] = {
    {"around", (PyCFunction)(void (*)(void))around, METH_FASTCALL,
     "around(positions, before, after, memories, turns): the positions and those around them, as bytes."},
    {"context_of", (PyCFunction)(void (*)(void))context_of, METH_FASTCALL,
     "context_of(positions, before, after, own, sessions, scores, out, shares, no_session): what neighbours add."},
    {NULL, NULL, 0, NULL},
};
