/* agent/cmd/runtime.c: the known interpreters, recognized by the names of their files. */
#include "agent/cmd/runtime.h"

#include "agent/log.h"
#include "agent/role/files.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
	const char *program, *language, *help;
} kinds[RUNTIME_KINDS] = {
	{ "python", "Python", "those of 3.8 to 3.15 are, but for builds without the GIL" },
	{ "node", "JavaScript", "those of node 18 and 20 are; others need --perf-basic-prof" },
	{ "nodejs", "JavaScript", "those of node 18 and 20 are; others need --perf-basic-prof" },
	{ "ruby", "Ruby", "those of 3.1 and 3.3 are" },
	{ "perl", "Perl", "those of 5.36 to 5.42 are, but for builds without threads" },
	{ "php", "PHP", "those of 8.2 to 8.4 are, but for builds with thread safety" },
	{ "lua", "Lua", NULL },
	{ "luajit", "Lua", NULL },
};

/* Return true if name is program, with or without a version: python3.11, php8.2, lua5.3. */
static bool is_program(const char *name, const char *program)
{
	size_t n = strlen(program);

	if (strncmp(name, program, n) != 0)
		return false;
	for (name += n; *name; name++)
		if (!isdigit((unsigned char)*name) && *name != '.' && *name != '-')
			return false;
	return true;
}

/*
 * Note a process that maps an interpreter's code. It replaces another process with the same place
 * in the table.
 */
static void on_mapping(struct runtime *runtime, const struct event *event)
{
	struct runtime_process *p = &runtime->processes[event->pid % RUNTIME_PROCESSES];
	const char *slash = strrchr(event->mapping.path, '/');
	const char *name = slash ? slash + 1 : "";

	if (!(event->mapping.prot & PROT_EXEC))
		return;
	for (unsigned int i = 0; i < RUNTIME_KINDS; i++)
		if (is_program(name, kinds[i].program))
			*p = (struct runtime_process){ event->pid, i + 1, false };
}

/* Note that an interpreter of this kind was sampled; named: with the functions that it runs. */
static void on_sample(struct runtime *runtime, const struct event *event, bool named)
{
	struct runtime_process *p = &runtime->processes[event->pid % RUNTIME_PROCESSES];
	struct files_facts facts;
	char map[64];

	if (!p->kind || p->pid != event->pid)
		return;
	/* With slices, its interpreter is known: names may still be missing, of which explain tells. */
	p->named |= named || event->sample.slices_end != PLAN_NONE;
	if (p->named) {
		if (runtime->seen[p->kind - 1].pid == event->pid)
			runtime->seen[p->kind - 1].pid = 0;
		return;
	}
	if (runtime->seen[p->kind - 1].pid)
		return;
	/* A runtime that writes such a map file gives names to its functions. */
	(void)snprintf(map, sizeof(map), "/tmp/perf-%" PRIu32 ".map", event->pid);
	if (files_stat(map, &facts))
		runtime->seen[p->kind - 1].pid = event->pid;
}

/* A process is forgotten when it executes another program or its main thread ends. */
void runtime_event(struct runtime *runtime, const struct event *event, uint64_t n_named)
{
	struct runtime_process *p = &runtime->processes[event->pid % RUNTIME_PROCESSES];
	bool named = n_named != runtime->n_named;

	runtime->n_named = n_named;
	if (event->type == EVENT_MAPPING)
		on_mapping(runtime, event);
	else if (event->type == EVENT_SAMPLE)
		on_sample(runtime, event, named);
	else if ((event->type == EVENT_EXEC || event->type == EVENT_EXIT) && p->pid == event->pid &&
		 (event->type == EVENT_EXEC || event->tid == event->pid))
		p->kind = 0;
}

void runtime_say(const struct runtime *runtime)
{
	for (size_t i = 0; i < RUNTIME_KINDS; i++)
		if (runtime->seen[i].pid)
			log_info(
				"%s (pid %" PRIu32
				"): its %s functions are not named, only the interpreter's own%s%s",
				kinds[i].program, runtime->seen[i].pid, kinds[i].language,
				kinds[i].help ? "; " : "", kinds[i].help ? kinds[i].help : "");
}
