/* The scans of a search: words, sign bits and vectors; the twins are in memory/search/_scans.py.
 *
 * All of them give bit for bit what their twins give: the same operations on 32-bit floats in the same order.
 */
#include "bounds.h"
#include "scans.h"

#if CORE_X86
#include <immintrin.h>
#endif

/* Postings whose contributions are computed together: enough for the compiler to use vector division. */
#define TOGETHER 128

void add_postings(float *restrict scores, const float *restrict lengths, const uint32_t *postings,
                  Py_ssize_t count, float weight, float slope, float offset) {
    float parts[TOGETHER];
    for (Py_ssize_t first = 0; first < count; first += TOGETHER) {
        Py_ssize_t some = count - first < TOGETHER ? count - first : TOGETHER;
        const uint32_t *part = postings + first;
        for (Py_ssize_t at = 0; at < some; at++) {
            parts[at] = lengths[part[at] >> COUNT_BITS];
        }
        for (Py_ssize_t at = 0; at < some; at++) {
            float occurrences = (float)(int32_t)(part[at] & COUNT_MASK);
            float saturation = parts[at] * slope;
            saturation = saturation + offset;
            saturation = saturation + occurrences;
            parts[at] = occurrences * weight / saturation;
        }
        for (Py_ssize_t at = 0; at < some; at++) {
            scores[part[at] >> COUNT_BITS] += parts[at];
        }
    }
}

bool check_postings(const uint32_t *postings, Py_ssize_t count, Py_ssize_t rows) {
    uint32_t last = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        uint32_t position = postings[at] >> COUNT_BITS;
        last = position > last ? position : last;
    }
    return count == 0 || (Py_ssize_t)last < rows;
}

static PyObject *add_words(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (!check_argument_count("add_words", count, 7)) {
        return NULL;
    }
    double slope = PyFloat_AsDouble(arguments[5]);
    double offset = PyFloat_AsDouble(arguments[6]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *given = arguments[4];
    if (!PyList_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a list of weights is needed");
        return NULL;
    }
    Py_buffer scores, lengths, postings;
    if (!open_buffer(arguments[0], &scores, "scores", KIND_FLOAT, 4, true)) {
        return NULL;
    }
    if (!open_buffer(arguments[1], &lengths, "lengths", KIND_FLOAT, 4, false)) {
        goto no_lengths;
    }
    if (!open_buffer(arguments[2], &postings, "postings", KIND_UNSIGNED, 4, false)) {
        goto no_postings;
    }
    Bounds bounds = {NULL, 0};
    Py_ssize_t words = PyList_Size(given), rows = count_of(&scores);
    float *weights = malloc((size_t)(words ? words : 1) * sizeof *weights);
    if (weights == NULL) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t word = 0; weights != NULL && word < words; word++) {
        weights[word] = (float)PyFloat_AsDouble(PyList_GetItem(given, word));
    }
    bool fits = !PyErr_Occurred() && read_bounds(arguments[3], count_of(&postings), words, &bounds);
    if (fits) {
        Py_ssize_t found = 0;
        for (Py_ssize_t word = 0; word < words; word++) {
            found += bounds.at[2 * word + 1] - bounds.at[2 * word];
        }
        fits = rows == count_of(&lengths);
        PyThreadState *state = found > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
        for (Py_ssize_t word = 0; fits && word < words; word++) {
            const uint32_t *first = (const uint32_t *)postings.buf + bounds.at[2 * word];
            Py_ssize_t size = bounds.at[2 * word + 1] - bounds.at[2 * word];
            fits = check_postings(first, size, rows);
            if (fits) {
                add_postings(scores.buf, lengths.buf, first, size, weights[word], (float)slope, (float)offset);
            }
        }
        if (state) {
            PyEval_RestoreThread(state);
        }
        if (!fits) {
            PyErr_Format(PyExc_ValueError, "a posting is outside of %zd memories", rows);
        }
    }
    free(bounds.at);
    free(weights);
    PyBuffer_Release(&postings);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&scores);
    return fits ? Py_NewRef(Py_None) : NULL;
no_postings:
    PyBuffer_Release(&lengths);
no_lengths:
    PyBuffer_Release(&scores);
    return NULL;
}

typedef void (*CountDifferences)(const uint64_t *bits, Py_ssize_t stride, const uint64_t *query,
                                 Py_ssize_t words, Py_ssize_t rows, uint16_t *out);

static inline void differences_of_rows(const uint64_t *bits, Py_ssize_t stride, const uint64_t *query,
                                       Py_ssize_t words, Py_ssize_t first, Py_ssize_t rows, uint16_t *out) {
    for (Py_ssize_t row = first; row < rows; row++) {
        unsigned differing = 0;
        for (Py_ssize_t word = 0; word < words; word++) {
            differing += (unsigned)__builtin_popcountll(bits[word * stride + row] ^ query[word]);
        }
        out[row] = (uint16_t)differing;
    }
}

static void differences_plain(const uint64_t *bits, Py_ssize_t stride, const uint64_t *query, Py_ssize_t words,
                              Py_ssize_t rows, uint16_t *out) {
    differences_of_rows(bits, stride, query, words, 0, rows, out);
}

#if CORE_X86
TARGET_AVX2 static void differences_popcnt(const uint64_t *bits, Py_ssize_t stride, const uint64_t *query,
                                           Py_ssize_t words, Py_ssize_t rows, uint16_t *out) {
    differences_of_rows(bits, stride, query, words, 0, rows, out);
}

#define TARGET_POPCNT512 \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,avx2,popcnt")))

TARGET_POPCNT512 static void differences_avx512(const uint64_t *bits, Py_ssize_t stride, const uint64_t *query,
                                                Py_ssize_t words, Py_ssize_t rows, uint16_t *out) {
    Py_ssize_t row = 0;
    for (; row + 16 <= rows; row += 16) {
        __m512i low = _mm512_setzero_si512(), high = _mm512_setzero_si512();
        for (Py_ssize_t word = 0; word < words; word++) {
            const uint64_t *at = bits + word * stride + row;
            __m512i wanted = _mm512_set1_epi64((long long)query[word]);
            low = _mm512_add_epi64(
                low, _mm512_popcnt_epi64(_mm512_xor_si512(_mm512_loadu_si512(at), wanted)));
            high = _mm512_add_epi64(
                high, _mm512_popcnt_epi64(_mm512_xor_si512(_mm512_loadu_si512(at + 8), wanted)));
        }
        _mm_storeu_si128((__m128i *)(void *)(out + row), _mm512_cvtepi64_epi16(low));
        _mm_storeu_si128((__m128i *)(void *)(out + row + 8), _mm512_cvtepi64_epi16(high));
    }
    differences_of_rows(bits, stride, query, words, row, rows, out);
}
#endif

static CountDifferences best_differences(void) {
#if CORE_X86
    if (has_avx512() && __builtin_cpu_supports("avx512vpopcntdq")) {
        return differences_avx512;
    }
    if (has_avx2()) {
        return differences_popcnt;
    }
#endif
    return differences_plain;
}

static PyObject *differing_signs(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (!check_argument_count("differing_signs", count, 3)) {
        return NULL;
    }
    Py_buffer bits, query, out;
    if (!open_buffer(arguments[0], &bits, "bits", KIND_UNSIGNED, 8, false)) {
        return NULL;
    }
    if (!open_buffer(arguments[1], &query, "query", KIND_UNSIGNED, 8, false)) {
        PyBuffer_Release(&bits);
        return NULL;
    }
    if (!open_buffer(arguments[2], &out, "out", KIND_UNSIGNED, 2, true)) {
        PyBuffer_Release(&query);
        PyBuffer_Release(&bits);
        return NULL;
    }
    Py_ssize_t words = count_of(&query), rows = count_of(&out);
    Py_ssize_t stride = words ? count_of(&bits) / words : 0;
    bool fits = words > 0 && words <= 1024 && stride * words == count_of(&bits) && rows <= stride;
    if (fits) {
        PyThreadState *state = rows > FEW_ELEMENTS ? PyEval_SaveThread() : NULL;
        best_differences()(bits.buf, stride, query.buf, words, rows, out.buf);
        if (state) {
            PyEval_RestoreThread(state);
        }
    } else {
        PyErr_Format(PyExc_ValueError, "%zd words of bits are no %zd vectors of %zd words", count_of(&bits),
                     rows, words);
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&query);
    PyBuffer_Release(&bits);
    return fits ? Py_NewRef(Py_None) : NULL;
}

typedef int32_t (*Product)(const int8_t *left, const int8_t *right, Py_ssize_t dimensions);

static int32_t product_plain(const int8_t *left, const int8_t *right, Py_ssize_t dimensions) {
    int32_t sum = 0;
    for (Py_ssize_t at = 0; at < dimensions; at++) {
        sum += (int32_t)left[at] * (int32_t)right[at];
    }
    return sum;
}

#if CORE_X86
TARGET_AVX2 static int32_t product_avx2(const int8_t *left, const int8_t *right, Py_ssize_t dimensions) {
    __m256i sums = _mm256_setzero_si256();
    Py_ssize_t at = 0;
    for (; at + 16 <= dimensions; at += 16) {
        __m256i one = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(left + at)));
        __m256i two = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(right + at)));
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(one, two));
    }
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half) + product_plain(left + at, right + at, dimensions - at);
}

TARGET_AVX512 static int32_t product_avx512(const int8_t *left, const int8_t *right, Py_ssize_t dimensions) {
    __m512i sums = _mm512_setzero_si512();
    Py_ssize_t at = 0;
    for (; at + 32 <= dimensions; at += 32) {
        __m512i one = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(left + at)));
        __m512i two = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(right + at)));
        sums = _mm512_add_epi32(sums, _mm512_madd_epi16(one, two));
    }
    return _mm512_reduce_add_epi32(sums) + product_plain(left + at, right + at, dimensions - at);
}
#endif

#if CORE_X86
#define TARGET_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,popcnt")))

/* The instruction multiplies unsigned by signed bytes. So 128 is added to each byte of the vector, and 128
 * times the sum of the query is subtracted. The sums are exact in 32 bits for up to 65,536 components. */
TARGET_VNNI static int32_t product_vnni(const int8_t *left, const int8_t *right, Py_ssize_t dimensions) {
    const __m512i shift = _mm512_set1_epi8((char)0x80), ones = _mm512_set1_epi8(1);
    __m512i sums = _mm512_setzero_si512(), shifted = _mm512_setzero_si512();
    Py_ssize_t at = 0;
    for (; at + 64 <= dimensions; at += 64) {
        __m512i query = _mm512_loadu_si512(right + at);
        __m512i code = _mm512_xor_si512(_mm512_loadu_si512(left + at), shift);
        sums = _mm512_dpbusd_epi32(sums, code, query);
        shifted = _mm512_dpbusd_epi32(shifted, ones, query);
    }
    sums = _mm512_sub_epi32(sums, _mm512_slli_epi32(shifted, 7));
    return _mm512_reduce_add_epi32(sums) + product_plain(left + at, right + at, dimensions - at);
}
#endif

static Product best_product(void) {
#if CORE_X86
    if (has_avx512() && __builtin_cpu_supports("avx512vnni")) {
        return product_vnni;
    }
    if (has_avx512()) {
        return product_avx512;
    }
    if (has_avx2()) {
        return product_avx2;
    }
#endif
    return product_plain;
}

/* Rows that are fetched before their turn: random rows come from RAM, one after the other. */
#define AHEAD 8

void write_cosines(const int8_t *codes, const float *norms, const int8_t *query, Py_ssize_t dimensions,
                   const int64_t *places, Py_ssize_t rows, float scale, float *out) {
    Product product = best_product();
    for (Py_ssize_t at = 0; at < rows; at++) {
        Py_ssize_t row = places ? places[at] : at;
#if CORE_X86
        if (places && at + AHEAD < rows) {
            const char *next = (const char *)(codes + places[at + AHEAD] * dimensions);
            for (Py_ssize_t line = 0; line < dimensions; line += 64) {
                _mm_prefetch(next + line, _MM_HINT_T0);
            }
        }
#endif
        int32_t found = product(codes + row * dimensions, query, dimensions);
        out[at] = (float)((double)found / (double)norms[row]) * scale;
    }
}

static PyObject *cosines(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (!check_argument_count("cosines", count, 6)) {
        return NULL;
    }
    double scale = PyFloat_AsDouble(arguments[4]);
    if (scale == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    bool chosen = arguments[3] != Py_None;
    Py_buffer codes, norms, query, positions = {0}, out;
    if (!open_buffer(arguments[0], &codes, "codes", KIND_SIGNED, 1, false)) {
        return NULL;
    }
    if (!open_buffer(arguments[1], &norms, "norms", KIND_FLOAT, 4, false)) {
        goto no_norms;
    }
    if (!open_buffer(arguments[2], &query, "query", KIND_SIGNED, 1, false)) {
        goto no_query;
    }
    if (chosen && !open_buffer(arguments[3], &positions, "positions", KIND_SIGNED, 8, false)) {
        goto no_positions;
    }
    if (!open_buffer(arguments[5], &out, "out", KIND_FLOAT, 4, true)) {
        goto no_out;
    }
    Py_ssize_t dimensions = count_of(&query), rows = count_of(&out);
    Py_ssize_t held = dimensions ? count_of(&codes) / dimensions : 0;
    held = held < count_of(&norms) ? held : count_of(&norms);
    bool fits = dimensions > 0 && dimensions <= (1 << 16) && (chosen ? rows == count_of(&positions) : rows <= held);
    const int64_t *places = positions.buf;
    for (Py_ssize_t at = 0; fits && chosen && at < rows; at++) {
        fits = places[at] >= 0 && places[at] < held;
    }
    if (fits) {
        PyThreadState *state = rows * dimensions > FEW_ELEMENTS * 16 ? PyEval_SaveThread() : NULL;
        write_cosines(codes.buf, norms.buf, query.buf, dimensions, chosen ? places : NULL, rows, (float)scale,
                      out.buf);
        if (state) {
            PyEval_RestoreThread(state);
        }
    } else {
        PyErr_Format(PyExc_ValueError, "%zd cosines do not fit %zd vectors of %zd components", rows, held,
                     dimensions);
    }
    PyBuffer_Release(&out);
    if (chosen) {
        PyBuffer_Release(&positions);
    }
    PyBuffer_Release(&query);
    PyBuffer_Release(&norms);
    PyBuffer_Release(&codes);
    return fits ? Py_NewRef(Py_None) : NULL;
no_out:
    if (chosen) {
        PyBuffer_Release(&positions);
    }
no_positions:
    PyBuffer_Release(&query);
no_query:
    PyBuffer_Release(&norms);
no_norms:
    PyBuffer_Release(&codes);
    return NULL;
}

PyMethodDef search_methods[] = {
    {"add_words", (PyCFunction)(void (*)(void))add_words, METH_FASTCALL,
     "add_words(scores, lengths, postings, bounds, weights, slope, offset): add the BM25 of all words."},
    {"differing_signs", (PyCFunction)(void (*)(void))differing_signs, METH_FASTCALL,
     "differing_signs(bits, query, out): count for each vector the signs that differ from the query."},
    {"cosines", (PyCFunction)(void (*)(void))cosines, METH_FASTCALL,
     "cosines(codes, norms, query, positions, scale, out): integer products / norms * scale."},
    {NULL, NULL, 0, NULL},
};
