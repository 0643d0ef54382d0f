/* See token_vectors.h. The twin is `_vectors_of` in memory/embedding/wordllama.py. */
#include "token_vectors.h"

#if CORE_X86
#include <immintrin.h>
#endif

static float widen(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    uint32_t bits;
    float value;
    if (exponent == 0) { /* zero, or a number below the smallest normal one */
        value = (float)fraction * 0x1p-24f;
        memcpy(&bits, &value, 4);
        bits |= sign;
    } else {
        bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&value, &bits, 4);
    return value;
}

static void widen_row_plain(const uint16_t *row, size_t from, size_t dimensions, float *out) {
    for (size_t at = from; at < dimensions; at++) {
        out[at] = widen(row[at]);
    }
}

static void add_rows_plain(const uint16_t *vectors, size_t dimensions, size_t from, const int32_t *tokens,
                           size_t count, float *out) {
    for (size_t at = from; at < dimensions; at++) {
        float total = widen(vectors[(size_t)tokens[0] * dimensions + at]);
        for (size_t token = 1; token < count; token++) {
            total += widen(vectors[(size_t)tokens[token] * dimensions + at]);
        }
        out[at] = total;
    }
}

#if CORE_X86
TARGET_AVX2 static size_t widen_row_avx2(const uint16_t *row, size_t dimensions, float *out) {
    size_t at = 0;
    for (; at + 8 <= dimensions; at += 8) {
        _mm256_storeu_ps(out + at, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + at))));
    }
    return at;
}

/* Add 32 components of all rows at a time: their sums stay in registers. */
TARGET_AVX2 static size_t add_rows_avx2(const uint16_t *vectors, size_t dimensions, const int32_t *tokens,
                                        size_t count, float *out) {
    size_t at = 0;
    for (; at + 32 <= dimensions; at += 32) {
        __m256 total[4];
        const uint16_t *row = vectors + (size_t)tokens[0] * dimensions + at;
        for (int part = 0; part < 4; part++) {
            total[part] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + 8 * part)));
        }
        for (size_t token = 1; token < count; token++) {
            row = vectors + (size_t)tokens[token] * dimensions + at;
            for (int part = 0; part < 4; part++) {
                __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + 8 * part)));
                total[part] = _mm256_add_ps(total[part], wide);
            }
        }
        for (int part = 0; part < 4; part++) {
            _mm256_storeu_ps(out + at + 8 * part, total[part]);
        }
    }
    return at;
}
#endif

void add_token_vectors(const uint16_t *vectors, size_t dimensions, const int32_t *tokens, size_t count,
                       float *out) {
    size_t done = 0;
    if (count == 0) {
        memset(out, 0, dimensions * sizeof *out);
        return;
    }
#if CORE_X86
    if (has_avx2()) {
        done = add_rows_avx2(vectors, dimensions, tokens, count, out);
    }
#endif
    add_rows_plain(vectors, dimensions, done, tokens, count, out);
}

void widen_token_vectors(const uint16_t *vectors, size_t dimensions, const int32_t *tokens, size_t count,
                         float *out) {
    for (size_t at = 0; at < count; at++, out += dimensions) {
        const uint16_t *row = vectors + (size_t)tokens[at] * dimensions;
        size_t done = 0;
#if CORE_X86
        if (has_avx2()) {
            done = widen_row_avx2(row, dimensions, out);
        }
#endif
        widen_row_plain(row, done, dimensions, out);
    }
}

static PyObject *take_vectors(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Py_buffer vectors, tokens, out;
    if (!check_argument_count("take_vectors", count, 3) ||
        !open_buffer(arguments[0], &vectors, "vectors", KIND_FLOAT, 2, false)) {
        return NULL;
    }
    if (!open_buffer(arguments[1], &tokens, "tokens", KIND_SIGNED, 4, false)) {
        PyBuffer_Release(&vectors);
        return NULL;
    }
    if (!open_buffer(arguments[2], &out, "out", KIND_FLOAT, 4, true)) {
        PyBuffer_Release(&tokens);
        PyBuffer_Release(&vectors);
        return NULL;
    }
    Py_ssize_t rows = count_of(&tokens), dimensions = rows > 0 ? count_of(&out) / rows : 0;
    Py_ssize_t known = dimensions > 0 ? count_of(&vectors) / dimensions : 0;
    const int32_t *wanted = tokens.buf;
    bool fits = dimensions * rows == count_of(&out);
    for (Py_ssize_t at = 0; at < rows && fits; at++) {
        fits = wanted[at] >= 0 && wanted[at] < known;
    }
    if (fits) {
        widen_token_vectors(vectors.buf, (size_t)dimensions, wanted, (size_t)rows, out.buf);
    } else {
        PyErr_SetString(PyExc_ValueError, "a token has no vector, or out has another size");
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&tokens);
    PyBuffer_Release(&vectors);
    return fits ? Py_NewRef(Py_None) : NULL;
}

PyMethodDef token_vector_methods[] = {
    {"take_vectors", (PyCFunction)(void (*)(void))take_vectors, METH_FASTCALL,
     "take_vectors(vectors, tokens, out): write the vectors of tokens (int32) as rows of float32."},
    {NULL, NULL, 0, NULL},
};
