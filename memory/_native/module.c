/* The module memory._core: the tables of methods and the types of all files. */
#include "core.h"

static PyMethodDef *const tables[] = {
    attribute_methods, centred_methods, choose_methods, context_methods, date_methods, file_methods, leaf_methods,
    neighbour_methods, number_methods, posting_methods, quantise_methods, question_methods, rank_methods, row_methods,
    scale_methods, search_methods, token_vector_methods, version_methods,
};
static PyType_Spec *const types[] = {&term_cache_spec, &text_preparer_spec, &tokenizer_spec};

static int add_contents(PyObject *module) {
    prepare_crc32();
    for (size_t at = 0; at < sizeof tables / sizeof *tables; at++) {
        if (PyModule_AddFunctions(module, tables[at]) < 0) {
            return -1;
        }
    }
    for (size_t at = 0; at < sizeof types / sizeof *types; at++) {
        PyObject *type = PyType_FromModuleAndSpec(module, types[at], NULL);
        int failed = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
        Py_XDECREF(type);
        if (failed < 0) {
            return -1;
        }
    }
    return PyModule_AddIntConstant(module, "INTERFACE", CORE_INTERFACE);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)add_contents},
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "memory._core",
    .m_doc = "The compiled core. memory/_base/native.py loads it.",
    .m_size = 0,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
