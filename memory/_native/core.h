/* What all files of the compiled core share: the module's interface, checked buffers, processor features.
 *
 * Every C file is one idea. It defines one table of methods, which module.c adds to the module. Each function
 * has a twin in pure Python with the same result, and tests/_native/ compares the two.
 *
 * Rules: check the type and the length of every buffer before reading it. Release the GIL in every call that
 * may take longer than a few microseconds. Keep no state that two threads could change at once.
 */
#ifndef AGENTMEMORY_CORE_H
#define AGENTMEMORY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Increase it when a function of the core changes its meaning or its arguments. memory/_base/native.py has
 * the same number. It refuses a core of another number, and one that lacks a function. */
#define CORE_INTERFACE 7

/* Element types of buffers, as the buffer protocol distinguishes them. */
typedef enum { KIND_SIGNED, KIND_UNSIGNED, KIND_FLOAT } ElementKind;

/* Open a C-contiguous buffer of elements of this kind and size. On failure, set an exception that names the
 * argument, and return false. Release it with PyBuffer_Release. */
bool open_buffer(PyObject *object, Py_buffer *view, const char *name, ElementKind kind, Py_ssize_t item_size,
                 bool writable);

/* Return whether there are `wanted` arguments; if not, set an exception. */
bool check_argument_count(const char *function, Py_ssize_t given, Py_ssize_t wanted);

/* Return a text in UTF-8, as bytes; a lone surrogate is encoded too. */
PyObject *encode_utf8(PyObject *text);

/* Return new references to the path and the value of a leaf; if it is none, set an exception. */
bool open_leaf(PyObject *leaves, Py_ssize_t at, PyObject **path, PyObject **value);

/* Return the CRC-32 of bytes that follow others whose CRC is `start`. */
uint32_t crc32_of(const char *bytes, size_t length, uint32_t start);
void prepare_crc32(void);

/* Return the first 64 bits of the BLAKE2b digest of 8 bytes. Needs no GIL. */
uint64_t blake2b_of(const char *bytes, size_t length);

/* Return the number of elements of a buffer. */
static inline Py_ssize_t count_of(const Py_buffer *view) { return view->len / view->itemsize; }

/* Work of more elements than this releases the GIL: less is done before another thread could take it. */
#define FEW_ELEMENTS 8192

#if defined(__x86_64__) && defined(__GNUC__)
#define CORE_X86 1
#define TARGET_AVX2 __attribute__((target("avx2,fma,f16c,bmi,bmi2,popcnt")))
#define TARGET_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi,bmi2,popcnt")))
#else
#define CORE_X86 0
#endif

/* Return whether the processor has what TARGET_AVX2 or TARGET_AVX512 needs. */
bool has_avx2(void);
bool has_avx512(void);

/* Write a vector as signed bytes, scaled by its largest component. Needs no GIL. */
void quantise_row(const float *restrict row, int8_t *restrict code, Py_ssize_t dimensions);

/* Do nearly the same, faster, and return the length of the result; as `to_int8_one` in quantise.py. */
double quantise_query(const float *restrict vector, int8_t *restrict code, Py_ssize_t dimensions);

/* Scale a vector to length 1; the twin is `unit` in memory/_base/unit_vectors.py. */
void scale_to_unit(float *vector, size_t dimensions);

extern PyMethodDef attribute_methods[];
extern PyMethodDef centred_methods[];
extern PyMethodDef choose_methods[];
extern PyMethodDef context_methods[];
extern PyMethodDef file_methods[];
extern PyMethodDef leaf_methods[];
extern PyMethodDef number_methods[];
extern PyMethodDef quantise_methods[];
extern PyMethodDef token_vector_methods[];
extern PyMethodDef search_methods[];
extern PyMethodDef date_methods[];
extern PyMethodDef posting_methods[];
extern PyMethodDef rank_methods[];
extern PyMethodDef row_methods[];
extern PyMethodDef scale_methods[];
extern PyMethodDef question_methods[];
extern PyMethodDef neighbour_methods[];
extern PyMethodDef version_methods[];
extern PyType_Spec term_cache_spec;
extern PyType_Spec text_preparer_spec;
extern PyType_Spec tokenizer_spec;

#endif
