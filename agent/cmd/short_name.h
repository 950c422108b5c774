/*
 * agent/cmd/short_name.h: function names where there is little room for them.
 */
#ifndef AGENT_CMD_SHORT_NAME_H
#define AGENT_CMD_SHORT_NAME_H

#include <stddef.h>

/*
 * Copy a function's name to out, of size bytes, without C++'s parameter lists and what follows
 * them ("const", "[clone .cold]"): "a::f<int>(int, char) const" becomes "a::f<int>".  What only
 * looks like a parameter list stays: "(anonymous namespace)", "operator()", Go's "(*T)".
 */
void short_name(const char *name, char *out, size_t size);

#endif
