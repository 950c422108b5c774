/*
 * agent/perfdata/perfdata.c: reads a perf.data file or pipe, as written by perf record, and makes
 * events of it.
 *
 * perfdata_scan() reads one record after another from the file, the pipe or the decompressor, and
 * puts each record that has a time into a queue. perfdata_deliver() turns the oldest record of the
 * queue into events. For a record in a file the queue stores only its offset. The stack of a sample
 * is read when the sample is delivered, and only the part of the stack that was in use.
 *
 * Memory: 24 MiB for the queue, and BLOCKS_MAX (scan.c) for records that cannot be read a second
 * time. When either limit is reached, the older half of the queue is delivered at once. A record
 * may then be delivered after a newer one.
 *
 * A record that contradicts itself is left out (a sample counts as lost) and reading goes on
 * behind it. Reading ends where records can no longer be told apart. In both cases the first
 * damage is returned as the error at the end of the stream.
 */
#include "agent/perfdata/reader_state.h"

#include "agent/perfdata/format.h"
#include "agent/sanitize.h"
#include "agent/source/memory_image.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- damage ----------------------------------------------------------------------- */

void perfdata_damage(struct perfdata *p, int err, uint64_t off, const char *format, ...)
{
	va_list args;

	p->n_damaged++;
	if (p->err)
		return;
	p->err = err;
	p->damage_off = off;
	va_start(args, format);
	(void)vsnprintf(p->damage, sizeof(p->damage), format, args);
	va_end(args);
}

/* Format the stored damage as one line for source.error. */
static void write_error(const struct perfdata *p, char *out, size_t size)
{
	char more[96] = "";

	if (!p->closed)
		(void)snprintf(more, sizeof(more), "; perf record did not close the file");
	else if (p->n_damaged > 1)
		(void)snprintf(more, sizeof(more), "; %llu more records are damaged",
			       (unsigned long long)p->n_damaged - 1);
	(void)snprintf(out, size, "%.200s: offset 0x%llx: %.200s%s", p->name,
		       (unsigned long long)p->damage_off, p->damage, more);
}

/* ---- the source ------------------------------------------------------------------------ */

/* Release the block that the pointers of the last events pointed into. */
static void release_held(struct perfdata *p)
{
	if (p->held)
		perfdata_release(&p->pool, p->held);
	p->held = NULL;
}

/* Return the current sample once more, for the next event of its group. */
static bool next_member(struct perfdata *p, struct event *event)
{
	const struct perfdata_member *member;

	if (p->at_member == p->n_members)
		return false;
	member = &p->members[p->at_member++];
	*event = p->next[0];
	event->sample.event = member->event;
	event->sample.period = member->period;
	return true;
}

/*
 * source_ops.next: return the events of the current record, then deliver or scan more until there
 * is an event.
 */
static int next(struct source *source, struct event *event, int timeout_ms)
{
	struct perfdata *p = (struct perfdata *)source;
	struct perfdata_entry entry;

	(void)timeout_ms; /* a file is always ready, and read() waits for a pipe */
	while (p->at_next == p->n_next) {
		if (next_member(p, event))
			return 1;
		release_held(p);
		if (p->has_direct) {
			p->has_direct = false;
			perfdata_deliver(p, &p->direct);
		} else if (perfdata_queue_take(&p->queue, &entry)) {
			perfdata_prefetch(p);
			perfdata_deliver(p, &entry);
		} else if (!p->scanned) {
			perfdata_scan(p);
			if (p->scanned)
				perfdata_queue_drain(&p->queue);
		} else if (!perfdata_deliver_lost(p)) {
			if (p->err)
				write_error(p, source->error, sizeof(source->error));
			return p->err;
		}
	}
	*event = p->next[p->at_next++];
	return 1;
}

static void close_source(struct source *source)
{
	struct perfdata *p = (struct perfdata *)source;
	struct perfdata_entry entry;

	if (p->has_direct && p->direct.order & PERFDATA_ENTRY_COPIED)
		perfdata_release(&p->pool, (const uint8_t *)(uintptr_t)p->direct.where);
	perfdata_queue_drain(&p->queue);
	while (perfdata_queue_take(&p->queue, &entry))
		if (entry.order & PERFDATA_ENTRY_COPIED)
			perfdata_release(&p->pool, (const uint8_t *)(uintptr_t)entry.where);
	release_held(p);
	perfdata_queue_fini(&p->queue);
	perfdata_stream_fini(&p->pipe);
	perfdata_stream_fini(&p->inflated);
	perfdata_pool_fini(&p->pool);
	perfdata_window_fini(&p->window);
	perfdata_attrs_fini(&p->attrs);
	perfdata_facts_fini(&p->facts);
	perfdata_sample_fini(&p->sample);
	perfdata_counts_fini(&p->counts);
	perfdata_deferred_fini(&p->deferred);
	(void)ZSTD_freeDCtx(p->zstd);
	free(p->scratch);
	free(p->name);
	(void)close(p->fd);
	free(p);
}

/* ---- opening ------------------------------------------------------------------------ */

/*
 * Guess the machine of a recording that does not name it: a pipe of an old perf, or a truncated
 * file.
 */
static const struct machine *guess_machine(const struct perfdata *p)
{
	for (size_t i = 0; i < p->attrs.n; i++)
		if (p->attrs.attrs[i].attr.sample_regs_user)
			return machine_of_perf_regs(p->attrs.attrs[i].attr.sample_regs_user);
	return machine_here();
}

/*
 * Return whether the file was last written before this machine was booted. Such a file cannot be a
 * recording of the running kernel. Also true if the times cannot be read.
 */
static bool older_than_boot(int fd)
{
	struct timespec now, up;
	struct stat st;

	if (fstat(fd, &st) || clock_gettime(CLOCK_REALTIME, &now) ||
	    clock_gettime(CLOCK_BOOTTIME, &up))
		return true;
	return S_ISREG(st.st_mode) && st.st_mtim.tv_sec < now.tv_sec - up.tv_sec - 1;
}

/*
 * Return whether the recording was made under the running kernel, as far as the file shows. A
 * recording of user code only (cpu-clock:u) contains neither the kernel's address nor its
 * build-id. Then host name, kernel release and the age of the file must decide.
 */
static bool is_same_kernel(const struct perfdata *p)
{
	const struct source_info *info = &p->source.info;
	const struct uw_build_id *id = &info->kernel_build_id;
	struct uw_build_id running;
	struct utsname here;

	if (uname(&here) || !info->host[0] || strcmp(info->host, here.nodename) != 0 ||
	    strcmp(info->kernel, here.release) != 0)
		return false;
	image_kernel_build_id(&running);
	return (!id->size || uw_build_id_equal(id, &running)) && !older_than_boot(p->fd);
}

/* Fill source.info from the facts that the recording contains. */
static void fill_info(struct perfdata *p)
{
	struct source_info *info = &p->source.info;
	struct utsname here;

	(void)snprintf(info->kind, sizeof(info->kind), "perf.data");
	(void)snprintf(info->host, sizeof(info->host), "%s", p->facts.host);
	(void)snprintf(info->kernel, sizeof(info->kernel), "%s", p->facts.kernel);
	(void)snprintf(info->recorder, sizeof(info->recorder), "%s", p->facts.recorder);
	(void)snprintf(info->command, sizeof(info->command), "%s", p->facts.command);
	info->kernel_build_id = p->facts.kernel_build_id;
	p->machine = p->facts.arch[0] ? machine_named(p->facts.arch) : guess_machine(p);
	info->machine = p->machine ? p->machine->elf : 0;
	info->same_kernel = is_same_kernel(p);
	info->other_host = info->host[0] && !uname(&here) && strcmp(info->host, here.nodename) != 0;
	/* The user of kallsyms must still check that _text is at kernel_text. */
	info->same_boot = info->same_kernel && info->kernel_text;
}

/*
 * Scan until the first kernel record. In a pipe, the records before it hold what the header of a
 * file holds.
 */
static void scan_head(struct perfdata *p)
{
	while (!p->scanned && !p->has_direct && !p->queue.heap.n)
		perfdata_scan(p);
	if (p->scanned)
		perfdata_queue_drain(&p->queue);
}

static const struct source_ops ops = { .next = next, .close = close_source };

int source_perfdata_open(int fd, const char *name, struct source **out, char *error)
{
	struct perfdata *p = calloc(1, sizeof(*p));
	off_t size = lseek(fd, 0, SEEK_END);
	int err = -ENOMEM;

	if (!p) {
		(void)snprintf(error, 512, "%.200s: %s", name, strerror(ENOMEM));
		(void)close(fd);
		return -ENOMEM;
	}
	p->source.ops = &ops;
	p->fd = fd;
	p->name = strdup(name);
	p->closed = true;
	p->seekable = size >= 0;
	p->end = p->file_size = p->seekable ? (uint64_t)size : 0;
	p->pipe.pool = p->inflated.pool = &p->pool;
	perfdata_attrs_init(&p->attrs);
	perfdata_queue_init(&p->queue);
	perfdata_window_init(&p->window, fd, p->file_size);
	p->scratch = malloc(PERFDATA_RECORD_MAX + 1);
	if (!p->name || !p->scratch) {
		(void)snprintf(error, 512, "%.200s: %s", name, strerror(ENOMEM));
		goto fail;
	}

	if (!perfdata_read_header(p))
		goto damaged;
	scan_head(p);
	if (!p->attrs.n) {
		perfdata_damage(p, -EBADMSG, p->off, "no event is described");
		goto damaged;
	}
	if (p->facts.is_directory) {
		p->err = 0;
		perfdata_damage(p, -ENOTSUP, 0,
				"its data lie in other files (perf record --threads), "
				"which is not supported");
		goto damaged;
	}
	fill_info(p);
	if (!p->machine) {
		char arch[4 * sizeof(p->facts.arch)];

		(void)sanitize_text(p->facts.arch, "", '?', arch, sizeof(arch));
		p->err = 0;
		perfdata_damage(p, -ENOTSUP, 0, "recorded on %s, which is not supported", arch);
		goto damaged;
	}
	*out = &p->source;
	return 0;

damaged:
	p->n_damaged = 0;
	p->closed = true;
	err = p->err;
	write_error(p, error, 512);
fail:
	close_source(&p->source);
	return err;
}
