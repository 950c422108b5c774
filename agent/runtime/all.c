/* agent/runtime/all.c: the list of runtimes; a test has its own. */
#include "agent/runtime/cpython.h"

const struct runtime_ops *const runtimes_all[] = { &runtime_cpython, NULL };
