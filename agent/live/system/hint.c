/* agent/live/system/hint.c: stores the warnings of libbpf, and explains errors. */
#include "agent/live/system/hint.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* The first warning of libbpf since the last live_bpf_begin. */
static _Thread_local char said[256];

/* Print function of libbpf: store the first warning that helps a user. */
static int hear(enum libbpf_print_level level, const char *format, va_list args)
{
	char line[256];

	if (level != LIBBPF_WARN)
		return 0;
	/* The first warning names the cause; the verifier's log and later failures follow. */
	if (said[0])
		return 0;
	(void)vsnprintf(line, sizeof(line), format, args);
	line[strcspn(line, "\n")] = '\0';
	/*
	 * The warning about RLIMIT_MEMLOCK matters only before 5.11, and comes with every failure.
	 */
	if (strncmp(line, "libbpf: ", 8) != 0 || strstr(line, "BEGIN PROG LOAD LOG") ||
	    strstr(line, "RLIMIT_MEMLOCK"))
		return 0;
	(void)snprintf(said, sizeof(said), "%s", line + 8);
	return 0;
}

void live_bpf_hear(void)
{
	(void)libbpf_set_print(hear);
}

void live_bpf_begin(void)
{
	said[0] = '\0';
}

/* Return the soft limit of locked memory, in bytes. */
static rlim_t locked_memory(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_MEMLOCK, &limit) ? RLIM_INFINITY : limit.rlim_cur;
}

/* Return kernel.perf_event_paranoid, or 0 if it cannot be read. */
static int paranoid(void)
{
	FILE *file = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
	int value = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%d", &value) != 1)
		value = 0;
	(void)fclose(file);
	return value;
}

const char *live_hint(int err)
{
	switch (err < 0 ? -err : err) {
	case EPERM:
		/* Before 5.11 EPERM also means that a map exceeds the limit of locked memory. */
		if (locked_memory() < LIVE_RING_DEFAULT)
			return "; run as root, or with a higher limit of locked memory (ulimit -l; "
			       "`offwind doctor` says what else may be missing)";
		return "; run as root (`offwind doctor` says what else may be missing)";
	case EACCES:
		if (paranoid() > 2)
			return "; kernel.perf_event_paranoid is above 2: this kernel gives perf "
			       "events "
			       "only to root with CAP_SYS_ADMIN then, and with 2 also without";
		return "; run as root (`offwind doctor` says what else may be missing)";
	case ENOSYS:
		return "; this kernel was built without it";
	case EMFILE:
		return "; raise the limit of open files (ulimit -n)";
	case ENOMEM:
		return "; not enough memory, or the limit of locked memory (ulimit -l) is too low";
	default:
		return "";
	}
}

int live_bpf_fail(char *error, int err, const char *step)
{
	(void)snprintf(error, LIVE_ERROR_SIZE, "%s: %s%s%s%s%s", step, strerror(-err),
		       said[0] ? " (" : "", said, said[0] ? ")" : "", live_hint(err));
	return err;
}
