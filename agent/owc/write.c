/*
 * agent/owc/write.c: writes capture files (.owc). proto/capture.proto describes the format.
 *
 * Records are collected in memory and written as one zstd frame at a time. The index of all frames
 * is written at the end.
 */
#include "agent/clock.h"
#include "agent/owc/owc.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/owc/format.h"
#include "proto/capture.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum {
	FRAME_SIZE = 1 << 20,	      /* a frame of this content size is written */
	SYMBOLS_A_RECORD = 4096,      /* kernel symbols in one record */
	IMAGES_MAX = 64,	      /* stored images; further ones are written each time */
	KERNEL_LOOKUPS_MAX = 1 << 20, /* kernel addresses stored for symbolizing */
};

static const uint64_t frame_age_ns = 1000000000;

struct image {
	uint32_t id;
	uint8_t *bytes;
	uint64_t size;
};

struct frame { /* like Frame in the index */
	uint64_t size, content_size, first_time_ns, last_time_ns;
	uint32_t n_events, n_samples;
	bool kernel_symbols;
};

struct kept_file { /* like KeptFile in the index */
	struct owc_file file;
	char *path; /* owned */
	uint32_t first_frame, n_frames;
};

struct owc_writer {
	int fd;
	int err;       /* the first error; nothing is written after it */
	bool reported; /* err has been returned */
	const struct source_info *info;
	uint64_t off; /* bytes written */
	ZSTD_CCtx *zstd;

	uint8_t *content; /* content of the frame being filled */
	size_t n_content, room_content;
	uint8_t *packed; /* room for a compressed frame */
	size_t room_packed;
	uint64_t frame_since_ns; /* when its first record was added, CLOCK_MONOTONIC */
	struct frame frame;
	struct frame *frames;
	size_t n_frames, room_frames;

	uint8_t *header; /* the packed header that was written last */
	size_t n_header, n_header_events;
	struct image images[IMAGES_MAX];
	size_t n_images;
	uint32_t next_image;
	Offwind__Capture__Region *regions; /* buffer for one sample */
	Offwind__Capture__Region **region_list;
	size_t room_regions;
	Offwind__Capture__Trailer totals;
	uint64_t n_written; /* samples in the complete frames of the file */

	struct kept_file *files;
	size_t n_files, room_files;

	uint64_t *lookups;
	size_t n_lookups, room_lookups;
	struct hash_index by_lookup;
};

/*
 * Return w->err if it has not been returned yet, else 0. All public functions return through this
 * one, so that an error is returned once.
 */
static int outcome(struct owc_writer *w)
{
	if (!w->err || w->reported)
		return 0;
	w->reported = true;
	return w->err;
}

/* Store the first error; later ones are ignored. */
static void fail(struct owc_writer *w, int err)
{
	if (!w->err)
		w->err = err;
}

/*
 * Truncate a regular file to off after a failed write, so that it ends with a complete frame and
 * n_written is the number of samples in it.
 */
static void cut_off(struct owc_writer *w, uint64_t off)
{
	struct stat st;

	/* Do not truncate a file that had contents before: its offsets differ from w->off. */
	if (w->off == off || fstat(w->fd, &st) || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size != w->off)
		return;
	if (!ftruncate(w->fd, (off_t)off))
		w->off = off;
}

/* Write all bytes. On failure set w->err and remove the bytes of this call from the file. */
static void write_bytes(struct owc_writer *w, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	const uint64_t from = w->off;

	while (!w->err && size) {
		ssize_t n = write(w->fd, at, size);

		if (n > 0) {
			at += n;
			size -= (size_t)n;
			w->off += (uint64_t)n;
		} else if (n == 0) {
			fail(w, -EIO);
		} else if (errno != EINTR) {
			fail(w, -errno);
			cut_off(w, from);
		}
	}
}

/* ---- frames ---------------------------------------------------------------- */

/*
 * Grow a buffer to at least want bytes. Return false and set w->err if there is no memory. Also
 * return false if an error happened before.
 */
static bool reserve(struct owc_writer *w, uint8_t **bytes, size_t *room, size_t want)
{
	uint8_t *bigger;

	if (w->err)
		return false;
	if (want <= *room)
		return true;
	want += want / 4;
	bigger = realloc(*bytes, want);
	if (!bigger) {
		fail(w, -ENOMEM);
		return false;
	}
	*bytes = bigger;
	*room = want;
	return true;
}

/* Append the frame that was written to the list for the index. size is its compressed size. */
static void remember_frame(struct owc_writer *w, size_t size)
{
	if (w->n_frames == w->room_frames) {
		size_t room = w->room_frames ? w->room_frames * 2 : 64;
		struct frame *bigger = reallocarray(w->frames, room, sizeof(*bigger));

		if (!bigger) {
			fail(w, -ENOMEM);
			return;
		}
		w->frames = bigger;
		w->room_frames = room;
	}
	w->frame.size = size;
	w->frame.content_size = w->n_content;
	w->frames[w->n_frames++] = w->frame;
}

/* Compress the buffered content, write it as one frame and begin an empty one. */
static void write_frame(struct owc_writer *w)
{
	size_t size;

	if (!w->n_content ||
	    !reserve(w, &w->packed, &w->room_packed, ZSTD_compressBound(w->n_content)))
		return;
	size = ZSTD_compress2(w->zstd, w->packed, w->room_packed, w->content, w->n_content);
	if (ZSTD_isError(size)) {
		fail(w, -ENOMEM); /* the only possible error, as there is room for the worst case */
		return;
	}
	write_bytes(w, w->packed, size);
	if (!w->err) {
		w->n_written += w->frame.n_samples;
		remember_frame(w, size);
	}
	w->n_content = 0;
	w->frame = (struct frame){ 0 };
}

/* Write the buffered frame if it is large or old enough. */
static void write_frame_if_due(struct owc_writer *w)
{
	if (w->n_content >= FRAME_SIZE ||
	    (w->n_content && now_ns() - w->frame_since_ns >= frame_age_ns))
		write_frame(w);
}

/*
 * Append a record to the frame: its size as a varint, then the packed record. Return -E2BIG if the
 * record is larger than readers accept. If memory is short, set w->err and return 0.
 */
static int add_record(struct owc_writer *w, const Offwind__Capture__Record *record)
{
	size_t size = offwind__capture__record__get_packed_size(record);
	uint8_t *at;

	if (size > OWC_RECORD_MAX)
		return -E2BIG;
	if (!reserve(w, &w->content, &w->room_content, w->n_content + size + 10))
		return 0;
	if (!w->n_content)
		w->frame_since_ns = now_ns();
	at = w->content + w->n_content;
	for (size_t rest = size;; rest >>= 7) {
		*at++ = (uint8_t)(rest >= 0x80 ? rest | 0x80 : rest);
		if (rest < 0x80)
			break;
	}
	at += offwind__capture__record__pack(record, at);
	w->n_content = (size_t)(at - w->content);
	return 0;
}

/* ---- header ---------------------------------------------------------------- */

/* Return s as protobuf bytes that borrow it; NULL becomes the empty text. */
static ProtobufCBinaryData text(const char *s)
{
	return (ProtobufCBinaryData){ .len = s ? strlen(s) : 0, .data = (uint8_t *)(uintptr_t)s };
}

static ProtobufCBinaryData bytes_of(const void *bytes, size_t size)
{
	return (ProtobufCBinaryData){ .len = size, .data = (uint8_t *)(uintptr_t)bytes };
}

/* Store the packed header. Return true if it differs from the one that was written last. */
static bool header_changed(struct owc_writer *w, const Offwind__Capture__Header *header)
{
	size_t size = offwind__capture__header__get_packed_size(header);
	uint8_t *packed = malloc(size + 1);

	if (!packed) {
		fail(w, -ENOMEM);
		return false;
	}
	(void)offwind__capture__header__pack(header, packed);
	if (w->header && size == w->n_header && !memcmp(packed, w->header, size)) {
		free(packed);
		return false;
	}
	free(w->header);
	w->header = packed;
	w->n_header = size;
	w->n_header_events = header->n_events;
	return true;
}

/* Append a header if it changed since the last one. Event kinds may be added during a recording. */
static void add_header(struct owc_writer *w)
{
	const struct source_info *info = w->info;
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;
	Offwind__Capture__Header header = OFFWIND__CAPTURE__HEADER__INIT;
	Offwind__Capture__EventKind *kinds = calloc(info->n_events + 1, sizeof(*kinds));
	Offwind__Capture__EventKind **list = calloc(info->n_events + 1, sizeof(*list));
	char boot_id[OWC_BOOT_ID_SIZE];

	if (!kinds || !list) {
		fail(w, -ENOMEM);
		goto out;
	}
	header.machine = info->machine;
	header.kind = text(info->kind);
	header.host = text(info->host);
	header.kernel = text(info->kernel);
	header.recorder = text(info->recorder);
	header.command = text(info->command);
	header.wall_start_ns = info->wall_start_ns;
	header.wall_first_ns = info->wall_first_ns;
	header.kernel_build_id = bytes_of(info->kernel_build_id.bytes, info->kernel_build_id.size);
	header.kernel_text = info->kernel_text;
	header.red_zone = info->red_zone;
	if (info->same_boot && owc_boot_id(boot_id))
		header.boot_id = text(boot_id);
	for (size_t i = 0; i < info->n_events; i++) {
		const struct source_event *e = &info->events[i];

		offwind__capture__event_kind__init(&kinds[i]);
		kinds[i].name = text(e->name);
		kinds[i].type = text(e->type);
		kinds[i].unit = text(e->unit);
		kinds[i].period = e->period;
		kinds[i].frequency_hz = e->frequency_hz;
		list[i] = &kinds[i];
	}
	header.events = list;
	header.n_events = info->n_events;
	if (!header_changed(w, &header))
		goto out;
	record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_HEADER;
	record.header = &header;
	if (add_record(w, &record))
		fail(w, -E2BIG);
out:
	free(kinds);
	free(list);
}

/* ---- events ---------------------------------------------------------------- */

/*
 * Return in *id the id of the mapping's image (such as the vDSO), or 0 if it has none. A new image
 * is written first, before the mapping that refers to it. Return 0 or -E2BIG.
 */
static int add_image(struct owc_writer *w, const struct event_mapping *m, uint32_t *id)
{
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;
	Offwind__Capture__Image image = OFFWIND__CAPTURE__IMAGE__INIT;
	uint8_t *copy;
	int err;

	*id = 0;
	if (!m->image || !m->image_size)
		return 0;
	for (size_t i = 0; i < w->n_images; i++) {
		if (w->images[i].size == m->image_size &&
		    !memcmp(w->images[i].bytes, m->image, m->image_size)) {
			*id = w->images[i].id;
			return 0;
		}
	}
	image.id = w->next_image + 1;
	image.content = bytes_of(m->image, m->image_size);
	record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_IMAGE;
	record.image = &image;
	err = add_record(w, &record);
	if (err)
		return err;
	*id = ++w->next_image;
	copy = w->n_images < IMAGES_MAX ? malloc(m->image_size) : NULL;
	if (copy) {
		memcpy(copy, m->image, m->image_size);
		w->images[w->n_images++] = (struct image){ *id, copy, m->image_size };
	}
	return 0;
}

struct lookup_key {
	const struct owc_writer *w;
	uint64_t lookup;
};

static bool same_lookup(const void *ctx, uint32_t id)
{
	const struct lookup_key *key = ctx;

	return key->w->lookups[id] == key->lookup;
}

/*
 * Store a kernel address for owc_writer_kernel_lookups(). A lack of memory is ignored here,
 * because it costs only the name of this address.
 */
static void remember_lookup(struct owc_writer *w, uint64_t lookup)
{
	struct lookup_key key = { w, lookup };
	uint64_t hash = hash_u64(0, lookup);

	if (w->n_lookups == KERNEL_LOOKUPS_MAX ||
	    hash_find(&w->by_lookup, hash, same_lookup, &key) != HASH_NONE)
		return;
	if (w->n_lookups == w->room_lookups) {
		size_t room = w->room_lookups ? w->room_lookups * 2 : 1024;
		uint64_t *bigger = reallocarray(w->lookups, room, sizeof(*bigger));

		if (!bigger)
			return;
		w->lookups = bigger;
		w->room_lookups = room;
	}
	w->lookups[w->n_lookups] = lookup;
	if (!hash_add(&w->by_lookup, hash, (uint32_t)w->n_lookups))
		w->n_lookups++;
}

/* Make room for the regions of one sample. Return false and set w->err if there is no memory. */
static bool room_for_regions(struct owc_writer *w, size_t n)
{
	if (n > w->room_regions) {
		free(w->regions);
		free(w->region_list);
		w->regions = calloc(n, sizeof(*w->regions));
		w->region_list = calloc(n, sizeof(*w->region_list));
		w->room_regions = w->regions && w->region_list ? n : 0;
	}
	if (n > w->room_regions)
		fail(w, -ENOMEM);
	return !w->err;
}

/* Append a sample. Return -E2BIG if readers would not accept it. */
static int add_sample(struct owc_writer *w, const struct event_sample *s,
		      Offwind__Capture__Record *record)
{
	Offwind__Capture__Sample sample = OFFWIND__CAPTURE__SAMPLE__INIT;
	Offwind__Capture__Alloc alloc = OFFWIND__CAPTURE__ALLOC__INIT;
	uint64_t regs[UW_REGS_MAX];

	if (s->n_regions > OWC_REGIONS_MAX || s->n_kernel_ips > OWC_KERNEL_IPS_MAX)
		return -E2BIG;
	if (!room_for_regions(w, s->n_regions))
		return 0;
	sample.event = s->event;
	sample.cpu = s->cpu;
	sample.period = s->period;
	sample.has_user_regs = s->has_user_regs;
	sample.compat = s->compat;
	sample.stack_cut = s->stack_cut;
	for (size_t i = 0; i < UW_REGS_MAX; i++) {
		if (!(s->regs.known >> i & 1))
			continue;
		sample.regs_known |= (uint64_t)1 << i;
		regs[sample.n_regs++] = s->regs.value[i];
	}
	sample.regs = regs;
	for (size_t i = 0; i < s->n_regions; i++) {
		offwind__capture__region__init(&w->regions[i]);
		w->regions[i].addr = s->regions[i].addr;
		w->regions[i].content = bytes_of(s->regions[i].bytes, s->regions[i].size);
		w->region_list[i] = &w->regions[i];
	}
	sample.regions = w->region_list;
	sample.n_regions = s->n_regions;
	/* The packer does not change the addresses. */
	sample.kernel_ips = (uint64_t *)(uintptr_t)s->kernel_ips;
	sample.n_kernel_ips = s->n_kernel_ips;
	sample.cgroup_id = s->cgroup_id;
	sample.ns_pid = s->ns_pid;
	sample.process_start_ns = s->process_start_ns;
	if (s->alloc.id) {
		alloc.id = s->alloc.id;
		alloc.size = s->alloc.size;
		alloc.objects = s->alloc.objects;
		alloc.tracked = s->alloc.tracked;
		sample.alloc = &alloc;
	}
	for (size_t i = 0; i < s->n_kernel_ips; i++)
		remember_lookup(w, s->kernel_ips[i] - (i != 0));
	record->kind_case = OFFWIND__CAPTURE__RECORD__KIND_SAMPLE;
	record->sample = &sample;
	return add_record(w, record);
}

/* Append a mapping, after its image if that is new. Return 0 or -E2BIG. */
static int add_mapping(struct owc_writer *w, const struct event_mapping *m,
		       Offwind__Capture__Record *record)
{
	Offwind__Capture__Mapping mapping = OFFWIND__CAPTURE__MAPPING__INIT;
	int err = add_image(w, m, &mapping.image);

	if (err)
		return err;
	mapping.start = m->start;
	mapping.end = m->end;
	mapping.off = m->off;
	mapping.prot = m->prot;
	mapping.major = m->major;
	mapping.minor = m->minor;
	mapping.inode = m->inode;
	mapping.inode_generation = m->inode_generation;
	mapping.build_id = bytes_of(m->build_id.bytes, m->build_id.size);
	mapping.path = text(m->path);
	mapping.deleted = m->deleted;
	record->kind_case = OFFWIND__CAPTURE__RECORD__KIND_MAPPING;
	record->mapping = &mapping;
	return add_record(w, record);
}

/* Append an event of any type. Return 0 or -E2BIG. */
static int add_event(struct owc_writer *w, const struct event *e)
{
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;
	Offwind__Capture__Exec exec = OFFWIND__CAPTURE__EXEC__INIT;
	Offwind__Capture__Exit exit = OFFWIND__CAPTURE__EXIT__INIT;
	Offwind__Capture__Fork fork = OFFWIND__CAPTURE__FORK__INIT;
	Offwind__Capture__Comm comm = OFFWIND__CAPTURE__COMM__INIT;
	Offwind__Capture__Cgroup cgroup = OFFWIND__CAPTURE__CGROUP__INIT;
	Offwind__Capture__Freed freed = OFFWIND__CAPTURE__FREED__INIT;
	Offwind__Capture__Generated generated = OFFWIND__CAPTURE__GENERATED__INIT;
	Offwind__Capture__Lost lost = OFFWIND__CAPTURE__LOST__INIT;

	record.time_ns = e->time_ns;
	record.pid = e->pid;
	record.tid = e->tid;
	switch (e->type) {
	case EVENT_MAPPING:
		return add_mapping(w, &e->mapping, &record);
	case EVENT_SAMPLE:
		return add_sample(w, &e->sample, &record);
	case EVENT_EXEC:
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_EXEC;
		record.exec = &exec;
		break;
	case EVENT_FORK:
		fork.parent_pid = e->fork.parent_pid;
		fork.parent_tid = e->fork.parent_tid;
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_FORK;
		record.fork = &fork;
		break;
	case EVENT_EXIT:
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_EXIT;
		record.exit = &exit;
		break;
	case EVENT_COMM:
		comm.comm = text(e->comm.comm);
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_COMM;
		record.comm = &comm;
		break;
	case EVENT_CGROUP:
		cgroup.id = e->cgroup.id;
		cgroup.path = text(e->cgroup.path);
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_CGROUP;
		record.cgroup = &cgroup;
		break;
	case EVENT_FREED:
		freed.id = e->freed.id;
		freed.bytes = e->freed.bytes;
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_FREED;
		record.freed = &freed;
		break;
	case EVENT_GENERATED:
		generated.content.data = (uint8_t *)(uintptr_t)e->generated.bytes;
		generated.content.len = e->generated.size;
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_GENERATED;
		record.generated = &generated;
		break;
	case EVENT_LOST:
		lost.reason = (uint32_t)e->lost.reason;
		lost.n_samples = e->lost.n_samples;
		lost.n_sideband = e->lost.n_sideband;
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_LOST;
		record.lost = &lost;
		break;
	}
	return add_record(w, &record);
}

/* Count an event for the index and the trailer. */
static void count_event(struct owc_writer *w, const struct event *e)
{
	if (e->type == EVENT_CGROUP || e->type == EVENT_FREED || e->type == EVENT_GENERATED)
		return; /* older readers skip these records, so counts leave them out */
	if (!w->frame.n_events++ || e->time_ns < w->frame.first_time_ns)
		w->frame.first_time_ns = e->time_ns;
	if (e->time_ns > w->frame.last_time_ns)
		w->frame.last_time_ns = e->time_ns;
	w->totals.n_events++;
	if (e->type == EVENT_SAMPLE) {
		w->frame.n_samples++;
		w->totals.n_samples++;
	} else if (e->type == EVENT_LOST) {
		w->totals.n_lost_samples += e->lost.n_samples;
		w->totals.n_lost_sideband += e->lost.n_sideband;
	}
}

int owc_writer_event(struct owc_writer *w, const struct event *event)
{
	int err;

	if (w->err)
		return outcome(w);
	/* A pipe may have described more event kinds since the last header. */
	if (!w->n_content || w->info->n_events != w->n_header_events)
		add_header(w);
	err = add_event(w, event);
	if (err)
		return err;
	if (!w->err)
		count_event(w, event);
	write_frame_if_due(w);
	return outcome(w);
}

uint64_t owc_writer_samples(const struct owc_writer *w)
{
	return w->n_written;
}

int owc_writer_flush(struct owc_writer *w)
{
	write_frame(w);
	return outcome(w);
}

int owc_writer_idle(struct owc_writer *w)
{
	write_frame_if_due(w);
	return outcome(w);
}

/* ---- end of the file ----------------------------------------------------------- */

const uint64_t *owc_writer_kernel_lookups(const struct owc_writer *w, size_t *n)
{
	*n = w->n_lookups;
	return w->lookups;
}

/* Append one record with n kernel symbols. */
static void add_symbols(struct owc_writer *w, const struct source_kernel_symbol *symbols, size_t n)
{
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;
	Offwind__Capture__KernelSymbols all = OFFWIND__CAPTURE__KERNEL_SYMBOLS__INIT;
	Offwind__Capture__KernelSymbol *one = calloc(n, sizeof(*one));
	Offwind__Capture__KernelSymbol **list = calloc(n, sizeof(*list));

	if (one && list) {
		for (size_t i = 0; i < n; i++) {
			offwind__capture__kernel_symbol__init(&one[i]);
			one[i].addr = symbols[i].addr;
			one[i].size = symbols[i].size;
			one[i].name = text(symbols[i].name);
			one[i].module = text(symbols[i].module);
			list[i] = &one[i];
		}
		all.symbols = list;
		all.n_symbols = n;
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_KERNEL_SYMBOLS;
		record.kernel_symbols = &all;
		if (add_record(w, &record))
			fail(w, -E2BIG);
		w->frame.kernel_symbols = true;
	} else {
		fail(w, -ENOMEM);
	}
	free(one);
	free(list);
}

int owc_writer_kernel_symbols(struct owc_writer *w, const struct source_kernel_symbol *symbols,
			      size_t n)
{
	write_frame(w); /* symbols get their own frames: readers fetch these first */
	for (size_t at = 0; !w->err && at < n; at += SYMBOLS_A_RECORD) {
		add_symbols(w, symbols + at, n - at < SYMBOLS_A_RECORD ? n - at : SYMBOLS_A_RECORD);
		if (w->n_content >= FRAME_SIZE)
			write_frame(w);
	}
	write_frame(w);
	return outcome(w);
}

/* Append an entry for an embedded file whose frames begin at index first. The path is copied. */
static void add_file(struct owc_writer *w, const struct owc_file *file, uint32_t first, uint32_t n)
{
	void *files = w->files;
	char *path = strdup(file->path);

	if (!path || array_make_room(&files, w->n_files, &w->room_files, sizeof(*w->files))) {
		free(path);
		fail(w, -ENOMEM);
		return;
	}
	w->files = files;
	w->files[w->n_files++] = (struct kept_file){ *file, path, first, n };
}

int owc_writer_file_begin(struct owc_writer *w, const struct owc_file *file)
{
	write_frame(w); /* pieces get their own frames: readers of events skip them */
	add_file(w, file, (uint32_t)w->n_frames, 0);
	return outcome(w);
}

int owc_writer_file_again(struct owc_writer *w, const struct owc_file *file)
{
	const struct kept_file *last = &w->files[w->n_files - 1];

	add_file(w, file, last->first_frame, last->n_frames);
	return outcome(w);
}

int owc_writer_file_piece(struct owc_writer *w, uint64_t off, const void *bytes, size_t size)
{
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;
	Offwind__Capture__FilePiece piece = OFFWIND__CAPTURE__FILE_PIECE__INIT;

	piece.off = off;
	piece.content = bytes_of(bytes, size);
	record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_FILE_PIECE;
	record.file_piece = &piece;
	if (add_record(w, &record))
		fail(w, -E2BIG);
	if (w->n_content >= FRAME_SIZE)
		write_frame(w);
	return outcome(w);
}

int owc_writer_file_end(struct owc_writer *w, bool drop)
{
	struct kept_file *file = &w->files[w->n_files - 1];

	write_frame(w);
	file->n_frames = (uint32_t)w->n_frames - file->first_frame;
	if (drop) {
		free(file->path);
		w->n_files--;
	}
	return outcome(w);
}

static void add_trailer(struct owc_writer *w)
{
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;

	record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_TRAILER;
	record.trailer = &w->totals;
	(void)add_record(w, &record);
}

/*
 * Write the index as a skippable zstd frame, with the footer that readers find from the end of the
 * file.
 */
static void write_index(struct owc_writer *w)
{
	Offwind__Capture__Index index = OFFWIND__CAPTURE__INDEX__INIT;
	Offwind__Capture__Frame *frames = calloc(w->n_frames + 1, sizeof(*frames));
	Offwind__Capture__Frame **list = calloc(w->n_frames + 1, sizeof(*list));
	Offwind__Capture__KeptFile *files = calloc(w->n_files + 1, sizeof(*files));
	Offwind__Capture__KeptFile **file_list = calloc(w->n_files + 1, sizeof(*file_list));
	uint8_t head[8], footer[OWC_FOOTER_SIZE], *packed = NULL;
	size_t size;

	if (!frames || !list || !files || !file_list)
		goto out;
	for (size_t i = 0; i < w->n_files; i++) {
		const struct kept_file *f = &w->files[i];

		offwind__capture__kept_file__init(&files[i]);
		files[i].path = text(f->path);
		files[i].major = f->file.major;
		files[i].minor = f->file.minor;
		files[i].inode = f->file.inode;
		files[i].build_id = bytes_of(f->file.build_id.bytes, f->file.build_id.size);
		files[i].size = f->file.size;
		files[i].first_frame = f->first_frame;
		files[i].n_frames = f->n_frames;
		file_list[i] = &files[i];
	}
	index.files = file_list;
	index.n_files = w->n_files;
	for (size_t i = 0; i < w->n_frames; i++) {
		const struct frame *f = &w->frames[i];

		offwind__capture__frame__init(&frames[i]);
		frames[i].size = f->size;
		frames[i].content_size = f->content_size;
		frames[i].first_time_ns = f->first_time_ns;
		frames[i].last_time_ns = f->last_time_ns;
		frames[i].n_events = f->n_events;
		frames[i].n_samples = f->n_samples;
		frames[i].kernel_symbols = f->kernel_symbols;
		list[i] = &frames[i];
	}
	index.frames = list;
	index.n_frames = w->n_frames;
	size = offwind__capture__index__get_packed_size(&index);
	/*
	 * Only a recording of a week or a terabyte has such an index. The file is complete with an
	 * empty one, too.
	 */
	if (size > OWC_INDEX_MAX) {
		index.n_frames = index.n_files = 0;
		size = 0;
	}
	packed = malloc(size + 1);
	if (!packed)
		goto out;
	(void)offwind__capture__index__pack(&index, packed);
	owc_put_u64(footer, w->off);
	owc_put_u32(footer + 8, (uint32_t)size);
	owc_put_u32(footer + 12, (uint32_t)crc32(0, packed, (uInt)size));
	memcpy(footer + 16, OWC_FOOTER_MAGIC, 8);
	owc_put_u32(head, OWC_SKIPPABLE);
	owc_put_u32(head + 4, (uint32_t)(size + sizeof(footer)));
	write_bytes(w, head, sizeof(head));
	write_bytes(w, packed, size);
	write_bytes(w, footer, sizeof(footer));
out:
	if (!packed)
		fail(w, -ENOMEM);
	free(frames);
	free(list);
	free(files);
	free(file_list);
	free(packed);
}

int owc_writer_open(int fd, const struct source_info *info, struct owc_writer **out)
{
	struct owc_writer *w = calloc(1, sizeof(*w));
	uint8_t head[OWC_HEAD_SIZE] = OWC_MAGIC;
	int err = -ENOMEM;

	if (!w)
		return -ENOMEM;
	w->fd = fd;
	w->info = info;
	offwind__capture__trailer__init(&w->totals);
	w->zstd = ZSTD_createCCtx();
	if (!w->zstd)
		goto out;
	(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, 1);
	(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1);
	owc_put_u32(head + 8, OWC_VERSION);
	owc_put_u32(head + 12, OWC_HEAD_SIZE);
	write_bytes(w, head, sizeof(head));
	add_header(w);
	err = w->err;
out:
	if (err) {
		w->err = err;
		(void)owc_writer_close(w);
		return err;
	}
	*out = w;
	return 0;
}

int owc_writer_close(struct owc_writer *w)
{
	int err;

	if (!w)
		return 0;
	if (!w->err)
		add_header(w);
	add_trailer(w);
	write_frame(w);
	if (!w->err)
		write_index(w);
	err = w->err;
	for (size_t i = 0; i < w->n_images; i++)
		free(w->images[i].bytes);
	for (size_t i = 0; i < w->n_files; i++)
		free(w->files[i].path);
	free(w->files);
	(void)ZSTD_freeCCtx(w->zstd);
	free(w->content);
	free(w->packed);
	free(w->frames);
	free(w->header);
	free(w->regions);
	free(w->region_list);
	free(w->lookups);
	hash_fini(&w->by_lookup);
	free(w);
	return err;
}
