/* agent/cli/rights.h: checks whether this user may record the live system. */
#ifndef AGENT_CLI_RIGHTS_H
#define AGENT_CLI_RIGHTS_H

#include <stdbool.h>

/* The capabilities that the program's file needs for all of recording, as setcap(8) takes them. */
#define RIGHTS_SETCAP \
	"cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_syslog,cap_sys_admin"

/*
 * Return true if a capability is missing that recording cannot do without, after reporting, in the
 * name of command, what to do.
 */
bool rights_missing(const char *command);

#endif
