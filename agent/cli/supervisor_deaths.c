/* agent/cli/supervisor_deaths.c: sees what ended a worker, and prepares for the next one. */
#include "agent/cli/supervisor_internal.h"

#include "agent/log.h"
#include "agent/role/reading.h"
#include "agent/store/store.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Return whether a process that this signal ended may have been ended by what it read. SIGKILL: the
 * memory was used up, or somebody sent it.
 */
bool supervisor_is_crash(int number)
{
	switch (number) {
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGABRT:
	case SIGTRAP:
	case SIGSYS:
	case SIGXCPU:
	case SIGKILL:
		return true;
	default:
		return false;
	}
}

const char *supervisor_signal_name(int number)
{
	const char *name = sigabbrev_np(number);

	return name ? name : "?";
}

/* Store the quarantine of a file that ended a worker, so that no later run reads it. */
static void put_in_quarantine(const struct supervisor *s, const struct reading_file *file,
			      const char *why)
{
	struct store_file stored = { .known = true,
				     .dev = file->dev,
				     .ino = file->ino,
				     .elf_off = file->elf_off,
				     .size = file->size,
				     .uid = file->uid,
				     .mtime_ns = file->mtime_ns,
				     .ctime_ns = file->ctime_ns,
				     .path = file->path };
	struct store *store;

	if (s->given->no_store || store_open(s->given->db, &store))
		return;
	(void)store_quarantine(store, NULL, &stored, why);
	store_close(store);
}

/*
 * Refuse the files that the dead worker was reading to the next one, or else the sample that it was
 * walking, and report them. Return whether there are any.
 */
bool supervisor_refuse_what_it_read(struct supervisor *s, int number)
{
	struct reading_notes *r = s->reading;
	char why[64];
	bool any = false;

	(void)snprintf(why, sizeof(why), "a worker that read it was ended by SIG%s",
		       supervisor_signal_name(number));
	for (size_t i = 0; i < READING_MAX; i++) {
		struct reading_file *file = &r->now[i].file;
		const enum reading_blame blame = reading_blame(r, i);
		/* Somebody else may have killed the worker: then only this run does without the file. */
		const bool lasting = number != SIGKILL && blame == READING_GUILTY;

		if (blame == READING_INNOCENT)
			continue;
		/* The worker may have been taken over before it died. */
		file->path[sizeof(file->path) - 1] = '\0';
		log_warning("%s: %s; it is not read any more%s", file->path, why,
			    lasting ? ", and stays in quarantine until it changes" : "");
		if (lasting)
			put_in_quarantine(s, file, why);
		if (r->n_refused < READING_MAX)
			r->refused[r->n_refused++] = *file;
		any = true;
	}
	memset(r->now, 0, sizeof(r->now));
	r->faulted = 0;
	r->turns = 0;
	if (!any && r->sample && r->n_refused_samples < READING_MAX) {
		log_warning(s->given->live
				    ? "process %" PRIu64
				      ": walking a stack of it ended the worker by SIG%s; its "
				      "samples are lost"
				    : "sample %" PRIu64
				      ": walking it ended the worker by SIG%s; it is lost",
			    (uint64_t)r->sample, supervisor_signal_name(number));
		r->refused_samples[r->n_refused_samples++] = r->sample;
		any = true;
	}
	r->sample = 0;
	return any;
}

/* Return whether another worker can do the work from its beginning. */
bool supervisor_can_begin_again(const struct supervisor *s)
{
	struct stat st;

	if (s->done || (s->reads_standard && s->input_at < 0) || s->given->streams)
		return false;
	/* A recording writes its result at its end. */
	if (s->given->live)
		return true;
	/* What was written to a pipe or a terminal cannot be taken back. */
	return s->given->output && (strcmp(s->given->output, "-") != 0 ||
				    (!fstat(s->standard, &st) && S_ISREG(st.st_mode)));
}

/* Bring standard input and output back to where they were. */
void supervisor_rewind_standard(struct supervisor *s, off_t output_at)
{
	if (s->reads_standard)
		(void)lseek(STDIN_FILENO, s->input_at, SEEK_SET);
	/* If the result goes elsewhere, what stands there is others'. */
	if (s->standard >= 0 && output_at >= 0 && s->given->output &&
	    !strcmp(s->given->output, "-")) {
		(void)ftruncate(s->standard, output_at);
		(void)lseek(s->standard, output_at, SEEK_SET);
	}
}
