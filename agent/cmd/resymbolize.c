/*
 * agent/cmd/resymbolize.c: the resymbolize command: looks up the functions of a history again, because debug
 * files have come since.
 */
#include "agent/array.h"
#include "agent/cli/option.h"
#include "agent/cli/supervisor.h"
#include "agent/cli/walking.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/given.h"
#include "agent/cmd/lookup.h"
#include "agent/export/export.h"
#include "agent/export/formats.h"
#include "agent/history/history.h"
#include "agent/history/request.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/sanitize.h"
#include "agent/store/store.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	AT_ONCE = 4096,	 /* addresses: one transaction, which others that write wait for */
	MISSING_SAID = 5 /* files that are not there */
};
#define STORE_NS UINT64_C(2000000000) /* for what the store is to keep */

struct options {
	struct walking walking;
	struct pick pick; /* only from_ns and to_ns */
};

/* A mapping of a file, and its addresses. */
struct file {
	char *path, *build_id; /* owned */
	uint64_t off, start, limit;
	uint64_t *addresses; /* owned */
	size_t n, room;
};

struct files {
	struct file *all;
	size_t n, room;
};

struct job {
	const char *path; /* of the history */
	struct files files;
	struct lookup *lookup;
	struct history_renamed renamed;
	uint64_t n_addresses, n_unnamed, n_missing, n_missing_files;
};

static const char help_before[] =
	"usage: offwind resymbolize [OPTION]… [HISTORY]\n"
	"Looks up the functions, source lines and inlined calls of a history again, because\n"
	"debug files have come since it was recorded.  HISTORY is by default that of this\n"
	"machine's daemon, which may go on recording.\n"
	"\n";

static const char help_after[] =
	"\n"
	"Names that are there and say more than those that are found now stay.\n"
	"Exit code: 0 success, 1 failure, 2 wrong command line.\n";

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--from", 0, "TIME", OPTION_BESIDE, .set = when_option, AT(pick.from_ns) },
	{ "--to", 0, "TIME",
	  "only the functions that ran in this range of time: -10m, now, 23:59,\n"
	  "\"2026-01-31 23:59:59\", @1790000000; names change for all times",
	  .set = when_option, AT(pick.to_ns), .column = 28 },
	WALKING_LOOKUP(struct options),
	WALKING_LAST_ROWS(struct options),
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	OPTION_ROWS(option_rows),
};

/* ---- the addresses ----------------------------------------------------------------------- */

static void free_files(struct files *files)
{
	for (size_t i = 0; i < files->n; i++) {
		free(files->all[i].path);
		free(files->all[i].build_id);
		free(files->all[i].addresses);
	}
	free(files->all);
}

/* Add an address: history_address_fn. Those of one mapping come together. */
static int take_address(void *ctx, const struct history_address *a)
{
	struct files *files = ctx;
	struct file *last = files->n ? &files->all[files->n - 1] : NULL;
	int err;

	if (!last || last->off != a->off || strcmp(last->build_id, a->build_id) != 0 ||
	    strcmp(last->path, a->path) != 0) {
		err = array_grow(files->all, files->n, files->room);
		if (err)
			return err;
		last = &files->all[files->n++];
		*last = (struct file){ .path = strdup(a->path),
				       .build_id = strdup(a->build_id),
				       .off = a->off,
				       .start = a->start,
				       .limit = a->limit };
		if (!last->path || !last->build_id)
			return -ENOMEM;
	}
	err = array_grow(last->addresses, last->n, last->room);
	if (!err)
		last->addresses[last->n++] = a->address;
	return err;
}

/* ---- one file ---------------------------------------------------------------------------- */

static uint32_t add_function(struct stacks *s, const char *name, const char *system_name,
			     const char *file, uint32_t start_line)
{
	const struct stacks_function f = { .name = stacks_text(s, name),
					   .system_name =
						   stacks_text(s, system_name ? system_name : name),
					   .file = stacks_text(s, file ? file : ""),
					   .start_line = start_line };

	return f.name && f.system_name && f.file ? stacks_function(s, &f) : UW_HASH_NONE;
}

/* Add the lines of a name to a profile, as a recording has them. Return how many; 0: no memory. */
static uint32_t add_lines(struct stacks *s, const struct name *name, struct stacks_line *lines)
{
	char place[SANITIZED_MAX];

	for (size_t i = 0; i < name->n_places; i++) {
		const struct name_place *p = &name->places[i];

		lines[i] = (struct stacks_line){ .function = add_function(s, p->function,
									  p->system_name, p->file,
									  p->start_line),
						 .line = p->line };
		if (lines[i].function == UW_HASH_NONE)
			return 0;
	}
	if (name->n_places)
		return (uint32_t)name->n_places;
	if (!name->function || !*name->function)
		export_place(name, place, sizeof(place));
	lines[0] =
		(struct stacks_line){ .function = name->function && *name->function
							  ? add_function(s, name->function,
									 name->system_name, NULL, 0)
							  : add_function(s, place, NULL, NULL, 0) };
	return lines[0].function != UW_HASH_NONE;
}

/* What gets names together. */
struct some {
	struct stacks *stacks;
	uint32_t module;
	const uint64_t *addresses;
};

/* Add an address to a profile with the names that were found: lookup_fn. */
static int add_address(void *ctx, size_t i, const struct name *name)
{
	const struct some *some = ctx;
	struct stacks *s = some->stacks;
	struct stacks_location l = { .module = some->module, .address = some->addresses[i] };
	struct stacks_line one, *lines = &one;
	const int64_t value = 1;
	uint32_t id = UW_HASH_NONE;

	if (name->n_places > 1)
		lines = calloc(name->n_places, sizeof(*lines));
	l.n_lines = lines ? add_lines(s, name, lines) : 0;
	if (l.n_lines)
		id = stacks_location(s, &l, lines);
	if (lines != &one)
		free(lines);
	return id == UW_HASH_NONE ? -ENOMEM
				  : stacks_add(s, &(struct stacks_sample){ .n_locations = 1 }, &id,
					       NULL, &value);
}

/* Send a profile whose locations are addresses with other names. */
static int send(struct job *job, const struct stacks *s)
{
	int fd = memfd_create("names", MFD_CLOEXEC);
	FILE *out = fd >= 0 ? fdopen(fd, "w+") : NULL;
	int err = out ? format_write(FORMAT_PPROF, s, 0, out) : -ENOMEM;

	if (!err && fflush(out))
		err = -errno;
	if (!err)
		err = history_put_names(job->path, fd, &job->renamed);
	if (out)
		(void)fclose(out);
	else if (fd >= 0)
		(void)close(fd);
	return err;
}

/* Look up some addresses of a file, and have them renamed. */
static int rename_some(struct job *job, const struct file *file, const uint64_t *addresses,
		       size_t n)
{
	struct some some = { .addresses = addresses };
	int err = stacks_new(&some.stacks);

	if (!err)
		err = stacks_add_type(some.stacks, "samples", "count");
	if (!err) {
		const struct stacks_module m = { .path = stacks_text(some.stacks, file->path),
						 .build_id =
							 stacks_text(some.stacks, file->build_id),
						 .start = file->start,
						 .limit = file->limit,
						 .off = file->off };

		some.module = m.path && m.build_id ? stacks_module(some.stacks, &m) : UW_HASH_NONE;
		err = some.module == UW_HASH_NONE ? -ENOMEM : 0;
	}
	if (!err)
		err = lookup_names(job->lookup, addresses, n, add_address, &some, &job->n_unnamed);
	if (!err && some.stacks->n_samples)
		err = send(job, some.stacks);
	stacks_free(some.stacks);
	return err;
}

static int rename_file(struct job *job, const struct file *file)
{
	const struct lookup_file opened = { .path = file->path,
					    .build_id = file->build_id,
					    .off = file->off,
					    .start = file->start,
					    .limit = file->limit };
	const char *why = NULL;
	int err = lookup_open(job->lookup, &opened, &why);

	job->n_addresses += file->n;
	if (!err && why) {
		job->n_missing += file->n;
		if (job->n_missing_files++ < MISSING_SAID)
			log_info("%s, build-id %s, with %zu addresses: %s", file->path,
				 file->build_id, file->n, why);
		return 0;
	}
	for (size_t i = 0; !err && i < file->n; i += AT_ONCE)
		err = rename_some(job, file, file->addresses + i,
				  file->n - i < AT_ONCE ? file->n - i : AT_ONCE);
	return err ? err : lookup_bound(job->lookup);
}

/* ---- all --------------------------------------------------------------------------------- */

static void say_result(const struct job *job)
{
	const struct history_renamed *r = &job->renamed;
	char text[512] = "";

	textbuf_add(text, sizeof(text),
		    "%" PRIu64 " addresses of %zu mappings of files: %" PRIu64
		    " got names, %" PRIu64 " have better names or lines",
		    job->n_addresses, job->files.n, r->named, r->better);
	if (r->same)
		textbuf_add(text, sizeof(text), ", %" PRIu64 " are as before", r->same);
	if (r->not_replaced)
		textbuf_add(text, sizeof(text), ", %" PRIu64 " keep names that say more",
			    r->not_replaced);
	if (job->n_unnamed)
		textbuf_add(text, sizeof(text), ", %" PRIu64 " have no name", job->n_unnamed);
	log_info("%s", text);
	if (job->n_missing_files)
		log_info("%" PRIu64 " files with %" PRIu64 " addresses are not there; see --symfs",
			 job->n_missing_files, job->n_missing);
}

/* Look up all addresses that the history has, and have them renamed. */
static int resymbolize(struct job *job, const struct walking *walking)
{
	int err = lookup_new(walking, &job->lookup);

	for (size_t i = 0; !err && i < job->files.n; i++) {
		log_progress("%zu of %zu files", i, job->files.n);
		err = rename_file(job, &job->files.all[i]);
	}
	log_progress_done();
	if (err && !log_has_error())
		log_error("%s: %s", job->path, strerror(-err));
	if (!err)
		say_result(job);
	lookup_free(job->lookup);
	return err;
}

/* Read the addresses before the rights are given up. Return 0 or a negative code after reporting it. */
static int read_addresses(struct job *job, const struct pick *pick)
{
	struct history *h;
	int err;

	if (!history_is(job->path)) {
		log_error("%s: this is no history (offwind daemon, offwind record --history)",
			  job->path);
		return -EINVAL;
	}
	err = history_open(job->path, false, &h);
	if (err)
		return err;
	err = history_addresses(h, pick->from_ns, pick->to_ns ? pick->to_ns : UINT64_MAX,
				take_address, &job->files);
	history_close(h);
	return err;
}

/* In the worker. Return the exit code. */
static int run(struct options *o, const char *path)
{
	struct job job = { .path = path };
	int err;

	walking_open_store(&o->walking);
	err = read_addresses(&job, &o->pick);
	supervisor_confine();
	if (!err)
		err = resymbolize(&job, &o->walking);
	free_files(&job.files);
	store_work(o->walking.pipeline.store, STORE_NS);
	store_close(o->walking.pipeline.store);
	return err ? CMD_FAILED : CMD_DONE;
}

int cmd_resymbolize(int argc, char **argv)
{
	struct options o = { .walking = { .no_cache = false } };
	int parsed = option_read(&option_table, argc, argv, &o), rc = CMD_FAILED;
	char *owned = NULL, *path;

	if (parsed)
		return parsed < 0 ? CMD_USAGE : CMD_DONE;
	if (argc - optind > 1) {
		log_error("resymbolize takes one history");
		return CMD_USAGE;
	}
	if (pick_check_range(&o.pick))
		return CMD_USAGE;
	path = optind < argc ? argv[optind] : (owned = given_history());
	if (!path)
		return CMD_FAILED;
	io_allow_many_files();
	if (!supervisor_start(&(struct supervision){ .inputs = &path,
						     .n_inputs = 1,
						     .history = path,
						     .db = o.walking.db,
						     .no_store = o.walking.no_cache }))
		rc = run(&o, path);
	free(owned);
	return rc;
}
