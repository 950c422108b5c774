/*
 * agent/cmd/record/raw.c: capture files that are written while recording: events, generated code, files,
 * kernel symbols.
 */
#include "agent/cmd/record/raw.h"

#include "agent/cmd/record/raw_files.h"
#include "agent/export/output.h"
#include "agent/log.h"
#include "agent/owc/owc.h"
#include "agent/pipeline/names.h"
#include "agent/process/contexts.h"
#include "agent/process/generated.h"
#include "agent/process/modules.h"
#include "agent/runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct raw {
	char *path;
	int fd;
	const struct source_info *info;
	struct owc_writer *writer;
	int err; /* the first error; nothing is written after it */
	/* samples passed to raw_event */
	uint64_t n_given;
	/* What finding generated and interpreted code needs, if raw_open got an opener; else NULL. */
	struct modules *modules;
	struct processes *processes;
	struct generated *generated;
	struct runtimes *runtimes;
	struct contexts contexts;
	struct raw_files *files;
	bool whole_files;
};

/* Free everything but the writer, which owc_writer_close frees. */
static void raw_free(struct raw *raw)
{
	if (raw->fd >= 0)
		(void)close(raw->fd);
	raw_files_free(raw->files);
	generated_free(raw->generated);
	runtimes_free(raw->runtimes);
	processes_free(raw->processes);
	modules_free(raw->modules);
	free(raw->path);
	free(raw);
}

/* Rename an older capture at path to path.old, if it is a regular file with contents. */
static void keep_older(const char *path)
{
	char older[4096];
	struct stat st;

	if (lstat(path, &st) || !S_ISREG(st.st_mode) || !st.st_size)
		return;
	if ((size_t)snprintf(older, sizeof(older), "%s.old", path) < sizeof(older))
		(void)rename(path, older);
}

/*
 * Set up the process state that finding generated code and noting files needs. Return 0 or a
 * negative code.
 */
static int watch(struct raw *raw, struct opener *opener)
{
	int err = modules_new(opener, raw->info, true, &raw->modules);

	if (!err)
		err = processes_new(raw->info->machine, raw->modules, &raw->processes);
	if (!err)
		err = raw_files_new(raw->processes, raw->modules, false, &raw->files);
	if (!err)
		err = runtimes_new(&(struct runtimes_options){ .processes = raw->processes,
							       .modules = raw->modules,
							       .opener = opener,
							       .info = raw->info,
							       .live = true },
				   &raw->runtimes);
	raw->contexts.processes = raw->processes;
	raw->contexts.opener = opener;
	return err ? err : generated_new(raw->processes, opener, true, &raw->generated);
}

int raw_walked(struct raw *raw, struct processes *processes, struct modules *modules)
{
	return raw_files_new(processes, modules, true, &raw->files);
}

int raw_open(const char *path, const struct source *source, struct opener *opener, bool whole_files,
	     struct raw **out)
{
	struct raw *raw = calloc(1, sizeof(*raw));
	int err = -ENOMEM;

	if (!raw) {
		log_error("%s: %s", path, strerror(-err));
		return err;
	}
	raw->fd = -1;
	raw->info = &source->info;
	raw->whole_files = whole_files;
	raw->path = strdup(strcmp(path, "-") ? path : "standard output");
	if (!raw->path)
		goto fail;
	if (strcmp(path, "-")) {
		keep_older(path);
		err = output_create(path, &raw->fd);
	} else {
		raw->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		err = raw->fd < 0 ? -errno : 0;
	}
	if (!err && opener)
		err = watch(raw, opener);
	if (!err)
		err = owc_writer_open(raw->fd, &source->info, &raw->writer);
	if (err)
		goto fail;
	*out = raw;
	return 0;
fail:
	log_error("%s: cannot be written: %s", raw->path ? raw->path : path, strerror(-err));
	raw_free(raw);
	return err;
}

/* Remember err, and report the first error. Return err. */
static int failed(struct raw *raw, int err)
{
	if (err && !raw->err)
		log_error("%s: cannot be written: %s; the part that was written can be read",
			  raw->path, strerror(-err));
	raw->err = err;
	return err;
}

/* Write one event, unless an error occurred before. Return 0 or the first error. */
static int write_event(struct raw *raw, const struct event *event)
{
	int err = raw->err;

	if (!err)
		err = owc_writer_event(raw->writer, event);
	if (err == -E2BIG) { /* only this event is left out */
		log_warning("%s: an event was too large and is left out", raw->path);
		return 0;
	}
	return failed(raw, err);
}

/*
 * Write the memory that leads to the names of a sample's interpreted code and labels, if it is not written
 * yet.
 */
static int write_memory(struct raw *raw, const struct event *sample)
{
	const struct runtime_put *put;
	const char *missing;
	struct event found;

	if (contexts_look(&raw->contexts, sample))
		(void)runtimes_publish(raw->runtimes, sample->pid, raw->contexts.read.bytes,
				       raw->contexts.read.n);
	if (runtimes_concern(raw->runtimes, sample))
		(void)runtimes_decode(raw->runtimes, sample, NULL, 0, &put, &missing);
	if (runtimes_found(raw->runtimes, &found) != 1)
		return 0;
	found.time_ns = sample->time_ns;
	return write_event(raw, &found);
}

/* Return whether an event has a stack that will be walked. */
static bool has_stack(const struct event *event)
{
	return event->type == EVENT_SAMPLE || event->type == EVENT_WAKER;
}

/* When a process ends, store the names that it wrote for its generated code (perf-PID.map). */
int raw_event(struct raw *raw, const struct event *event)
{
	struct event found;
	int err = 0;

	raw->n_given += event->type == EVENT_SAMPLE;
	if (raw->generated && event->type == EVENT_EXIT && event->pid == event->tid &&
	    generated_names(raw->generated, event->pid, &found) == 1)
		err = write_event(raw, &found);
	if (!err && raw->generated && !has_stack(event)) {
		if (processes_names_are_many(raw->processes))
			processes_forget_names(raw->processes);
		err = processes_event(raw->processes, event);
		if (!err)
			err = runtimes_event(raw->runtimes, event);
	} else if (raw->generated) {
		for (int i = 0; !err && i < GENERATED_LOOKS &&
				generated_look(raw->generated, event, &found) == 1;
		     i++)
			err = write_event(raw, &found);
		if (!err)
			err = write_memory(raw, event);
	}
	if (!err && raw->files && has_stack(event))
		err = raw_files_sample(raw->files, event);
	return err ? err : write_event(raw, event);
}

int raw_idle(struct raw *raw)
{
	return failed(raw, raw->err ? raw->err : owc_writer_idle(raw->writer));
}

static int by_address(const void *a, const void *b)
{
	const struct source_kernel_symbol *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/*
 * Add one symbol for each kernel function in which a sample lies, up to the last sampled address
 * in it. Return 0 or a negative code.
 */
static int add_kernel_symbols(struct raw *raw, struct opener *opener)
{
	const struct module kernel = { .kind = MODULE_KERNEL, .path = (char[]){ "[kernel]" } };
	size_t n_seen, n = 0, left = 0;
	const uint64_t *seen = owc_writer_kernel_lookups(raw->writer, &n_seen);
	struct source_kernel_symbol *symbols = calloc(n_seen + 1, sizeof(*symbols));
	struct names *names = NULL;
	int err = symbols ? names_new(opener, raw->info, true, &names) : -ENOMEM;

	for (size_t i = 0; !err && i < n_seen; i++) {
		struct location location = { .module = &kernel, .vaddr = seen[i] };
		struct name name;

		names_find(names, &location, &name);
		if (!name.system_name)
			continue;
		symbols[n++] = (struct source_kernel_symbol){
			.addr = name.start,
			.size = seen[i] - name.start + 1,
			.name = name.system_name,
			.module = strcmp(name.module, "[kernel]") ? name.module : "",
		};
	}
	if (!err && n) {
		qsort(symbols, n, sizeof(*symbols), by_address);
		for (size_t i = 1; i < n; i++) {
			if (symbols[i].addr != symbols[left].addr)
				symbols[++left] = symbols[i];
			else if (symbols[i].size > symbols[left].size)
				symbols[left].size = symbols[i].size;
		}
		err = owc_writer_kernel_symbols(raw->writer, symbols, left + 1);
	}
	names_free(names);
	free(symbols);
	return err;
}

int raw_close(struct raw *raw, struct opener *opener, struct store *store, uint64_t *n_samples)
{
	bool said = raw->err != 0;
	int err = raw->err, closed;
	struct event found;
	size_t at = 0;

	while (!err && raw->generated && generated_all_names(raw->generated, &at, &found) == 1)
		err = write_event(raw, &found);
	if (!err)
		err = add_kernel_symbols(raw, opener);
	/* All samples are passed now: only data that helps to read them follows. */
	if (!err)
		err = owc_writer_flush(raw->writer);
	*n_samples = owc_writer_samples(raw->writer);
	if (!err && raw->files)
		err = raw_files_write(raw->files, &(struct raw_files_to){ .writer = raw->writer,
									  .whole = raw->whole_files,
									  .opener = opener,
									  .store = store });
	closed = owc_writer_close(raw->writer);
	if (!err)
		err = closed;
	if (close(raw->fd) && !err)
		err = -errno;
	raw->fd = -1;
	if (err && !said)
		log_error("%s: cannot be written: %s", raw->path, strerror(-err));
	if (*n_samples != raw->n_given)
		log_warning("%s has the first %" PRIu64 " of %" PRIu64 " samples", raw->path,
			    *n_samples, raw->n_given);
	raw_free(raw);
	return err;
}
