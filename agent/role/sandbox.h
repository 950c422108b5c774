/*
 * agent/role/sandbox.h: takes all rights from this process, for good, before it reads what others wrote.
 *
 * What is left: the memory and the open files that it has, threads, and the sockets to the other
 * roles. docs/security.md has the table of what the sandbox forbids, and by which means.
 */
#ifndef AGENT_ROLE_SANDBOX_H
#define AGENT_ROLE_SANDBOX_H

#include <stdbool.h>

/* Return whether this program can be confined: not if it was built with a sanitizer. */
bool sandbox_is_possible(void);

/*
 * Confine this process. Only its calling thread may exist. Each layer that the kernel does not offer
 * is left out; the filter of system calls is not: then return its negative code, and the process must
 * not go on.
 */
int sandbox_enter(void);

#endif
