/* agent/cmd/record/raw_files.c: chooses the files that a capture stores, and writes them. */
#include "agent/cmd/record/raw_files.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/cmd/record/raw_code.h"
#include "agent/ending.h"
#include "agent/hash.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/owc/owc.h"
#include "agent/process/debug_file.h"
#include "agent/process/modules.h"
#include "agent/process/process.h"
#include "agent/role/reading.h"
#include "agent/source/machine.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Limits for what is stored. Without --with-files a recording must end at once: libLLVM, 110 MB,
 * takes 0.1 s, and most programs take a hundredth of that. With --with-files the user waits for
 * the whole files. The times are CPU time; by the clock it may take ENDING_STRETCH times as long.
 */
#define TIME_MAX_NS	  ((uint64_t)800000000)
#define WHOLE_TIME_MAX_NS ((uint64_t)30000000000)
#define FILE_MAX	  ((uint64_t)128 << 20)
#define WHOLE_FILE_MAX	  ((uint64_t)4 << 30)

struct seen { /* a process with the set of files that it had mapped for a while */
	uint32_t pid;
	/* number of that set, see struct thread */
	uint64_t files;
};

struct raw_files {
	struct processes *processes;
	struct modules *modules;
	bool walked;
	struct raw_code *code;
	/* By module id: 0 if the module is not needed, else 1 plus the number of its samples. */
	uint64_t *weights;
	size_t n_weights;
	struct seen *seen;
	size_t n_seen, room_seen;
	struct uw_hash_index by_seen;
};

int raw_files_new(struct processes *processes, struct modules *modules, bool walked,
		  struct raw_files **out)
{
	struct raw_files *files = calloc(1, sizeof(*files));

	if (!files || raw_code_new(&files->code)) {
		free(files);
		return -ENOMEM;
	}
	files->processes = processes;
	files->modules = modules;
	files->walked = walked;
	*out = files;
	return 0;
}

void raw_files_free(struct raw_files *files)
{
	if (!files)
		return;
	uw_hash_fini(&files->by_seen);
	raw_code_free(files->code);
	free(files->weights);
	free(files->seen);
	free(files);
}

/*
 * Note that the mapping's module is needed, and count a sample whose pc lies in it. Return 0 or
 * -ENOMEM.
 */
static int weigh(struct raw_files *files, const struct uw_mapping *mapping, bool sampled)
{
	const struct module *module = mapping->user;

	if (!module)
		return 0;
	if (module->id >= files->n_weights) {
		size_t n = modules_count(files->modules);
		uint64_t *weights = reallocarray(files->weights, n, sizeof(*weights));

		if (!weights)
			return -ENOMEM;
		memset(weights + files->n_weights, 0, (n - files->n_weights) * sizeof(*weights));
		files->weights = weights;
		files->n_weights = n;
	}
	if (!files->weights[module->id])
		files->weights[module->id] = 1;
	files->weights[module->id] += sampled;
	return 0;
}

static bool same_files(const struct seen *seen, const struct thread *thread)
{
	return seen->pid == thread->pid && seen->files == thread->files;
}

/* Note all files that the process has mapped, once for each set of files. Return 0 or -ENOMEM. */
static int note_all(struct raw_files *files, const struct thread *thread)
{
	uint64_t hash = hash_u64(thread->pid, thread->files);
	uint32_t id = UW_HASH_FIND(k, &files->by_seen, hash, same_files(&files->seen[k], thread));
	int err = 0;

	if (id != UW_HASH_NONE)
		return 0;
	if (array_grow(files->seen, files->n_seen, files->room_seen))
		return -ENOMEM;
	files->seen[files->n_seen] = (struct seen){ thread->pid, thread->files };
	if (uw_hash_add(&files->by_seen, hash, (uint32_t)files->n_seen))
		return -ENOMEM;
	files->n_seen++;
	for (const struct uw_mapping *m = uw_space_above(thread->space, 0); m && !err;
	     m = uw_space_above(thread->space, m->end))
		err = weigh(files, m, false);
	return err;
}

int raw_files_sample(struct raw_files *files, const struct event *event)
{
	const struct event_sample *s = &event->sample;
	const struct uw_mapping *mapping;
	struct thread thread;
	unsigned int pc;
	int err;

	if (!s->has_user_regs)
		return 0;
	err = processes_thread(files->processes, event->pid, event->tid, &thread);
	if (err)
		return err;
	raw_code_sample(files->code, &thread, s);
	/* The files that walks need are open then. */
	err = files->walked ? 0 : note_all(files, &thread);
	if (err)
		return err;
	pc = machine_of(processes_machine(files->processes))->pc;
	if (!(s->regs.known >> pc & 1))
		return 0;
	mapping = uw_space_find(thread.space, s->regs.value[pc]);
	return mapping ? weigh(files, mapping, true) : 0;
}

/* ---- writing -------------------------------------------------------------------------- */

struct choice {
	const struct module *module;
	uint64_t weight;
	bool gone; /* the file is deleted: only this capture will hold it */
	bool stored;
};

/* Deleted files come first, then those with the most samples. */
static int by_need(const void *a, const void *b)
{
	const struct choice *x = a, *y = b;

	if (x->gone != y->gone)
		return x->gone ? -1 : 1;
	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->module->id < y->module->id ? -1 : 1;
}

/*
 * Return the weights by module id. Modules of the same file are counted for its canonical module
 * only. All files with a weight are open. The caller frees the array; NULL: out of memory.
 */
static uint64_t *weights_of(struct raw_files *files)
{
	struct modules *modules = files->modules;
	size_t n = modules_count(modules);
	uint64_t *weights = calloc(n + 1, sizeof(*weights));

	for (size_t i = 0; weights && i < n; i++) {
		const struct module *module = modules_at(modules, i);
		struct uw_mapping mapping = { .user = (void *)(uintptr_t)module };
		uint64_t weight = files->walked + (i < files->n_weights ? files->weights[i] : 0);

		if (module->kind != MODULE_FILE || !weight)
			continue;
		if (!files->walked)
			/* Open the file and check its build-id. */
			uw_object_put(modules_resolve(modules, &mapping));
		if (module_canonical(module) != module)
			raw_code_join(files->code, module_canonical(module)->id, module->id);
		module = module_canonical(module);
		if (module->state == MODULE_USABLE && module_fd(module) >= 0)
			weights[module->id] += weight;
	}
	return weights;
}

struct writing {
	struct owc_writer *writer;
	bool whole;
	uint64_t until_ns, latest_ns; /* of this thread's CPU time, and by the clock */
	uint64_t n_bytes;
	int err; /* the capture writer's error */
};

static bool is_over(const struct writing *writing)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID) > writing->until_ns ||
	       now_ns() > writing->latest_ns;
}

/* sym_extract's callback: write one piece of a file; -ETIME if the time is over. */
static int put_piece(void *ctx, uint64_t off, const void *bytes, size_t size)
{
	struct writing *writing = ctx;

	if (is_over(writing))
		return -ETIME;
	writing->n_bytes += size;
	writing->err = owc_writer_file_piece(writing->writer, off, bytes, size);
	return writing->err;
}

/*
 * Describe a module's file for the capture. Its build-id is that of the canonical module, whose
 * contents are stored.
 */
static void describe(const struct module *module, uint64_t size, struct owc_file *out)
{
	struct opener_file file;

	module_file(module, &file);
	*out = (struct owc_file){ .path = file.path,
				  .major = file.major,
				  .minor = file.minor,
				  .inode = file.inode,
				  .build_id = module_canonical(module)->build_id,
				  .size = size };
}

/*
 * Write the contents of a file, with the extract's parts. Return false if the file is left out, or the capture cannot
 * be written (writing->err).
 */
static bool write_contents(struct writing *writing, const struct owc_file *file, int fd,
			   uint64_t elf_off, struct sym_extract *extract)
{
	bool failed;

	writing->err = owc_writer_file_begin(writing->writer, file);
	if (writing->err)
		return false;
	extract->put = put_piece;
	extract->ctx = writing;
	extract->most = writing->whole ? WHOLE_FILE_MAX : FILE_MAX;
	extract->whole = writing->whole;
	failed = sym_extract(fd, elf_off, extract) != 0;
	if (!writing->err)
		writing->err = owc_writer_file_end(writing->writer, failed);
	return !failed && !writing->err;
}

/*
 * Write one file, and the names of all other modules with the same contents. Return false if the
 * file is left out, or the capture cannot be written (writing->err).
 */
static bool write_file(const struct raw_files *files, const struct module *module,
		       struct writing *writing)
{
	const struct modules *modules = files->modules;
	struct sym_extract extract = { .n_parts = 0 };
	struct sym_part *parts = NULL;
	struct owc_file stored;
	struct stat st;
	bool ok;

	if (is_over(writing) || fstat(module_fd(module), &st))
		return false;
	describe(module, (uint64_t)st.st_size, &stored);
	if (!writing->whole)
		extract.parts = parts =
			raw_code_parts(files->code, module->id, module->object, &extract.n_parts);
	ok = write_contents(writing, &stored, module_fd(module), module_elf_off(module), &extract);
	free(parts);
	for (size_t i = 0; ok && !writing->err && i < modules_count(modules); i++) {
		const struct module *other = modules_at(modules, i);

		if (other == module || module_canonical(other) != module)
			continue;
		describe(other, (uint64_t)st.st_size, &stored);
		writing->err = owc_writer_file_again(writing->writer, &stored);
	}
	return ok;
}

/* Return whether an earlier one of the choices has the same build-id, and so the same debug file. */
static bool is_repeated(const struct choice *choices, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (choices[i].stored &&
		    uw_build_id_equal(&choices[i].module->build_id, &choices[at].module->build_id))
			return true;
	return false;
}

/*
 * Write the debug file of a stored module, if it has one with its build-id: agent/process/debug_file.h describes how. One
 * without a build-id could not be checked by the reader. *found is set if there is one. Return whether it was written.
 */
static bool write_debug_file(const struct debug_search *search, const struct module *module,
			     struct writing *writing, bool *found)
{
	struct owc_file stored = { .size = 0 };
	struct sym_extract extract = { .n_parts = 0 };
	char path[PATH_MAX];
	struct uw_build_id id;
	struct stat st;
	bool inside, ok = false;
	int fd, number;

	if (opener_debug_path(&module->build_id, path, sizeof(path)) ||
	    debug_file_find(search, module, &inside, &fd))
		return false;
	number = reading_note(fd, 0, path);
	if (!sym_build_id(fd, 0, &id) && uw_build_id_equal(&id, &module->build_id) &&
	    !fstat(fd, &st)) {
		*found = true;
		stored.path = path;
		stored.size = (uint64_t)st.st_size;
		ok = write_contents(writing, &stored, fd, 0, &extract);
	}
	reading_noted(number);
	(void)close(fd);
	return ok;
}

struct summary {
	size_t n, n_stored; /* files */
	size_t n_sampled;   /* not stored, though samples are in them */
};

/* Write the debug files of the stored files; they come after all of these, and take what time is left. */
static void write_debug_files(const struct debug_search *search, const struct choice *choices,
			      size_t n, struct writing *writing, struct summary *summary)
{
	for (size_t i = 0; i < n && !writing->err; i++) {
		bool found = false, stored;

		if (!choices[i].stored || is_repeated(choices, i))
			continue;
		if (is_over(writing)) {
			log_debug("debug files of %zu files are not looked for: no time", n - i);
			return;
		}
		stored = write_debug_file(search, choices[i].module, writing, &found);
		summary->n += found;
		summary->n_stored += stored;
		summary->n_sampled += found && !stored && choices[i].weight > 1;
	}
}

int raw_files_write(struct raw_files *files, const struct raw_files_to *to)
{
	const struct modules *modules = files->modules;
	const struct debug_search search = { .opener = to->opener,
					     .store = to->store,
					     .crc_max = FILE_MAX };
	const bool whole = to->whole;
	const uint64_t most_ns = whole ? WHOLE_TIME_MAX_NS : TIME_MAX_NS;
	struct writing writing = { .writer = to->writer,
				   .whole = whole,
				   .until_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + most_ns,
				   .latest_ns = now_ns() + ENDING_STRETCH * most_ns };
	size_t n_modules = modules_count(modules), n = 0;
	uint64_t *weights = weights_of(files);
	struct choice *choices = calloc(n_modules + 1, sizeof(*choices));
	struct summary summary = { .n = 0 };

	if (!choices || !weights)
		writing.err = -ENOMEM;
	for (size_t i = 0; !writing.err && i < n_modules; i++) {
		const struct module *module = modules_at(modules, i);
		struct stat st;

		if (weights[i])
			choices[n++] = (struct choice){
				.module = module,
				.weight = weights[i],
				.gone = !fstat(module_fd(module), &st) && !st.st_nlink,
			};
	}
	if (n)
		qsort(choices, n, sizeof(*choices), by_need);
	for (size_t i = 0; !writing.err && i < n; i++) {
		choices[i].stored = write_file(files, choices[i].module, &writing);
		summary.n++;
		summary.n_stored += choices[i].stored;
		summary.n_sampled += !choices[i].stored && choices[i].weight > 1;
	}
	write_debug_files(&search, choices, n, &writing, &summary);
	log_debug("stored %s %zu of %zu files, %" PRIu64 " bytes",
		  whole ? "all of" : "the parts that walking and naming need of", summary.n_stored,
		  summary.n, writing.n_bytes);
	if (!writing.err && summary.n_sampled)
		log_info("%zu of %zu files are not stored in the capture file: %s",
			 summary.n_sampled, summary.n,
			 whole ? "they are too large"
			       : "they are too large, or there was no time; --with-files has no "
				 "time limit");
	free(weights);
	free(choices);
	return writing.err;
}
