/* A search by text in one call: words, meaning, ranking, and the confidence of each hit.
 *
 * The question comes in pieces, the parts between its spaces, which memory/search/question.py prepares and
 * caches. The twin is what `by_text` in memory/search/ranking.py does for all other questions: `WordMatches`,
 * `embed_weighted`, `rank` and `Evidence`. The sums of the vector are 64-bit floats there too.
 */
#include "postings.h"
#include "rank.h"
#include "token_vectors.h"

#include <math.h>

#define MOST_WORDS 256   /* distinct words of a question */
#define MOST_TOKENS 1024 /* a question with more is left to the twin */
#define NO_WORD 0xFFFFFFFFu

/* -- the question ----------------------------------------------------------------------------------- */

typedef struct {
    Py_ssize_t count, seen_count, tokens;
    uint32_t terms[MOST_WORDS];
    PyObject *words[MOST_WORDS]; /* of the caller's pieces */
    bool is_content[MOST_WORDS]; /* no function word */
    double idf[MOST_WORDS];
    PyObject *seen[MOST_WORDS]; /* all distinct words: some have the same term */
    int32_t token[MOST_TOKENS];
    uint32_t token_terms[MOST_TOKENS];
} Question;

typedef enum { READ, UNUSUAL, FAILED } Reading;

static Py_ssize_t place_of(const Question *question, uint32_t term) {
    for (Py_ssize_t at = 0; at < question->count; at++) {
        if (question->terms[at] == term) {
            return at;
        }
    }
    return -1;
}

/* Add a word; the last distinct word of a term stands for it. Equal words are the same object. */
static bool add_word(Question *question, PyObject *word, uint32_t term, bool is_content) {
    for (Py_ssize_t at = 0; at < question->seen_count; at++) {
        if (question->seen[at] == word) {
            return true;
        }
    }
    if (question->seen_count == MOST_WORDS) {
        return false;
    }
    question->seen[question->seen_count++] = word;
    Py_ssize_t place = place_of(question, term);
    if (place < 0) {
        place = question->count++;
        question->terms[place] = term;
        question->is_content[place] = is_content;
    }
    question->words[place] = word;
    return true;
}

static bool bytes_of(PyObject *piece, Py_ssize_t at, Py_ssize_t item, const char **bytes, Py_ssize_t *count) {
    char *start;
    PyObject *object = element(piece, at, 6, "a piece of the question");
    if (object == NULL || PyBytes_AsStringAndSize(object, &start, count) < 0) {
        return false;
    }
    if (*count % item) {
        PyErr_SetString(PyExc_ValueError, "a piece of the question is cut");
        return false;
    }
    *bytes = start;
    *count /= item;
    return true;
}

static Reading read_piece(PyObject *piece, Question *question) {
    PyObject *words = element(piece, 0, 6, "a piece of the question");
    const char *terms, *is_content, *tokens, *token_terms;
    Py_ssize_t count, contents, token_count, owners;
    if (words == NULL || !bytes_of(piece, 1, 4, &terms, &count) ||
        !bytes_of(piece, 2, 1, &is_content, &contents) || !bytes_of(piece, 4, 4, &tokens, &token_count) ||
        !bytes_of(piece, 5, 4, &token_terms, &owners)) {
        return FAILED;
    }
    if (!PyTuple_Check(words) || PyTuple_Size(words) != count || contents != count || owners != token_count) {
        PyErr_SetString(PyExc_ValueError, "the parts of a piece of the question do not fit each other");
        return FAILED;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        uint32_t term;
        memcpy(&term, terms + 4 * at, 4);
        if (!add_word(question, PyTuple_GetItem(words, at), term, is_content[at] != 0)) {
            return UNUSUAL;
        }
    }
    if (token_count > MOST_TOKENS - question->tokens) {
        return UNUSUAL;
    }
    memcpy(question->token + question->tokens, tokens, (size_t)token_count * 4);
    memcpy(question->token_terms + question->tokens, token_terms, (size_t)token_count * 4);
    question->tokens += token_count;
    return READ;
}

/* -- looking up its words --------------------------------------------------------------------------- */

typedef struct {
    const uint32_t *terms, *packed;
    const int64_t *starts;
    Py_ssize_t count, size; /* of terms, and of postings */
    PyObject *tail;         /* a dict, or NULL */
    unsigned long most;
} Index;

static bool read_index(PyObject *object, Index *index, Buffers *buffers) {
    PyObject *given[5];
    for (Py_ssize_t at = 0; at < 5; at++) {
        given[at] = element(object, at, 5, "postings");
        if (given[at] == NULL) {
            return false;
        }
    }
    Py_ssize_t starts = 0;
    index->terms = open_array(buffers, given[0], "terms", KIND_UNSIGNED, 4, 0, &index->count);
    index->starts = index->terms ? open_array(buffers, given[1], "starts", KIND_SIGNED, 8, 1, &starts) : NULL;
    index->packed = index->starts ? open_array(buffers, given[2], "packed", KIND_UNSIGNED, 4, 0, &index->size) : NULL;
    if (index->packed == NULL) {
        return false;
    }
    index->tail = given[3] == Py_None ? NULL : given[3];
    index->most = PyLong_AsUnsignedLong(given[4]);
    if (PyErr_Occurred()) {
        return false;
    }
    if (starts != index->count + 1 || (index->tail != NULL && !PyDict_Check(index->tail))) {
        PyErr_SetString(PyExc_ValueError, "the parts of the postings do not fit each other");
        return false;
    }
    return true;
}

/* Why a search fails without the GIL, with which no exception can be set there. */
typedef enum { NO_PROBLEM, NO_MEMORY, BAD_START, BAD_POSTING, BAD_TOKEN } Problem;

static void raise_problem(Problem problem, Py_ssize_t memories) {
    if (problem == NO_MEMORY) {
        PyErr_NoMemory();
    } else if (problem == BAD_START) {
        PyErr_SetString(PyExc_ValueError, "a start is outside of the postings");
    } else if (problem == BAD_POSTING) {
        PyErr_Format(PyExc_ValueError, "a posting is outside of %zd memories", memories);
    } else if (problem == BAD_TOKEN) {
        PyErr_SetString(PyExc_ValueError, "a token has no vector");
    }
}

/* Write where the postings of a term are in the sorted part. Needs no GIL. */
static Problem find_sorted(const Index *index, uint32_t term, Py_ssize_t *bounds) {
    Py_ssize_t at = find_term(index->terms, index->count, term);
    bounds[0] = at < 0 ? 0 : (Py_ssize_t)index->starts[at];
    bounds[1] = at < 0 ? 0 : (Py_ssize_t)index->starts[at + 1];
    return bounds[0] < 0 || bounds[1] < bounds[0] || bounds[1] > index->size ? BAD_START : NO_PROBLEM;
}

/* Append the postings of a term in the tail. */
static bool find_late(const Index *index, uint32_t term, Gathered *gathered) {
    PyObject *key = PyLong_FromUnsignedLong(term);
    if (key == NULL) {
        return false;
    }
    PyObject *postings = PyDict_GetItemWithError(index->tail, key);
    Py_DECREF(key);
    return postings == NULL ? !PyErr_Occurred() : gather(postings, index->most, gathered);
}

/* Return whether a memory has one of the attributes of a piece: 1, 0, or -1 with an exception. */
static int has_attribute(PyObject *piece, const Index *index) {
    const char *attributes;
    Py_ssize_t count;
    if (!bytes_of(piece, 3, 4, &attributes, &count)) {
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        uint32_t term;
        Py_ssize_t bounds[2];
        Gathered late = {0};
        memcpy(&term, attributes + 4 * at, 4);
        if (find_sorted(index, term, bounds) != NO_PROBLEM) {
            raise_problem(BAD_START, 0);
            return -1;
        }
        bool done = index->tail == NULL || find_late(index, term, &late);
        bool found = bounds[0] < bounds[1] || late.used > 0;
        free(late.postings);
        if (!done || found) {
            return done ? 1 : -1;
        }
    }
    return 0;
}

/* The postings of all words: in the sorted part, and those of the tail, copied. */
typedef struct {
    Gathered late;
    Py_ssize_t sorted_bounds[2 * MOST_WORDS], late_bounds[2 * MOST_WORDS];
    Py_ssize_t frequencies[MOST_WORDS], found;
} Lookup;

static Py_ssize_t living_of(const uint32_t *postings, Py_ssize_t count, const uint8_t *living) {
    Py_ssize_t found = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        found += living[postings[at] >> COUNT_BITS] != 0;
    }
    return found;
}

/* Copy the postings of all words in the tail, which other threads may change without this thread's GIL. */
static bool copy_late(const Question *question, const Index *index, Lookup *lookup) {
    for (Py_ssize_t word = 0; word < question->count; word++) {
        Py_ssize_t *late = lookup->late_bounds + 2 * word;
        late[0] = lookup->late.used;
        if (index->tail != NULL && !find_late(index, question->terms[word], &lookup->late)) {
            return false;
        }
        late[1] = lookup->late.used;
    }
    return true;
}

/* Find all words in the sorted part, and check and count their postings. Needs no GIL. */
static Problem look_up(const Question *question, const Index *index, const Request *request, Lookup *lookup) {
    for (Py_ssize_t word = 0; word < question->count; word++) {
        Py_ssize_t *bounds = lookup->sorted_bounds + 2 * word, *late = lookup->late_bounds + 2 * word;
        Problem problem = find_sorted(index, question->terms[word], bounds);
        if (problem != NO_PROBLEM) {
            return problem;
        }
        const uint32_t *first = index->packed + bounds[0], *second = lookup->late.postings + late[0];
        Py_ssize_t counts[2] = {bounds[1] - bounds[0], late[1] - late[0]};
        if (!check_postings(first, counts[0], request->count) || !check_postings(second, counts[1], request->count)) {
            return BAD_POSTING;
        }
        lookup->frequencies[word] = request->living == NULL ? counts[0] + counts[1]
                                                            : living_of(first, counts[0], request->living) +
                                                                  living_of(second, counts[1], request->living);
        lookup->found += lookup->frequencies[word];
    }
    return NO_PROBLEM;
}

/* -- constants -------------------------------------------------------------------------------------- */

/* In the order of `_CONSTANTS` in memory/search/ranking.py. */
typedef struct {
    double k1, short_b, long_b, short_words, long_words, function_share, lowest_cosine;
    double constant, covered, known, nearest, behind, rank, size, known_in_size;
} Constants;

static double idf_of(Py_ssize_t frequency, Py_ssize_t memories) {
    double held = (double)(frequency < memories ? frequency : memories);
    return log(1 + ((double)memories - held + 0.5) / (held + 0.5));
}

/* -- its meaning ------------------------------------------------------------------------------------ */

/* Write the unit vector of the question: the mean of its tokens, weighted by the idf of their words.
 * Needs no GIL. */
static Problem embed(const Question *question, double unknown, const uint16_t *vectors, Py_ssize_t known,
                     Py_ssize_t dimensions, float *out) {
    double weights[MOST_TOKENS];
    bool any = false;
    for (Py_ssize_t at = 0; at < question->tokens; at++) {
        uint32_t term = question->token_terms[at];
        Py_ssize_t place = term == NO_WORD ? -1 : place_of(question, term);
        weights[at] = term == NO_WORD ? 0.0 : place < 0 ? unknown : question->idf[place];
        any |= weights[at] != 0.0;
        if (question->token[at] < 0 || question->token[at] >= known) {
            return BAD_TOKEN;
        }
    }
    double *sums = calloc((size_t)dimensions, sizeof *sums);
    float *row = malloc((size_t)dimensions * sizeof *row);
    bool done = sums != NULL && row != NULL;
    for (Py_ssize_t at = 0; done && at < question->tokens; at++) {
        double weight = any ? weights[at] : 1.0;
        if (weight == 0.0) {
            continue;
        }
        widen_token_vectors(vectors, (size_t)dimensions, question->token + at, 1, row);
        for (Py_ssize_t component = 0; component < dimensions; component++) {
            sums[component] += weight * (double)row[component];
        }
    }
    for (Py_ssize_t component = 0; done && component < dimensions; component++) {
        out[component] = (float)sums[component];
    }
    free(row);
    free(sums);
    if (done) {
        scale_to_unit(out, (size_t)dimensions);
    }
    return done ? NO_PROBLEM : NO_MEMORY;
}

/* -- the result ------------------------------------------------------------------------------------- */

static bool holds_word(const Lookup *lookup, const Index *index, Py_ssize_t word, uint32_t position) {
    const Py_ssize_t *bounds = lookup->sorted_bounds + 2 * word, *late = lookup->late_bounds + 2 * word;
    return holds(index->packed, bounds[0], bounds[1], position) ||
           holds(lookup->late.postings, late[0], late[1], position);
}

/* Write for each hit and each word whether the hit holds the word. Needs no GIL. */
static bool find_held(const Outcome *outcome, const Question *question, const Lookup *lookup, const Index *index,
                      bool **held) {
    size_t size = (size_t)outcome->found * (size_t)question->count;
    bool *to = *held = malloc(size ? size : 1);
    for (Py_ssize_t rank = 0; to != NULL && rank < outcome->found; rank++) {
        for (Py_ssize_t word = 0; word < question->count; word++) {
            *to++ = holds_word(lookup, index, word, (uint32_t)outcome->best[rank].position);
        }
    }
    return *held != NULL;
}

/* Return the words of the question that a hit holds; count those that are no function words. */
static PyObject *words_held(const Question *question, const bool *is_held, Py_ssize_t *contents) {
    PyObject *held[MOST_WORDS];
    Py_ssize_t count = 0;
    *contents = 0;
    for (Py_ssize_t word = 0; word < question->count; word++) {
        if (is_held[word]) {
            held[count++] = question->words[word];
            *contents += question->is_content[word];
        }
    }
    PyObject *words = PyTuple_New(count);
    for (Py_ssize_t at = 0; words != NULL && at < count; at++) {
        PyTuple_SetItem(words, at, Py_NewRef(held[at]));
    }
    return words;
}

typedef struct {
    double total, of_word, behind, rank;
} Confidence;

/* Compute what is the same for all hits; see `Evidence.confidences` in memory/search/confidence.py. */
static Confidence confidence_of(const Constants *constants, Py_ssize_t words, Py_ssize_t known,
                                double best_cosine, Py_ssize_t memories) {
    double distinct = words > 1 ? (double)words : 1.0, size = log((double)(memories > 1 ? memories : 1));
    double share = (double)known / distinct;
    double nearest = log(best_cosine > constants->lowest_cosine ? best_cosine : constants->lowest_cosine);
    double total = constants->constant;
    total += share * constants->known;
    total += nearest * constants->nearest;
    total += size * constants->size;
    total += share * size * constants->known_in_size;
    return (Confidence){total, constants->covered / distinct, constants->behind, constants->rank};
}

static double logistic(double total) { return total > -700 ? 1 / (1 + exp(-total)) : 0.0; }

typedef struct {
    const int64_t *seqs;
    const uint8_t *tiers;
} Columns;

/* Append an object to a list, and give up its reference. */
static bool append(PyObject *list, PyObject *object) {
    bool done = object != NULL && PyList_Append(list, object) == 0;
    Py_XDECREF(object);
    return done;
}

static PyObject *result_of(const Request *request, const Outcome *outcome, const Question *question,
                           const Lookup *lookup, const bool *is_held, const Columns *columns,
                           const Constants *constants, Py_ssize_t memories) {
    Py_ssize_t contents = 0, known = 0;
    for (Py_ssize_t word = 0; word < question->count; word++) {
        contents += question->is_content[word];
        known += question->is_content[word] && lookup->frequencies[word] > 0;
    }
    Confidence confidence = confidence_of(constants, contents, known, (double)outcome->best_cosine, memories);
    double best = outcome->found ? (double)outcome->best[0].score : 0.0;
    PyObject *seqs = PyList_New(0), *tiers = PyList_New(0), *held = PyList_New(0), *counts = PyList_New(0);
    PyObject *confidences = PyList_New(0), *scores = floats(outcome, NULL);
    PyObject *cosines = floats(outcome, outcome->cosines);
    PyObject *context = request->has_links ? floats(outcome, outcome->context) : Py_NewRef(Py_None);
    PyObject *bonus = request->bonus ? floats(outcome, request->bonus) : Py_NewRef(Py_None);
    bool done = seqs && tiers && held && counts && confidences && scores && cosines && context && bonus;
    for (Py_ssize_t rank = 0; done && rank < outcome->found; rank++) {
        int32_t position = outcome->best[rank].position;
        Py_ssize_t covered;
        PyObject *words = words_held(question, is_held + rank * question->count, &covered);
        double total = confidence.total + confidence.of_word * (double)covered;
        total += confidence.behind * (best - (double)outcome->best[rank].score);
        total += confidence.rank * log1p((double)rank);
        done = append(held, words) && append(counts, PyLong_FromSsize_t(covered)) &&
               append(confidences, PyFloat_FromDouble(logistic(total))) &&
               append(seqs, PyLong_FromLongLong(columns->seqs[position])) &&
               append(tiers, PyLong_FromLong(columns->tiers[position]));
    }
    PyObject *result = NULL;
    if (done) {
        result = Py_BuildValue("(OOOOOOOOOnnd)", seqs, tiers, scores, cosines, held, context, bonus, confidences,
                               counts, contents, known, (double)outcome->best_cosine);
    }
    PyObject *all[] = {seqs, tiers, held, counts, confidences, scores, cosines, context, bonus};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        Py_XDECREF(all[at]);
    }
    return result;
}

/* -- the call --------------------------------------------------------------------------------------- */

/* What a call works with; on the heap, because it is large. */
typedef struct {
    Buffers buffers;
    Request request;
    Outcome outcome;
    Question question;
    Index index;
    Lookup lookup;
    Columns columns;
    const Constants *constants;
    const uint16_t *token_vectors;
    Py_ssize_t memories, known_tokens;
    double word_count;
    float *vector;
    int8_t *code;
    bool *is_held; /* by hit and word */
} Call;

static bool read_vectors(PyObject *object, PyObject *tokens, Call *call) {
    Buffers *buffers = &call->buffers;
    Request *request = &call->request;
    PyObject *codes = element(object, 0, 2, "vectors"), *norms = element(object, 1, 2, "vectors");
    if (codes == NULL || norms == NULL) {
        return false;
    }
    Py_ssize_t components, halves, rows;
    request->codes = open_array(buffers, codes, "codes", KIND_SIGNED, 1, 1, &components);
    request->norms = request->codes ? open_array(buffers, norms, "norms", KIND_FLOAT, 4, request->count, &rows) : NULL;
    call->token_vectors = request->norms ? open_array(buffers, tokens, "tokens", KIND_FLOAT, 2, 1, &halves) : NULL;
    if (call->token_vectors == NULL) {
        return false;
    }
    request->dimensions = components / rows;
    bool fits = request->dimensions > 0 && request->dimensions <= 1 << 16 && components % rows == 0;
    if (!fits || halves % request->dimensions) {
        PyErr_SetString(PyExc_ValueError, "the vectors do not fit each other");
        return false;
    }
    call->known_tokens = halves / request->dimensions;
    return true;
}

static bool read_call(PyObject *const *arguments, Call *call) {
    Buffers *buffers = &call->buffers;
    Request *request = &call->request;
    /* Count, memories, word_count, vectors, postings, columns, living and links. */
    PyObject *index[8];
    for (Py_ssize_t at = 0; at < 8; at++) {
        index[at] = element(arguments[3], at, 8, "an index");
        if (index[at] == NULL) {
            return false;
        }
    }
    if (!read_counts(index[0], arguments[2], request) || !read_vectors(index[3], arguments[4], call) ||
        !read_index(index[4], &call->index, buffers) ||
        !read_filters(index[6], index[7], arguments[5], arguments[6], request, buffers)) {
        return false;
    }
    PyObject *columns[3];
    for (Py_ssize_t at = 0; at < 3; at++) {
        columns[at] = element(index[5], at, 3, "columns");
        if (columns[at] == NULL) {
            return false;
        }
    }
    Py_ssize_t rows = request->count;
    call->columns.seqs = open_array(buffers, columns[0], "seqs", KIND_SIGNED, 8, rows, NULL);
    call->columns.tiers =
        call->columns.seqs ? open_array(buffers, columns[1], "tiers", KIND_UNSIGNED, 1, rows, NULL) : NULL;
    request->words.lengths =
        call->columns.tiers ? open_array(buffers, columns[2], "lengths", KIND_FLOAT, 4, rows, NULL) : NULL;
    Py_ssize_t constants = sizeof(Constants) / sizeof(double);
    call->constants = request->words.lengths
                          ? open_array(buffers, arguments[7], "constants", KIND_FLOAT, 8, constants, NULL)
                          : NULL;
    if (call->constants == NULL) {
        return false;
    }
    call->memories = PyLong_AsSsize_t(index[1]);
    call->word_count = PyFloat_AsDouble(index[2]);
    return !PyErr_Occurred();
}

/* Give each word its weight, and the request what it ranks by. Needs no GIL. */
static Problem weigh(Call *call) {
    Request *request = &call->request;
    Words *words = &request->words;
    Question *question = &call->question;
    const Constants *constants = call->constants;
    Py_ssize_t memories = call->memories > 1 ? call->memories : 1;
    words->weights = malloc((size_t)(question->count ? question->count : 1) * sizeof(float));
    call->vector = malloc((size_t)request->dimensions * sizeof(float));
    call->code = malloc((size_t)request->dimensions);
    if (words->weights == NULL || call->vector == NULL || call->code == NULL) {
        return NO_MEMORY;
    }
    for (Py_ssize_t word = 0; word < question->count; word++) {
        double idf = idf_of(call->lookup.frequencies[word], memories);
        question->idf[word] = question->is_content[word] ? idf : idf * constants->function_share;
        words->weights[word] = (float)(question->idf[word] * (constants->k1 + 1));
    }
    double average = call->word_count / (double)memories;
    average = average > 1.0 ? average : 1.0;
    double length = (average - constants->short_words) / (constants->long_words - constants->short_words);
    length = length > 0.0 ? length : 0.0;
    double b = constants->short_b + (constants->long_b - constants->short_b) * (length < 1.0 ? length : 1.0);
    words->slope = (float)(constants->k1 * b / average);
    words->offset = (float)(constants->k1 * (1 - b));
    words->words = question->count;
    words->part_count = 2;
    words->parts[0] = (WordPart){call->index.packed, {call->lookup.sorted_bounds, question->count}};
    words->parts[1] = (WordPart){call->lookup.late.postings, {call->lookup.late_bounds, question->count}};
    request->has_words = call->lookup.found > 0;
    Problem problem = embed(question, idf_of(0, memories), call->token_vectors, call->known_tokens,
                            request->dimensions, call->vector);
    if (problem != NO_PROBLEM) {
        return problem;
    }
    double code_length = quantise_query(call->vector, call->code, request->dimensions);
    request->scale = (float)(1 / (code_length > 1.0 ? code_length : 1.0));
    request->query = call->code;
    return NO_PROBLEM;
}

/* Do all of a search that needs no GIL. */
static Problem search(Call *call) {
    Problem problem = look_up(&call->question, &call->index, &call->request, &call->lookup);
    problem = problem == NO_PROBLEM ? weigh(call) : problem;
    if (problem != NO_PROBLEM) {
        return problem;
    }
    rank_all(&call->request, &call->outcome);
    bool found = find_held(&call->outcome, &call->question, &call->lookup, &call->index, &call->is_held);
    return found ? NO_PROBLEM : NO_MEMORY;
}

static PyObject *answer(PyObject *const *arguments, Call *call) {
    PyObject *pieces = arguments[0];
    if (!read_call(arguments, call)) {
        return NULL;
    }
    if (!PyList_Check(pieces)) {
        PyErr_SetString(PyExc_TypeError, "a list of pieces is needed");
        return NULL;
    }
    int finds_people = PyObject_IsTrue(arguments[1]);
    for (Py_ssize_t at = 0; at < PyList_Size(pieces); at++) {
        PyObject *piece = PyList_GetItem(pieces, at);
        int found = finds_people > 0 ? has_attribute(piece, &call->index) : 0;
        Reading reading = found < 0 ? FAILED : read_piece(piece, &call->question);
        if (reading == FAILED) {
            return NULL;
        }
        if (reading == UNUSUAL || found > 0) {
            return Py_NewRef(Py_None);
        }
    }
    if (!copy_late(&call->question, &call->index, &call->lookup) ||
        !reserve_outcome(&call->request, &call->outcome)) {
        return NULL;
    }
    PyThreadState *state = begin_ranking(&call->request);
    Problem problem = search(call);
    end_ranking(state);
    if (problem != NO_PROBLEM) {
        raise_problem(problem, call->request.count);
        return NULL;
    }
    return result_of(&call->request, &call->outcome, &call->question, &call->lookup, call->is_held, &call->columns,
                     call->constants, call->memories);
}

static PyObject *rank_question(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (!check_argument_count("rank_question", given, 8)) {
        return NULL;
    }
    Call *call = malloc(sizeof *call);
    if (call == NULL) {
        return PyErr_NoMemory();
    }
    /* The large arrays are written before they are read. */
    call->buffers.count = 0;
    call->request = (Request){0};
    call->outcome = (Outcome){0};
    call->question.count = call->question.seen_count = call->question.tokens = 0;
    call->lookup.late = (Gathered){0};
    call->lookup.found = 0;
    call->vector = NULL;
    call->code = NULL;
    call->is_held = NULL;
    PyObject *result = answer(arguments, call);
    free_outcome(&call->outcome);
    free(call->request.words.weights);
    free(call->lookup.late.postings);
    free(call->vector);
    free(call->code);
    free(call->is_held);
    release_all(&call->buffers);
    free(call);
    return result;
}

PyMethodDef question_methods[] = {
    {"rank_question", (PyCFunction)(void (*)(void))rank_question, METH_FASTCALL,
     "rank_question(pieces, finds_people, k, index, token_vectors, bonus, allowed, constants): the k best memories "
     "for a question; see ranking.py."},
    {NULL, NULL, 0, NULL},
};
