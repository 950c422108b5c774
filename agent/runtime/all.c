/* agent/runtime/all.c: the list of runtimes; a test has its own. */
#include "agent/runtime/runtime.h"

const struct runtime_ops *const runtimes_all[] = { NULL };
