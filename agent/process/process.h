/*
 * agent/process/process.h: the state of processes and threads, built from events: their names and
 * mappings at the time of each sample.
 */
#ifndef AGENT_PROCESS_PROCESS_H
#define AGENT_PROCESS_PROCESS_H

#include "agent/labels.h"
#include "agent/process/calls.h"
#include "agent/process/modules.h"

struct processes;

struct thread {
	uint32_t tid, pid;
	const char *comm; /* the thread's name; sanitised; lives until processes_forget_names */
	const char *process_comm;  /* the name of the thread group's leader, likewise */
	struct uw_space *space;	   /* borrowed until the next event */
	const struct calls *calls; /* what frames of its runtime execute; likewise; NULL: unknown */
	bool generates; /* the process has executable memory without a file, or V8, by the name of its file */
	const char *labels; /* of the process: a text of agent/labels.h; likewise; NULL: none */
	uint64_t files;	    /* changes with the process and whenever other files are mapped */
};

/*
 * Create an empty state. machine is the ELF machine of all processes. modules is borrowed and must
 * outlive the state.
 */
int processes_new(uint16_t machine, struct modules *modules, struct processes **out);
/*
 * Set the steppers that walks use; borrowed, set before the first event. NULL: the built-in
 * steppers.
 */
void processes_use(struct processes *processes, const struct uw_steppers *steppers);
/* Set the rules for the labels of processes; borrowed, set before the first event. NULL: none. */
void processes_label(struct processes *processes, const struct label_rules *rules);
void processes_free(struct processes *processes); /* NULL is fine */

/* Apply a mapping, exec, fork, exit, comm or generated event; ignore other events. -ENOMEM. */
int processes_event(struct processes *processes, const struct event *event);

/*
 * Fill in the state that a sample needs. An unknown thread is added with an empty state. -ENOMEM.
 */
int processes_thread(struct processes *processes, uint32_t pid, uint32_t tid, struct thread *out);

uint16_t processes_machine(const struct processes *processes);
size_t processes_count(const struct processes *processes);
/*
 * The names of threads are stored once each. Once processes_names_are_many, mark those that others
 * still use (strings_mark) and call processes_forget_names, which frees all that are neither marked nor
 * the name of a known thread.
 */
bool processes_names_are_many(const struct processes *processes);
void processes_forget_names(struct processes *processes);
/*
 * When the context of a process was read (agent/process/contexts.h). Borrowed until the next event; NULL:
 * the process is not known.
 */
struct process_context {
	uint64_t born_ns; /* 0: before the recording */
	uint64_t look_ns,
		wait_ns;       /* when it is read next, and how long that was from the last time */
	uint64_t published_ns; /* the program's time stamp of what was read; 0: nothing was */
};
struct process_context *processes_context(struct processes *processes, uint32_t pid);
/* Add these labels to a process's own; they replace those of the last call. -ENOMEM, -ENOENT. */
int processes_set_context(struct processes *processes, uint32_t pid, const struct labels *labels);
const struct label_rules *processes_rules(const struct processes *processes);

/* Mark the modules that living processes have mapped, for modules_park. */
void processes_note_modules(const struct processes *processes);

#endif
