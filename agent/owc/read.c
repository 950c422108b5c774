/*
 * agent/owc/read.c: reads capture files (.owc) as a source. proto/capture.proto describes
 * the format.
 *
 * The file is untrusted input: sizes, counts and the order of records are checked against limits
 * before they are used. The first error ends the stream; all records before it have been delivered
 * by then.
 */
#include "agent/source/source.h"

#include "agent/io.h"
#include "agent/owc/files.h"
#include "agent/owc/format.h"
#include "proto/arena.h"
#include "proto/capture.pb-c.h"

#include <elf.h>
#include <errno.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum {
	ARENA_MAX = 128 << 20, /* bytes that one record may take after unpacking */
	EVENTS_MAX = 65536,    /* event kinds, summed over all headers */
	IMAGES_BYTES_MAX = 64 << 20,
	IMAGES_MAX = 65536,
	SYMBOLS_MAX = 1 << 20,
	SYMBOL_BYTES_MAX = 128 << 20,
};

struct image {
	uint32_t id;
	uint64_t size;
	uint8_t *bytes;
};

struct input {
	int fd;
	uint64_t off; /* file offset of the next byte */
	size_t pos, n;
	uint8_t buffer[128 * 1024];
};

struct content { /* the decompressed content of one frame */
	uint8_t *bytes;
	size_t pos, n, room;
	uint64_t off; /* file offset of the frame */
	bool cut;     /* the file ends inside the frame */
};

/* A block of memory for headers, images and symbols. All blocks live as long as the source. */
struct kept {
	struct kept *next;
	alignas(max_align_t) char bytes[];
};

struct owc {
	struct source base; /* the first member */
	char name[256];
	struct input in;
	ZSTD_DCtx *zstd;
	struct content content;
	struct arena arena; /* memory of the current record */
	struct kept *kept;
	bool any_header, ended, all_symbols;
	int err;       /* error code that ended the stream; 0: the file is complete */
	int torn;      /* error to return once the content is used up; 0: none */
	char why[256]; /* the message for torn */
	size_t n_events_kept;
	struct image *images;
	size_t n_images, image_bytes;
	struct source_kernel_symbol *symbols;
	size_t n_symbols, room_symbols, symbol_bytes;
	struct owc_files *files;	/* embedded files; NULL: none, or fd is not seekable */
	uint64_t files_off, files_end;	/* the file range of all their frames */
	bool trailer, indexed;		/* the trailer, the index was read */
	Offwind__Capture__Trailer seen; /* counted while reading */
};

/*
 * End the stream with an error: set source.error to one line with name, offset and reason. Return
 * err.
 */
__attribute__((format(printf, 4, 5))) static int end(struct owc *o, int err, uint64_t off,
						     const char *format, ...)
{
	char reason[256];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	(void)snprintf(o->base.error, sizeof(o->base.error), "%.220s: offset %llu: %s", o->name,
		       (unsigned long long)off, reason);
	o->ended = true;
	o->err = err;
	return err;
}

/* Allocate memory that lives as long as the source. Return NULL if there is none. */
static void *keep(struct owc *o, size_t size)
{
	struct kept *k = malloc(sizeof(*k) + size);

	if (!k)
		return NULL;
	k->next = o->kept;
	o->kept = k;
	return k->bytes;
}

/* ---- input ----------------------------------------------------------------- */

/* Refill the input buffer from the file. n is 0 at the end of the file. */
static int input_fill(struct input *in)
{
	ssize_t n;

	do
		n = read(in->fd, in->buffer, sizeof(in->buffer));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	in->pos = 0;
	in->n = (size_t)n;
	return 0;
}

/* Read up to size bytes. *got is less than size only at the end of the file. */
static int input_read(struct input *in, void *out, size_t size, size_t *got)
{
	uint8_t *to = out;

	*got = 0;
	while (*got < size) {
		size_t n = in->n - in->pos;

		if (!n) {
			int err = input_fill(in);

			if (err)
				return err;
			if (!in->n)
				return 0;
			continue;
		}
		if (n > size - *got)
			n = size - *got;
		memcpy(to + *got, in->buffer + in->pos, n);
		in->pos += n;
		in->off += n;
		*got += n;
	}
	return 0;
}

/* ---- frames ---------------------------------------------------------------- */

/* Make room for more decompressed bytes. Return -EFBIG at the limit of OWC_CONTENT_MAX. */
static int content_grow(struct content *c)
{
	size_t room = c->room ? c->room * 2 : 256 * 1024;
	uint8_t *bytes;

	if (c->n < c->room)
		return 0;
	if (c->room >= OWC_CONTENT_MAX)
		return -EFBIG;
	if (room > OWC_CONTENT_MAX)
		room = OWC_CONTENT_MAX;
	bytes = realloc(c->bytes, room);
	if (!bytes)
		return -ENOMEM;
	c->bytes = bytes;
	c->room = room;
	return 0;
}

/*
 * Decompress one zstd frame into o->content. Its magic number has been read already and is passed
 * to zstd first.
 *
 * If the file ends inside the frame, the content before that point is used. The content of a
 * damaged frame is discarded, because it cannot be trusted.
 */
static int read_zstd_frame(struct owc *o, const uint8_t magic[4])
{
	struct content *c = &o->content;
	struct input *in = &o->in;
	ZSTD_inBuffer from = { magic, 4, 0 };
	size_t rest = 1, before;
	bool at_end = false;

	c->n = c->pos = 0;
	c->off = in->off - 4;
	(void)ZSTD_DCtx_reset(o->zstd, ZSTD_reset_session_only);
	while (rest) {
		ZSTD_outBuffer to;
		int err = content_grow(c);

		if (err == -EFBIG)
			return end(o, -EBADMSG, c->off, "a frame of more than %d bytes",
				   OWC_CONTENT_MAX);
		if (err)
			return end(o, err, c->off, "%s", strerror(-err));
		if (from.pos == from.size) {
			if (in->pos == in->n) {
				err = input_fill(in);
				if (err)
					return end(o, err, in->off, "%s", strerror(-err));
			}
			from = (ZSTD_inBuffer){ in->buffer, in->n, in->pos };
			at_end = from.pos == from.size;
		}
		before = c->n;
		to = (ZSTD_outBuffer){ c->bytes, c->room, c->n };
		rest = ZSTD_decompressStream(o->zstd, &to, &from);
		if (ZSTD_isError(rest)) {
			c->n = 0;
			return end(o, -EBADMSG, c->off, "zstd frame: %s", ZSTD_getErrorName(rest));
		}
		c->n = to.pos;
		/*
		 * zstd may hold back output for which the buffer had no room, so repeat until
		 * nothing more comes.
		 */
		if (rest && at_end && c->n == before) {
			o->torn = -EBADMSG;
			c->cut = true;
			(void)snprintf(o->why, sizeof(o->why), "the file is cut short here");
			return 0;
		}
		if (from.src == in->buffer) {
			in->off += from.pos - in->pos;
			in->pos = from.pos;
		}
	}
	return 0;
}

/*
 * Read a skippable frame: check the index, which ends the file, and skip any other one.
 * read_index() uses the index; here only its place and its checksum are verified.
 */
static int read_skippable(struct owc *o, uint32_t magic)
{
	struct input *in = &o->in;
	uint64_t start = in->off - 4;
	uint8_t head[4], tail[OWC_FOOTER_SIZE], piece[4096];
	uLong crc = crc32(0, NULL, 0);
	size_t size, left, got;
	int err = input_read(in, head, sizeof(head), &got);

	if (err)
		return end(o, err, in->off, "%s", strerror(-err));
	if (got < sizeof(head))
		return end(o, -EBADMSG, start, "the index is cut short");
	size = owc_get_u32(head);
	if (magic == OWC_SKIPPABLE && (size < sizeof(tail) || o->indexed))
		return end(o, -EBADMSG, start, "damaged index");
	left = magic == OWC_SKIPPABLE ? size - sizeof(tail) : size;
	while (left) {
		size_t want = left < sizeof(piece) ? left : sizeof(piece);

		err = input_read(in, piece, want, &got);
		if (err)
			return end(o, err, in->off, "%s", strerror(-err));
		if (got < want)
			return end(o, -EBADMSG, start, "the index is cut short");
		crc = crc32(crc, piece, (uInt)want);
		left -= want;
	}
	if (magic != OWC_SKIPPABLE)
		return 0;
	err = input_read(in, tail, sizeof(tail), &got);
	if (err)
		return end(o, err, in->off, "%s", strerror(-err));
	if (got < sizeof(tail))
		return end(o, -EBADMSG, start, "the index is cut short");
	if (memcmp(tail + 16, OWC_FOOTER_MAGIC, 8) || owc_get_u64(tail) != start ||
	    owc_get_u32(tail + 8) != size - sizeof(tail) || owc_get_u32(tail + 12) != crc)
		return end(o, -EBADMSG, start, "damaged index");
	if (!o->trailer)
		return end(o, -EBADMSG, start, "an index before the trailer");
	o->indexed = true;
	return 0;
}

/* Seek over the frames of embedded files, which hold no events. */
static int pass_over_files(struct owc *o)
{
	struct input *in = &o->in;

	if (!o->files || in->off != o->files_off || o->files_end <= o->files_off)
		return 0;
	if (lseek(in->fd, (off_t)o->files_end, SEEK_SET) < 0)
		return -errno;
	in->off = o->files_end;
	in->pos = in->n = 0;
	return 0;
}

/*
 * Read the next frame into o->content. Return 1 if there is one, 0 at the end of a complete file,
 * or a negative code after end() was called.
 */
static int next_frame(struct owc *o)
{
	for (;;) {
		uint8_t magic[4];
		uint32_t word;
		size_t got = 0;
		int err = pass_over_files(o);

		if (!err)
			err = input_read(&o->in, magic, sizeof(magic), &got);
		if (err)
			return end(o, err, o->in.off, "%s", strerror(-err));
		if (!got) {
			if (!o->indexed)
				return end(o, -EBADMSG, o->in.off, "the file ends without its %s",
					   o->trailer ? "index" : "trailer");
			o->ended = true;
			return 0;
		}
		if (got < sizeof(magic))
			return end(o, -EBADMSG, o->in.off - got, "the file is cut short here");
		word = owc_get_u32(magic);
		if ((word & ~0xfu) == OWC_SKIPPABLE) {
			err = read_skippable(o, word);
			if (err)
				return err;
			continue;
		}
		if (word != ZSTD_MAGICNUMBER)
			return end(o, -EBADMSG, o->in.off - 4, "no zstd frame where one begins");
		if (o->trailer)
			return end(o, -EBADMSG, o->in.off - 4, "a frame after the trailer");
		err = read_zstd_frame(o, magic);
		return err ? err : 1;
	}
}

/*
 * Unpack the record at content->pos into the arena. Return 1, or 0 at the end of the content, or
 * -EBADMSG with the reason in *why. In a frame that the file's end cut off, an incomplete record
 * is the end of the content, too.
 */
static int next_record(struct content *c, struct arena *arena, Offwind__Capture__Record **out,
		       const char **why)
{
	const uint8_t *at = c->bytes + c->pos;
	size_t left = c->n - c->pos, size = 0, n = 0;

	if (!left)
		return 0;
	do {
		if (n == left || n == 4) {
			*why = "a record's size runs on";
			return n == left && c->cut ? 0 : -EBADMSG;
		}
		size |= (size_t)(at[n] & 0x7f) << 7 * n;
	} while (at[n++] & 0x80);
	if (size > OWC_RECORD_MAX) {
		*why = "a record larger than any";
		return -EBADMSG;
	}
	if (size > left - n) {
		*why = "a record runs over the end of its frame";
		return c->cut ? 0 : -EBADMSG;
	}
	arena_reset(arena);
	*out = offwind__capture__record__unpack(&arena->allocator, size, at + n);
	if (!*out) {
		*why = "a damaged record";
		return -EBADMSG;
	}
	c->pos += n + size;
	return 1;
}

static const char no_memory[] = "out of memory";

/* ---- records that are not events ----------------------------------------------- */

static void copy_text(char *to, size_t size, const ProtobufCBinaryData *from)
{
	size_t n = from->len < size - 1 ? from->len : size - 1;

	if (n)
		memcpy(to, from->data, n);
	to[n] = '\0';
}

/*
 * Copy a header into source.info. Return NULL, or what is wrong with the header. A file has
 * several headers if facts became known during the recording; the last one is valid.
 */
static const char *take_header(struct owc *o, const Offwind__Capture__Header *h)
{
	struct source_info *info = &o->base.info;
	struct source_event *events;
	char boot_id[OWC_BOOT_ID_SIZE];

	if (h->machine > UINT16_MAX)
		return "a header with an impossible machine";
	if (h->kernel_build_id.len > UW_BUILD_ID_MAX)
		return "a header with an impossible build-id";
	if (h->n_events > EVENTS_MAX - o->n_events_kept)
		return "headers with too many kinds of events";
	if (o->any_header && h->machine != info->machine)
		return "headers of different machines";
	/*
	 * Callers may still use the event list of an earlier header, so earlier lists are not
	 * freed.
	 */
	events = h->n_events ? keep(o, h->n_events * sizeof(*events)) : NULL;
	if (h->n_events && !events)
		return no_memory;
	if (events)
		memset(events, 0, h->n_events * sizeof(*events));
	o->n_events_kept += h->n_events;
	for (size_t i = 0; i < h->n_events; i++) {
		copy_text(events[i].name, sizeof(events[i].name), &h->events[i]->name);
		copy_text(events[i].type, sizeof(events[i].type), &h->events[i]->type);
		copy_text(events[i].unit, sizeof(events[i].unit), &h->events[i]->unit);
		events[i].period = h->events[i]->period;
		events[i].frequency_hz = h->events[i]->frequency_hz;
	}
	info->events = events;
	info->n_events = h->n_events;
	info->machine = (uint16_t)h->machine;
	copy_text(info->host, sizeof(info->host), &h->host);
	copy_text(info->kernel, sizeof(info->kernel), &h->kernel);
	copy_text(info->recorder, sizeof(info->recorder), &h->recorder);
	copy_text(info->command, sizeof(info->command), &h->command);
	info->wall_start_ns = h->wall_start_ns;
	info->wall_first_ns = h->wall_first_ns;
	info->kernel_build_id = (struct uw_build_id){ .size = (uint8_t)h->kernel_build_id.len };
	if (h->kernel_build_id.len)
		memcpy(info->kernel_build_id.bytes, h->kernel_build_id.data,
		       h->kernel_build_id.len);
	info->kernel_text = h->kernel_text;
	info->red_zone = h->red_zone;
	info->same_boot = h->boot_id.len && owc_boot_id(boot_id) &&
			  strlen(boot_id) == h->boot_id.len &&
			  !memcmp(boot_id, h->boot_id.data, h->boot_id.len);
	o->any_header = true;
	return NULL;
}

/* Look up an image by its id. Images are sorted by id. */
static const struct image *find_image(const struct owc *o, uint32_t id)
{
	size_t low = 0, high = o->n_images;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (o->images[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < o->n_images && o->images[low].id == id ? &o->images[low] : NULL;
}

/*
 * Store an image, such as the vDSO. Its id must be larger than those before, so that the images
 * stay sorted. Return NULL, or what is wrong.
 */
static const char *take_image(struct owc *o, const Offwind__Capture__Image *i)
{
	struct image *bigger;
	uint8_t *bytes;

	if (i->id <= (o->n_images ? o->images[o->n_images - 1].id : 0) || !i->content.len)
		return "an image out of order";
	if (o->n_images == IMAGES_MAX || i->content.len > IMAGES_BYTES_MAX - o->image_bytes)
		return "too many images";
	bytes = keep(o, i->content.len);
	bigger = reallocarray(o->images, o->n_images + 1, sizeof(*bigger));
	if (bigger)
		o->images = bigger;
	if (!bytes || !bigger)
		return no_memory;
	memcpy(bytes, i->content.data, i->content.len);
	o->images[o->n_images++] = (struct image){ i->id, i->content.len, bytes };
	o->image_bytes += i->content.len;
	return NULL;
}

static int by_addr(const void *a, const void *b)
{
	const struct source_kernel_symbol *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

/*
 * Copy a text into memory that lives as long as the source. A NUL byte inside ends the text,
 * because a symbol name cannot contain one.
 */
static const char *keep_text(struct owc *o, const ProtobufCBinaryData *from)
{
	char *text = keep(o, from->len + 1);

	if (text)
		copy_text(text, from->len + 1, from);
	return text;
}

/* Add kernel symbols to source.info, sorted by address. Return NULL, or what is wrong. */
static const char *take_symbols(struct owc *o, const Offwind__Capture__KernelSymbols *s)
{
	bool sorted = true;

	if (s->n_symbols > SYMBOLS_MAX - o->n_symbols)
		return "too many kernel symbols";
	if (o->n_symbols + s->n_symbols > o->room_symbols) {
		size_t room = (o->n_symbols + s->n_symbols) * 2;
		struct source_kernel_symbol *bigger =
			reallocarray(o->symbols, room, sizeof(*bigger));

		if (!bigger)
			return no_memory;
		o->symbols = bigger;
		o->room_symbols = room;
	}
	for (size_t i = 0; i < s->n_symbols; i++) {
		const Offwind__Capture__KernelSymbol *from = s->symbols[i];
		struct source_kernel_symbol *to = &o->symbols[o->n_symbols];
		size_t size = from->name.len + from->module.len + 64;

		if (size > SYMBOL_BYTES_MAX - o->symbol_bytes)
			return "too many kernel symbols";
		o->symbol_bytes += size;
		to->addr = from->addr;
		to->size = from->size;
		to->name = keep_text(o, &from->name);
		to->module = from->module.len ? keep_text(o, &from->module) : "";
		if (!to->name || !to->module)
			return no_memory;
		if (o->n_symbols && to->addr < to[-1].addr)
			sorted = false;
		o->n_symbols++;
	}
	if (!sorted)
		qsort(o->symbols, o->n_symbols, sizeof(*o->symbols), by_addr);
	o->base.info.kernel_symbols = o->symbols;
	o->base.info.n_kernel_symbols = o->n_symbols;
	return NULL;
}

/* Compare the counts of the trailer with what was read. Return NULL, or what is wrong. */
static const char *take_trailer(struct owc *o, const Offwind__Capture__Trailer *t)
{
	o->trailer = true;
	if (t->n_events != o->seen.n_events || t->n_samples != o->seen.n_samples ||
	    t->n_lost_samples != o->seen.n_lost_samples ||
	    t->n_lost_sideband != o->seen.n_lost_sideband)
		return "the trailer counts other events than there are";
	return NULL;
}

/* ---- events ---------------------------------------------------------------- */

/*
 * Return the text as a C string in the current record's memory; NULL if it contains a NUL byte or
 * memory is short.
 */
static const char *event_text(struct owc *o, const ProtobufCBinaryData *from)
{
	char *text;

	if (from->len && memchr(from->data, 0, from->len))
		return NULL;
	text = arena_alloc(&o->arena, from->len + 1);
	if (text)
		copy_text(text, from->len + 1, from);
	return text;
}

/*
 * Fill *e from a mapping. Its pointers are valid until the next record; the image lives as long as
 * the source. Return NULL, or what is wrong.
 */
static const char *take_mapping(struct owc *o, const Offwind__Capture__Mapping *m, struct event *e)
{
	struct event_mapping *to = &e->mapping;

	if (m->build_id.len > UW_BUILD_ID_MAX)
		return "a mapping with an impossible build-id";
	e->type = EVENT_MAPPING;
	*to = (struct event_mapping){ .start = m->start,
				      .end = m->end,
				      .off = m->off,
				      .prot = m->prot,
				      .major = m->major,
				      .minor = m->minor,
				      .inode = m->inode,
				      .inode_generation = m->inode_generation,
				      .deleted = m->deleted };
	to->build_id.size = (uint8_t)m->build_id.len;
	if (m->build_id.len)
		memcpy(to->build_id.bytes, m->build_id.data, m->build_id.len);
	to->path = event_text(o, &m->path);
	if (!to->path)
		return "a mapping whose path is none";
	if (m->image) {
		const struct image *image = find_image(o, m->image);

		if (!image)
			return "a mapping of an image that was not given";
		to->image = image->bytes;
		to->image_size = image->size;
	}
	return NULL;
}

static int by_region(const void *a, const void *b)
{
	const Offwind__Capture__Region *const *x = a, *const *y = b;

	return ((*x)->addr > (*y)->addr) - ((*x)->addr < (*y)->addr);
}

/*
 * Return whether any regions overlap or exceed the address space. Sorts the regions by address, as
 * their order has no meaning.
 */
static bool regions_overlap(Offwind__Capture__Region **r, size_t n)
{
	if (n > 1)
		qsort(r, n, sizeof(*r), by_region);
	for (size_t i = 0; i < n; i++) {
		if (r[i]->content.len > UINT64_MAX - r[i]->addr)
			return true;
		if (i && r[i]->addr - r[i - 1]->addr < r[i - 1]->content.len)
			return true;
	}
	return false;
}

/*
 * Fill *e from a sample. Its pointers are valid until the next record. Return NULL, or what is
 * wrong.
 */
static const char *take_sample(struct owc *o, const Offwind__Capture__Sample *s, struct event *e)
{
	struct event_sample *to = &e->sample;
	struct uw_region *regions;

	if (s->event >= o->base.info.n_events)
		return "a sample of an event that was not declared";
	if (s->regs_known >> UW_REGS_MAX ||
	    s->n_regs != (size_t)__builtin_popcountll(s->regs_known))
		return "a sample with impossible registers";
	if (s->n_regions > OWC_REGIONS_MAX || regions_overlap(s->regions, s->n_regions))
		return "a sample with impossible memory";
	if (s->n_kernel_ips > OWC_KERNEL_IPS_MAX)
		return "a sample with an impossible kernel stack";
	if (!s->period)
		return "a sample that stands for nothing";
	if (s->alloc && (!s->alloc->id || !s->alloc->objects))
		return "an allocation that stands for nothing";
	e->type = EVENT_SAMPLE;
	*to = (struct event_sample){ .event = (uint16_t)s->event,
				     .cpu = s->cpu,
				     .period = s->period,
				     .has_user_regs = s->has_user_regs,
				     .compat = s->compat,
				     .stack_cut = s->stack_cut,
				     .n_regions = (uint32_t)s->n_regions,
				     .n_kernel_ips = (uint32_t)s->n_kernel_ips,
				     .kernel_ips = s->kernel_ips,
				     .cgroup_id = s->cgroup_id,
				     .ns_pid = s->ns_pid,
				     .process_start_ns = s->process_start_ns };
	if (s->alloc)
		to->alloc = (struct event_alloc){ .id = s->alloc->id,
						  .size = s->alloc->size,
						  .objects = s->alloc->objects,
						  .tracked = s->alloc->tracked };
	to->regs.known = s->regs_known;
	for (size_t i = 0, n = 0; i < UW_REGS_MAX; i++)
		if (s->regs_known >> i & 1)
			to->regs.value[i] = s->regs[n++];
	regions = arena_alloc(&o->arena, s->n_regions * sizeof(*regions));
	if (!regions)
		return no_memory;
	for (size_t i = 0; i < s->n_regions; i++)
		regions[i] = (struct uw_region){ .addr = s->regions[i]->addr,
						 .size = s->regions[i]->content.len,
						 .bytes = s->regions[i]->content.data };
	to->regions = regions;
	o->seen.n_samples++;
	return NULL;
}

/* Fill *e from a record of lost samples, and count them. Return NULL, or what is wrong. */
static const char *take_lost(struct owc *o, const Offwind__Capture__Lost *l, struct event *e)
{
	if (l->reason >= EVENT_LOST_N)
		return "samples lost for an unknown reason";
	e->type = EVENT_LOST;
	e->lost = (struct event_lost){ .reason = (enum event_lost_reason)l->reason,
				       .n_samples = l->n_samples,
				       .n_sideband = l->n_sideband };
	o->seen.n_lost_samples += l->n_samples;
	o->seen.n_lost_sideband += l->n_sideband;
	return NULL;
}

/*
 * Process one record of any kind. Return NULL, or what is wrong. *is_event says whether *e was
 * filled.
 */
static const char *take_record(struct owc *o, const Offwind__Capture__Record *r, struct event *e,
			       bool *is_event)
{
	const char *why = NULL;

	*is_event = false;
	if (r->kind_case == OFFWIND__CAPTURE__RECORD__KIND_HEADER)
		return take_header(o, r->header);
	if (!o->any_header)
		return "no header where the records begin";
	if (o->trailer)
		return "a record after the trailer";
	*e = (struct event){ .pid = r->pid, .tid = r->tid, .time_ns = r->time_ns };
	*is_event = true;
	switch (r->kind_case) {
	case OFFWIND__CAPTURE__RECORD__KIND_MAPPING:
		why = take_mapping(o, r->mapping, e);
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_EXEC:
		e->type = EVENT_EXEC;
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_FORK:
		e->type = EVENT_FORK;
		e->fork = (struct event_fork){ r->fork->parent_pid, r->fork->parent_tid };
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_EXIT:
		e->type = EVENT_EXIT;
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_COMM:
		e->type = EVENT_COMM;
		e->comm.comm = event_text(o, &r->comm->comm);
		why = e->comm.comm ? NULL : "a thread whose name is none";
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_SAMPLE:
		why = take_sample(o, r->sample, e);
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_LOST:
		why = take_lost(o, r->lost, e);
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_CGROUP:
		e->type = EVENT_CGROUP;
		e->cgroup.id = r->cgroup->id;
		e->cgroup.path = event_text(o, &r->cgroup->path);
		why = e->cgroup.path ? NULL : "a cgroup whose path is none";
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_FREED:
		e->type = EVENT_FREED;
		e->freed = (struct event_freed){ r->freed->id, r->freed->bytes };
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_GENERATED:
		e->type = EVENT_GENERATED;
		e->generated.bytes = r->generated->content.data;
		e->generated.size = r->generated->content.len;
		break;
	default:
		*is_event = false;
		break;
	}
	if (*is_event) {
		o->seen.n_events += e->type != EVENT_CGROUP && e->type != EVENT_FREED &&
				    e->type != EVENT_GENERATED;
		return why;
	}
	switch (r->kind_case) {
	case OFFWIND__CAPTURE__RECORD__KIND_IMAGE:
		return take_image(o, r->image);
	case OFFWIND__CAPTURE__RECORD__KIND_KERNEL_SYMBOLS:
		return o->all_symbols ? NULL : take_symbols(o, r->kernel_symbols);
	case OFFWIND__CAPTURE__RECORD__KIND_TRAILER:
		return take_trailer(o, r->trailer);
	default:
		return NULL; /* a kind of a later version: ignored */
	}
}

/*
 * source_ops.next: unpack records until one of them is an event, and read the next frame when the
 * content is used up.
 */
static int owc_next(struct source *source, struct event *event, int timeout_ms)
{
	struct owc *o = (struct owc *)source;

	(void)timeout_ms;
	for (;;) {
		Offwind__Capture__Record *record = NULL;
		const char *why = NULL;
		size_t at = o->content.pos;
		bool is_event;
		int rc;

		if (o->ended)
			return o->err;
		rc = next_record(&o->content, &o->arena, &record, &why);
		if (rc > 0)
			why = take_record(o, record, event, &is_event);
		if (rc < 0 || (rc > 0 && why))
			return end(o, why == no_memory ? -ENOMEM : -EBADMSG, o->content.off,
				   "byte %zu of the frame there: %s", at, why);
		if (rc > 0 && is_event)
			return 1;
		if (rc > 0)
			continue;
		if (o->torn)
			return end(o, o->torn, o->in.off, "%s", o->why);
		rc = next_frame(o);
		if (rc <= 0)
			return rc;
	}
}

/* ---- opening --------------------------------------------------------------- */

/*
 * Add the kernel symbols of the frame at off. Return false if the frame cannot be read; the
 * symbols are then read from the stream.
 */
static bool symbols_of_frame(struct owc *o, uint64_t off, const Offwind__Capture__Frame *f)
{
	uint8_t *packed = malloc(f->size);
	struct content c = { .bytes = malloc(f->content_size + 1) };
	Offwind__Capture__Record *record;
	struct arena arena;
	const char *why = NULL;
	bool ok = packed && c.bytes && !io_read_at(o->in.fd, off, packed, f->size);

	arena_init(&arena, ARENA_MAX);
	c.n = ok ? ZSTD_decompressDCtx(o->zstd, c.bytes, f->content_size, packed, f->size) : 0;
	ok = ok && !ZSTD_isError(c.n);
	while (ok && !why && next_record(&c, &arena, &record, &why) > 0)
		if (record->kind_case == OFFWIND__CAPTURE__RECORD__KIND_KERNEL_SYMBOLS)
			why = take_symbols(o, record->kernel_symbols);
	free(packed);
	free(c.bytes);
	arena_fini(&arena);
	return ok && !why;
}

/*
 * Read all frames that hold kernel symbols, as the index lists them. end_off is where the index
 * begins; the sizes of all frames must add up to it.
 */
static void symbols_by_index(struct owc *o, const Offwind__Capture__Index *index, uint64_t end_off)
{
	uint64_t off = OWC_HEAD_SIZE;
	bool ok = true;

	for (size_t i = 0; ok && i < index->n_frames; i++) {
		const Offwind__Capture__Frame *f = index->frames[i];

		if (f->size > end_off - off)
			ok = false;
		else if (f->kernel_symbols)
			ok = f->content_size <= OWC_CONTENT_MAX &&
			     f->size <= ZSTD_compressBound(OWC_CONTENT_MAX) &&
			     symbols_of_frame(o, off, f);
		off += ok ? f->size : 0;
	}
	o->all_symbols = ok && off == end_off;
	if (!o->all_symbols) {
		/* Discard what was read: the stream will deliver all symbols. */
		o->n_symbols = 0;
		o->base.info.kernel_symbols = NULL;
		o->base.info.n_kernel_symbols = 0;
	}
}

/*
 * Read the index at the end of a seekable file. It lists the frames with kernel symbols, so that
 * these are known before the first sample. It also lists the embedded files.
 *
 * A missing or damaged index is not an error here. It is reported when the stream reaches that
 * place.
 */
static void read_index(struct owc *o)
{
	off_t size = lseek(o->in.fd, 0, SEEK_END);
	uint8_t footer[OWC_FOOTER_SIZE], *packed = NULL;
	Offwind__Capture__Index *index = NULL;
	struct arena arena;
	uint64_t off, room;
	uint32_t n;

	if (lseek(o->in.fd, 0, SEEK_SET) || size < OWC_HEAD_SIZE + 8 + OWC_FOOTER_SIZE)
		return;
	if (io_read_at(o->in.fd, (uint64_t)size - sizeof(footer), footer, sizeof(footer)) ||
	    memcmp(footer + 16, OWC_FOOTER_MAGIC, 8))
		return;
	off = owc_get_u64(footer);
	n = owc_get_u32(footer + 8);
	room = (uint64_t)size - sizeof(footer) - 8;
	if (n > OWC_INDEX_MAX || n > room || off != room - n || off < OWC_HEAD_SIZE)
		return;
	packed = malloc(n + 1u);
	arena_init(&arena, (size_t)OWC_INDEX_MAX * 8);
	if (packed && !io_read_at(o->in.fd, off + 8, packed, n) &&
	    (uint32_t)crc32(0, packed, (uInt)n) == owc_get_u32(footer + 12))
		index = offwind__capture__index__unpack(&arena.allocator, n, packed);
	if (index)
		symbols_by_index(o, index, off);
	/*
	 * Without embedded files some frames may have no names. An error in the index is reported
	 * when the stream reaches it.
	 */
	if (index && !owc_files_new(o->in.fd, index, off, &o->files) && o->files) {
		owc_files_span(o->files, &o->files_off, &o->files_end);
		o->base.info.kept_file = owc_files_open;
		o->base.info.kept_file_ctx = o->files;
	}
	arena_fini(&arena);
	free(packed);
}

/*
 * Read the head of the file, the index if there is one, and the first record, which must be a
 * header.
 */
static int begin(struct owc *o)
{
	uint8_t head[OWC_HEAD_SIZE];
	Offwind__Capture__Record *record = NULL;
	const char *why = "no header";
	size_t got, skip;
	int rc;

	if (lseek(o->in.fd, 0, SEEK_CUR) >= 0)
		read_index(o);
	rc = input_read(&o->in, head, sizeof(head), &got);
	if (rc)
		return end(o, rc, 0, "%s", strerror(-rc));
	if (got < 8 || memcmp(head, OWC_MAGIC, 8))
		return end(o, -EBADMSG, 0, "not a capture file");
	if (got < sizeof(head))
		return end(o, -EBADMSG, got, "the file is cut short here");
	if (owc_get_u32(head + 8) != OWC_VERSION)
		return end(o, -ENOTSUP, 8, "capture file version %u, this program reads %d",
			   owc_get_u32(head + 8), OWC_VERSION);
	skip = owc_get_u32(head + 12);
	if (skip != sizeof(head))
		return end(o, -EBADMSG, 12, "a head of %zu bytes", skip);
	rc = next_frame(o);
	if (rc < 0)
		return rc;
	rc = rc ? next_record(&o->content, &o->arena, &record, &why) : 0;
	if (rc > 0 && record->kind_case == OFFWIND__CAPTURE__RECORD__KIND_HEADER)
		why = take_header(o, record->header);
	else if (rc > 0)
		why = "no header where the records begin";
	if (!o->any_header && o->torn)
		return end(o, -EBADMSG, o->in.off, "%s", o->why);
	if (rc > 0 && !why)
		return 0;
	return end(o, why == no_memory ? -ENOMEM : -EBADMSG, o->content.off, "%s", why);
}

/* source_ops.close: free everything and close the file. */
static void owc_close(struct source *source)
{
	struct owc *o = (struct owc *)source;

	while (o->kept) {
		struct kept *next = o->kept->next;

		free(o->kept);
		o->kept = next;
	}
	owc_files_free(o->files);
	(void)ZSTD_freeDCtx(o->zstd);
	arena_fini(&o->arena);
	free(o->content.bytes);
	free(o->images);
	free(o->symbols);
	(void)close(o->in.fd);
	free(o);
}

static const struct source_ops ops = { .next = owc_next, .close = owc_close };

int source_owc_open(int fd, const char *name, struct source **out, char *error)
{
	struct owc *o = calloc(1, sizeof(*o));
	int err;

	if (!o) {
		(void)snprintf(error, 512, "%s: %s", name, strerror(ENOMEM));
		(void)close(fd);
		return -ENOMEM;
	}
	o->base.ops = &ops;
	o->in.fd = fd;
	(void)snprintf(o->base.info.kind, sizeof(o->base.info.kind), "capture");
	(void)snprintf(o->name, sizeof(o->name), "%s", name);
	arena_init(&o->arena, ARENA_MAX);
	offwind__capture__trailer__init(&o->seen);
	o->zstd = ZSTD_createDCtx();
	if (o->zstd) {
		(void)ZSTD_DCtx_setParameter(o->zstd, ZSTD_d_windowLogMax, 26);
		err = begin(o);
	} else {
		err = end(o, -ENOMEM, 0, "%s", strerror(ENOMEM));
	}
	if (err) {
		(void)snprintf(error, sizeof(o->base.error), "%s", o->base.error);
		owc_close(&o->base);
		return err;
	}
	*out = &o->base;
	return 0;
}
