/* agent/runtime/v8.h: V8, which runs JavaScript in node. */
#ifndef AGENT_RUNTIME_V8_H
#define AGENT_RUNTIME_V8_H

#include "agent/runtime/runtime.h"

extern const struct runtime_ops runtime_v8;

#endif
