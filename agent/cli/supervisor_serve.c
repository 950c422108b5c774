/* agent/cli/supervisor_serve.c: does what the worker asks the supervisor for, if it may. */
#include "agent/cli/supervisor_internal.h"

#include "agent/export/windows.h"
#include "agent/role/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Return whether a path is another path, or below that directory. ".." leads nowhere. */
static bool is_below(const char *path, const char *directory)
{
	size_t n = strlen(directory), whole = strlen(path);

	if (!n || strncmp(path, directory, n) != 0)
		return false;
	if (!path[n])
		return true;
	if (path[n] != '/' && directory[n - 1] != '/')
		return false;
	return !strstr(path + n - 1, "/../") && (whole < 3 || strcmp(path + whole - 3, "/..") != 0);
}

const char *supervision_input(const struct supervision *given, size_t i)
{
	if (i < given->n_inputs)
		return given->inputs[i];
	i -= given->n_inputs;
	return i < given->n_bases ? given->bases[i] : NULL;
}

static bool may_read(const struct supervision *given, const char *path)
{
	const char *input;
	bool may = false;

	for (size_t i = 0; !may && (input = supervision_input(given, i)); i++)
		may = is_below(path, input);
	return may;
}

static bool may_write(const struct supervision *given, const char *path)
{
	return (given->output && !strcmp(path, given->output)) ||
	       (given->statistics && !strcmp(path, given->statistics)) ||
	       (given->windows && window_is_in(given->windows, path));
}

/* While recording, whether a process writes names of its generated code (agent/cmd/runtime.h). */
static bool may_stat(const struct supervision *given, const char *path)
{
	unsigned int pid;
	char map[64];

	if (given->live && sscanf(path, "/tmp/perf-%u.map", &pid) == 1) {
		(void)snprintf(map, sizeof(map), "/tmp/perf-%u.map", pid);
		if (!strcmp(path, map))
			return true;
	}
	return may_read(given, path);
}

/* Let readers of a pipe see its end when the worker closes it. */
void supervisor_let_go_of_output(void)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null >= 0) {
		(void)dup2(null, STDOUT_FILENO);
		(void)close(null);
	}
}

/* A result may be called /dev/stdout: while it is opened, standard output is what it was at the start. */
void supervisor_lend_output(const struct supervisor *s)
{
	if (s->standard >= 0)
		(void)dup2(s->standard, STDOUT_FILENO);
}

/* Begin a result. Its number is its place in the table. */
static int begin_output(struct supervisor *s, const char *path, bool in_place, int *fd,
			uint64_t *number)
{
	int err;

	for (size_t i = 0; i < OUTPUTS_MAX; i++) {
		if (s->outputs[i].path)
			continue;
		supervisor_lend_output(s);
		err = output_begin(&s->outputs[i], path, in_place);
		supervisor_let_go_of_output();
		if (err) {
			output_abort(&s->outputs[i]);
			return err;
		}
		*number = i;
		*fd = dup(s->outputs[i].fd);
		return *fd < 0 ? -errno : 0;
	}
	return -EMFILE;
}

static int commit_output(struct supervisor *s, uint64_t number)
{
	int err;

	if (number >= OUTPUTS_MAX || !s->outputs[number].path)
		return -EINVAL;
	err = output_rename(&s->outputs[number]);
	output_abort(&s->outputs[number]);
	return err;
}

/* Remove unfinished results. */
void supervisor_abort_outputs(struct supervisor *s)
{
	for (size_t i = 0; i < OUTPUTS_MAX; i++)
		output_abort(&s->outputs[i]);
}

/* Open a file below a directory that the worker has open, and so may read. */
static int open_in(int directory, const char *name, bool follow_link, int *fd)
{
	return strchr(name, '/') || !strcmp(name, "..") || directory < 0
		       ? -EINVAL
		       : files_open_in(directory, name, follow_link, fd);
}

/* Close what keeps readers of standard output waiting: the result is complete. */
static void result_is_done(struct supervisor *s)
{
	s->done = true;
	if (s->standard >= 0)
		(void)close(s->standard);
	s->standard = -1;
}

/* Do what one request asks for. Return its error. */
int supervisor_serve(struct supervisor *s, uint64_t what, const char *path, uint64_t value,
		     int with, int *fd, uint64_t *number, struct files_facts *facts)
{
	bool named = path != NULL;

	switch (what) {
	case FILES_OPEN:
		return named && may_read(s->given, path) ? files_open(path, fd) : -EPERM;
	case FILES_OPEN_IN:
		return named ? open_in(with, path, value, fd) : -EINVAL;
	case FILES_STAT:
		return named && may_stat(s->given, path) ? files_stat(path, facts) : -EPERM;
	case FILES_OUTPUT:
		return named && may_write(s->given, path) ? begin_output(s, path, value, fd, number)
							  : -EPERM;
	case FILES_COMMIT:
		return commit_output(s, value);
	case FILES_ABORT:
		if (value < OUTPUTS_MAX)
			output_abort(&s->outputs[value]);
		return 0;
	case FILES_SCRATCH:
		return files_scratch(fd);
	case FILES_KEEP:
		if (s->given->windows)
			windows_keep(s->given->windows, s->given->keep);
		return 0;
	case FILES_COMMAND:
		return s->given->ask ? s->given->ask(s->given->ctx, value, number) : -EINVAL;
	case FILES_DONE:
		result_is_done(s);
		return 0;
	default:
		return -EINVAL;
	}
}
