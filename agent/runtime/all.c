/* agent/runtime/all.c: the list of runtimes; a test has its own. */
#include "agent/runtime/cpython.h"
#include "agent/runtime/jvm.h"
#include "agent/runtime/perl.h"
#include "agent/runtime/php.h"
#include "agent/runtime/ruby.h"
#include "agent/runtime/runtime.h"
#include "agent/runtime/v8.h"

const struct runtime_ops *const runtimes_all[] = {
	&runtime_cpython, &runtime_jvm, &runtime_php, &runtime_ruby,
	&runtime_perl,	  &runtime_v8,	NULL
};
