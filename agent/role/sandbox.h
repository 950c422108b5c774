/*
 * agent/role/sandbox.h: takes all rights from this process, for good, before it reads what others wrote.
 *
 * What is left: the memory and the open files that it has, threads, and the sockets to the other
 * roles. docs/security.md has the table of what the sandbox forbids, and by which means.
 */
#ifndef AGENT_ROLE_SANDBOX_H
#define AGENT_ROLE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return whether this program can be confined: not if it was built with a sanitizer. */
bool sandbox_is_possible(void);

/*
 * Keep only these capabilities, of those that this process has, and let no program that it executes
 * get any other. n is the number of caps.
 */
void sandbox_keep(const int *caps, size_t n);

/*
 * Limit the memory of this process to so many bytes that it may write, unless a lower limit holds:
 * beyond it allocations fail (setrlimit(2), RLIMIT_DATA).
 */
void sandbox_limit_memory(uint64_t bytes);

/*
 * Confine this process. Only its calling thread may exist. Each layer that the kernel does not offer
 * is left out; the filter of system calls is not: then return its negative code, and the process must
 * not go on.
 */
int sandbox_enter(void);
/* The same for a server: it may also accept connections on the sockets that it has, and use them. */
int sandbox_enter_server(void);
/* What a process that sends may reach. All is borrowed. */
struct sandbox_sending {
	const char *const *readable; /* paths, and what is below them */
	size_t n_readable;
	const uint16_t *ports; /* of TCP, to which it connects; on kernels since 6.7 to no other */
	size_t n_ports;
	bool any_port;
	bool serves; /* it may also accept connections on the sockets that it has, as a server */
};

/*
 * The same for a process that sends: it may also connect to other machines, and read what a connection needs
 * of /etc (names, certificates), with the rights of a user that nobody is.
 */
int sandbox_enter_sender(const struct sandbox_sending *sending);
/*
 * Of a process that keeps capabilities: forbid what recording does not take. It makes no process and no
 * socket but pairs, executes, mounts and deletes nothing, and ends and changes no other process.
 */
int sandbox_narrow(void);

#endif
