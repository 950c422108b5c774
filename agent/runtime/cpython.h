/* agent/runtime/cpython.h: frames of Python code that CPython 3.8 to 3.15 interprets. */
#ifndef AGENT_RUNTIME_CPYTHON_H
#define AGENT_RUNTIME_CPYTHON_H

#include "agent/runtime/runtime.h"

extern const struct runtime_ops runtime_cpython;

#endif
