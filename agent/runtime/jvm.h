/* agent/runtime/jvm.h: the Java virtual machine as a runtime. */
#ifndef AGENT_RUNTIME_JVM_H
#define AGENT_RUNTIME_JVM_H

#include "agent/runtime/runtime.h"

extern const struct runtime_ops runtime_jvm;

#endif
