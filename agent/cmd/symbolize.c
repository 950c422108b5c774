/*
 * agent/cmd/symbolize.c: the symbolize command: gives names to addresses that the hosts of a fleet sent without.
 *
 * The supervisor asks the fleet's servers for addresses and inserts their names. The worker, which has no network, finds
 * the names in files (agent/fleet/addresses.h).
 */
#include "agent/array.h"
#include "agent/cli/option.h"
#include "agent/cli/supervisor.h"
#include "agent/clock.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/lookup.h"
#include "agent/fleet/addresses.h"
#include "agent/fleet/server.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/role/files.h"
#include "agent/sanitize.h"
#include "agent/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	SERVERS_MAX = 256,
	AT_ONCE = 4096, /* addresses whose names are looked up together */
	BUILD_ID_TEXT = 2 * UW_BUILD_ID_MAX + 1
};
#define STORE_NS UINT64_C(2000000000) /* for what the store is to keep */
/* What the worker may have found of one batch. */
#define FOUND_MAX ((off_t)256 << 20)

struct options {
	struct walking walking;
	const char *fleet;
	struct addresses_choice choice;
};

static const char help_before[] =
	"usage: offwind symbolize --fleet URL[,URL…] [OPTION]…\n"
	"Gives names to the addresses in a fleet's ClickHouse that hosts sent without\n"
	"(docs/fleet.md): from the files of this host, its debug files, its store, and the\n"
	"servers in $DEBUGINFOD_URLS.  All samples have the names at once, old ones, too.\n"
	"\n";

static const char help_after[] =
	"\n"
	"Prints how many addresses of each file got names.  Names that say more than those\n"
	"that are found stay.\n"
	"Exit code: 0 success, 1 failure, 2 wrong command line.\n";

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--fleet", 0, "URL[,…]",
	  "the servers: http://[USER:PASSWORD@]HOST:8123[/DATABASE]; each shard of a\n"
	  "cluster",
	  .set = option_text, AT(fleet) },
	{ "--build-id", 0, "ID", "only addresses of this file, also those that have names",
	  .set = option_text, AT(choice.build_id) },
	{ "--all", 0, NULL, "also addresses that have names", .set = option_true, AT(choice.all) },
	WALKING_LOOKUP(struct options),
	WALKING_LAST_ROWS(struct options),
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	OPTION_ROWS(option_rows),
};

/* ---- with the network ---------------------------------------------------------------------- */

enum request { NEXT, FOUND };

/* Both processes have the files; the rest is for the one that asks the servers. */
struct asking {
	int asked, found; /* files in memory */
	const struct addresses_choice *choice;
	struct server_url urls[SERVERS_MAX];
	size_t n_urls, at; /* the server that is asked */
	struct addresses batch;
};

static struct fleet_server server_of(const struct asking *a)
{
	return (struct fleet_server){ .url = &a->urls[a->at], .database = a->urls[a->at].database };
}

/* Take a batch of the server at hand. */
static int ask_server(struct asking *a)
{
	struct fleet_server server = server_of(a);
	char *sql = addresses_query(&a->batch, a->choice), *reply = NULL;
	size_t size = 0;
	int err = sql ? server_ask(&server, sql, NULL, &reply, &size) : -ENOMEM;

	free(sql);
	if (err)
		return err;
	err = addresses_take(&a->batch, reply, size);
	if (err == -EBADMSG)
		log_error("%s: the reply cannot be read", a->urls[a->at].shown);
	return err;
}

/* Write the next batch for the worker, and give the number of its rows; 0: there are no more. */
static int next(struct asking *a, uint64_t *n)
{
	int err = 0;

	*n = 0;
	/* A worker that follows one that died gets its batch again. */
	while (!err && !a->batch.there && a->at < a->n_urls) {
		err = ask_server(a);
		if (!err && !a->batch.there) {
			log_info("%s: %" PRIu64 " addresses, %" PRIu64 " got names",
				 a->urls[a->at].shown, a->batch.n_asked, a->batch.n_named);
			addresses_fini(&a->batch);
			a->at++;
		}
	}
	if (err || !a->batch.there)
		return err;
	if (ftruncate(a->asked, 0) || lseek(a->asked, 0, SEEK_SET))
		return -errno;
	err = io_write(a->asked, a->batch.asked, a->batch.size);
	if (!err)
		*n = a->batch.n;
	return err;
}

/* Insert what the worker found. */
static int insert(struct asking *a)
{
	struct fleet_server server = server_of(a);
	struct block block = { .n_rows = 0 };
	off_t size = lseek(a->found, 0, SEEK_END);
	void *found = MAP_FAILED;
	int err = !a->batch.there || size < 0 || size > FOUND_MAX ? -EBADMSG : 0;

	if (!err && size) {
		found = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, a->found, 0);
		err = found == MAP_FAILED ? -errno : 0;
	}
	if (!err)
		err = addresses_name(&a->batch, a->choice, found, (size_t)size, &block);
	if (!err && block.n_rows)
		err = server_insert(&server, &block);
	block_fini(&block);
	if (found != MAP_FAILED)
		(void)munmap(found, (size_t)size);
	return err;
}

/* Serve the worker: supervision.ask. */
static int serve(void *ctx, uint64_t what, uint64_t *number)
{
	return what == NEXT ? next(ctx, number) : what == FOUND ? insert(ctx) : -EINVAL;
}

/* Read the URLs, which commas separate. -EINVAL after reporting what is wrong. */
static int take_urls(struct asking *a, const char *urls)
{
	int err = 0;

	for (const char *at = urls; !err && *at; at += *at == ',') {
		size_t n = strcspn(at, ",");
		char *one = a->n_urls < SERVERS_MAX ? strndup(at, n) : NULL;

		err = one			? server_url_parse(one, &a->urls[a->n_urls])
		      : a->n_urls < SERVERS_MAX ? -ENOMEM
						: -E2BIG;
		a->n_urls += !err;
		free(one);
		at += n;
	}
	return err ? err : a->n_urls ? 0 : -EINVAL;
}

/* ---- in the worker ------------------------------------------------------------------------- */

/* A file, by its build-id, and what came of its addresses. */
struct file {
	char build_id[BUILD_ID_TEXT];
	char *module;	 /* owned; NULL: there is no file */
	const char *why; /* it cannot be read; NULL: it can */
	uint64_t n, named;
};

struct job {
	struct asking *asking;
	struct lookup *lookup;
	struct file file; /* whose addresses come */
	FILE *found;
	uint64_t n_files, n_missing_files, n_addresses, n_named, n_missing, ignored;
};

static int ask(struct job *job, enum request what, uint64_t *number)
{
	return supervisor_is_off() ? serve(job->asking, what, number) : files_command(what, number);
}

/* Print what came of the file whose addresses came last. */
static void print_file(struct job *job)
{
	char text[1024];
	struct file *f = &job->file;

	if (!f->module)
		return;
	if (!job->n_files++)
		(void)printf("%10s %10s  %-40s  %s\n", "named", "unnamed", "build-id", "file");
	(void)sanitize_text(f->module, "", '?', text, sizeof(text));
	(void)printf("%10" PRIu64 " %10" PRIu64 "  %-40s  %s%s%s\n", f->named, f->n - f->named,
		     f->build_id, text, f->why ? ": " : "", f->why ? f->why : "");
	job->n_addresses += f->n;
	job->n_named += f->named;
	job->n_missing_files += f->why != NULL;
	job->n_missing += f->why ? f->n : 0;
	free(f->module);
	f->module = NULL;
}

/* Begin with the addresses of another file. */
static int begin_file(struct job *job, const struct address *first)
{
	struct file *f = &job->file;
	size_t n = uw_bytes_left(&first->build_id);
	int err = lookup_bound(job->lookup);

	print_file(job);
	if (err)
		return err;
	*f = (struct file){ .module = strndup((const char *)first->module.pos,
					      uw_bytes_left(&first->module)) };
	if (!f->module)
		return -ENOMEM;
	/* What is no build-id finds no file. */
	if (n < sizeof(f->build_id))
		memcpy(f->build_id, first->build_id.pos, n);
	return 0;
}

/* Write a number as LEB128, and a text with its size in front. */
static void put_number(FILE *out, uint64_t value)
{
	for (; value > 0x7f; value >>= 7)
		(void)fputc((int)(value & 0x7f) | 0x80, out);
	(void)fputc((int)value, out);
}

static void put_text(FILE *out, const char *text)
{
	size_t n = text ? strnlen(text, ADDRESSES_TEXT) : 0;

	put_number(out, n);
	(void)fwrite(n ? text : "", 1, n, out);
}

static void put_function(FILE *out, const char *function, const char *file, uint32_t line)
{
	put_text(out, function);
	put_text(out, file);
	for (unsigned int shift = 0; shift < 32; shift += 8)
		(void)fputc((int)(line >> shift & 0xff), out);
}

struct some { /* addresses that are looked up together */
	struct job *job;
	uint64_t first; /* the number of the first one in the batch */
};

/* Write the names of an address: lookup_fn. */
static int put_names(void *ctx, size_t i, const struct name *name)
{
	const struct some *some = ctx;
	FILE *out = some->job->found;
	size_t n = name->n_places < ADDRESSES_INLINED ? name->n_places : ADDRESSES_INLINED;

	if (!n && (!name->function || !*name->function))
		return 0;
	put_number(out, some->first + i);
	put_number(out, n ? n : 1);
	for (size_t at = 0; at < n; at++)
		put_function(out, name->places[at].function, name->places[at].file,
			     name->places[at].line);
	if (!n)
		put_function(out, name->function, NULL, 0);
	some->job->file.named++;
	return ferror(out) ? -EIO : 0;
}

/* Look up addresses of the file at hand, the first of which has that number. */
static int find_some(struct job *job, uint64_t first, const uint64_t *addresses, size_t n)
{
	struct some some = { .job = job, .first = first };
	const struct lookup_file opened = { .path = job->file.module,
					    .build_id = job->file.build_id,
					    .limit = UINT64_MAX };
	int err = lookup_open(job->lookup, &opened, &job->file.why);

	job->file.n += n;
	return err || job->file.why
		       ? err
		       : lookup_names(job->lookup, addresses, n, put_names, &some, &job->ignored);
}

static bool is_of(const struct file *f, const struct address *at)
{
	size_t n = strlen(f->build_id);

	return f->module && uw_bytes_left(&at->build_id) == n &&
	       !memcmp(at->build_id.pos, f->build_id, n);
}

/* Look up the rows of a batch, file by file. */
static int find_names(struct job *job, struct uw_bytes asked)
{
	uint64_t *addresses = malloc(AT_ONCE * sizeof(*addresses)), row = 0;
	size_t n = 0;
	int err = addresses ? 0 : -ENOMEM;

	while (!err && !uw_bytes_done(&asked)) {
		struct address at;

		err = address_take(&asked, &at);
		if (!err && n && (n == AT_ONCE || !is_of(&job->file, &at))) {
			err = find_some(job, row - n, addresses, n);
			n = 0;
		}
		if (!err && !is_of(&job->file, &at))
			err = begin_file(job, &at);
		if (!err) {
			addresses[n++] = at.vaddr;
			row++;
		}
	}
	if (!err && n)
		err = find_some(job, row - n, addresses, n);
	free(addresses);
	return err;
}

/* Read a batch, and write the names that are found. */
static int do_batch(struct job *job)
{
	struct asking *a = job->asking;
	off_t size = lseek(a->asked, 0, SEEK_END);
	char *text = size < 0 ? NULL : malloc((size_t)size + 1);
	int fd = -1, err = text ? 0 : -ENOMEM;

	if (!err)
		err = io_read_at(a->asked, 0, text, (size_t)size);
	if (!err && (ftruncate(a->found, 0) || lseek(a->found, 0, SEEK_SET) ||
		     (fd = dup(a->found)) < 0 || !(job->found = fdopen(fd, "w"))))
		err = -errno;
	if (!err) {
		err = find_names(job, uw_bytes_of(text, (size_t)size));
		if (fclose(job->found) && !err)
			err = -EIO;
	} else if (fd >= 0) {
		(void)close(fd);
	}
	free(text);
	return err;
}

static int symbolize(struct job *job, const struct walking *walking)
{
	uint64_t n = 0, none;
	int err = lookup_new(walking, &job->lookup);

	if (!err)
		err = ask(job, NEXT, &n);
	while (!err && n) {
		err = do_batch(job);
		if (!err)
			err = ask(job, FOUND, &none);
		if (!err)
			err = ask(job, NEXT, &n);
	}
	print_file(job);
	lookup_free(job->lookup);
	if (err) {
		log_error("not all addresses were looked up: %s", strerror(-err));
		return err;
	}
	log_info("%" PRIu64 " addresses of %" PRIu64 " files: %" PRIu64 " got names, %" PRIu64
		 " have none; of these, %" PRIu64 " are of %" PRIu64 " files that cannot be read",
		 job->n_addresses, job->n_files, job->n_named, job->n_addresses - job->n_named,
		 job->n_missing, job->n_missing_files);
	return 0;
}

static int run(struct options *o, struct asking *asking)
{
	struct job job = { .asking = asking };
	int err;

	walking_open_store(&o->walking);
	supervisor_confine();
	err = symbolize(&job, &o->walking);
	free(job.file.module);
	store_work(o->walking.pipeline.store, STORE_NS);
	store_close(o->walking.pipeline.store);
	return err ? CMD_FAILED : CMD_DONE;
}

int cmd_symbolize(int argc, char **argv)
{
	static struct asking asking; /* too large for the stack, and needed until the end */
	struct options o = { .choice = { .time_s = clock_ns(CLOCK_REALTIME) / 1000000000 } };
	int parsed = option_read(&option_table, argc, argv, &o);

	if (parsed)
		return parsed < 0 ? CMD_USAGE : CMD_DONE;
	if (optind < argc || !o.fleet) {
		log_error("symbolize takes --fleet URL, and no other argument");
		return CMD_USAGE;
	}
	asking = (struct asking){ .choice = &o.choice };
	if (take_urls(&asking, o.fleet))
		return CMD_USAGE;
	asking.asked = memfd_create("asked", MFD_CLOEXEC);
	asking.found = memfd_create("found", MFD_CLOEXEC);
	if (asking.asked < 0 || asking.found < 0) {
		log_error("%s", strerror(errno));
		return CMD_FAILED;
	}
	io_allow_many_files();
	if (supervisor_start(&(struct supervision){ .db = o.walking.db,
						    .no_store = o.walking.no_cache,
						    .ask = serve,
						    .ctx = &asking }))
		return CMD_FAILED;
	return run(&o, &asking);
}
