/* agent/cli/short_name.h: shortens function names for terminals. */
#ifndef AGENT_CLI_SHORT_NAME_H
#define AGENT_CLI_SHORT_NAME_H

#include <stddef.h>

/*
 * Copy a function's name to out, of size bytes, without C++ parameter lists and what follows them
 * ("const", "[clone .cold]"): "a::f<int>(int, char) const" becomes "a::f<int>". Parentheses that
 * are no parameter list stay: "(anonymous namespace)", "operator()", Go's "(*T)".
 */
void short_name(const char *name, char *out, size_t size);

#endif
