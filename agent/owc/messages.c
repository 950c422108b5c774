/*
 * agent/owc/messages.c: turns the records of a capture file into events and into facts of its
 * source. Records are untrusted: each count and size is checked against a limit.
 */
#include "agent/owc/reader.h"

#include "agent/array.h"
#include "agent/owc/owc_format.h"
#include "base/search.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

enum {
	EVENTS_MAX = 65536, /* event kinds, summed over all headers */
	IMAGES_BYTES_MAX = 64 << 20,
	IMAGES_MAX = 65536,
	SYMBOLS_MAX = 1 << 20,
	SYMBOL_BYTES_MAX = 128 << 20,
};

const char owc_no_memory[] = "out of memory";

/* Allocate memory that lives as long as the source. Return NULL if there is none. */
static void *keep(struct owc *o, size_t size)
{
	struct owc_block *k = malloc(sizeof(*k) + size);

	if (!k)
		return NULL;
	k->next = o->blocks;
	o->blocks = k;
	return k->bytes;
}

/* ---- records that are not events ----------------------------------------------- */

static void copy_text(char *to, size_t size, const ProtobufCBinaryData *from)
{
	size_t n = from->len < size - 1 ? from->len : size - 1;

	if (n)
		memcpy(to, from->data, n);
	to[n] = '\0';
}

const char *owc_take_header(struct owc *o, const Offwind__Capture__Header *h)
{
	struct source_info *info = &o->base.info;
	struct source_event *events;
	char boot_id[OWC_BOOT_ID_SIZE];
	struct utsname here;

	if (h->machine > UINT16_MAX)
		return "a header with an impossible machine";
	if (h->kernel_build_id.len > UW_BUILD_ID_MAX)
		return "a header with an impossible build-id";
	if (h->n_events > EVENTS_MAX - o->n_events_total)
		return "headers with too many kinds of events";
	if (o->any_header && h->machine != info->machine)
		return "headers of different machines";
	/*
	 * Callers may still use the event list of an earlier header, so earlier lists are not
	 * freed.
	 */
	events = h->n_events ? keep(o, h->n_events * sizeof(*events)) : NULL;
	if (h->n_events && !events)
		return owc_no_memory;
	if (events)
		memset(events, 0, h->n_events * sizeof(*events));
	o->n_events_total += h->n_events;
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
	info->other_host = info->host[0] && !info->same_boot && !uname(&here) &&
			   strcmp(info->host, here.nodename) != 0;
	o->any_header = true;
	return NULL;
}

/* Look up an image by its id. Images are sorted by id. */
static const struct owc_image *find_image(const struct owc *o, uint32_t id)
{
	size_t low = UW_COUNT_WHILE(i, o->n_images, o->images[i].id < id);

	return low < o->n_images && o->images[low].id == id ? &o->images[low] : NULL;
}

/*
 * Store an image, such as the vDSO. Its id must be larger than those before, so that the images
 * stay sorted. Return NULL, or what is wrong.
 */
static const char *take_image(struct owc *o, const Offwind__Capture__Image *i)
{
	struct owc_image *bigger;
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
		return owc_no_memory;
	memcpy(bytes, i->content.data, i->content.len);
	o->images[o->n_images++] = (struct owc_image){ i->id, i->content.len, bytes };
	o->image_bytes += i->content.len;
	return NULL;
}

UW_ORDER(by_addr, struct source_kernel_symbol, addr)

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

/*
 * Count 64 bytes for each symbol besides its texts, so that symbols with empty names reach the
 * limit, too.
 */
const char *owc_take_symbols(struct owc *o, const Offwind__Capture__KernelSymbols *s)
{
	bool sorted = true;

	if (s->n_symbols > SYMBOLS_MAX - o->n_symbols)
		return "too many kernel symbols";
	if (array_reserve(o->symbols, o->n_symbols + s->n_symbols, o->room_symbols))
		return owc_no_memory;
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
			return owc_no_memory;
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
		const struct owc_image *image = find_image(o, m->image);

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

/* Return the regions, valid until the next record. NULL: no memory. */
static const struct uw_region *take_regions(struct owc *o, Offwind__Capture__Region **from,
					    size_t n)
{
	struct uw_region *regions = arena_alloc(&o->arena, n * sizeof(*regions));

	for (size_t i = 0; regions && i < n; i++)
		regions[i] = (struct uw_region){ .addr = from[i]->addr,
						 .size = from[i]->content.len,
						 .bytes = from[i]->content.data };
	return regions;
}

/*
 * Fill *e from a sample. Its pointers are valid until the next record. Return NULL, or what is
 * wrong.
 */
static const char *take_sample(struct owc *o, const Offwind__Capture__Sample *s, struct event *e)
{
	struct event_sample *to = &e->sample;

	if (s->event >= o->base.info.n_events)
		return "a sample of an event that was not declared";
	if (s->regs_known >> UW_REGS_MAX ||
	    s->n_regs != (size_t)__builtin_popcountll(s->regs_known))
		return "a sample with impossible registers";
	if (s->n_regions > OWC_REGIONS_MAX || regions_overlap(s->regions, s->n_regions))
		return "a sample with impossible memory";
	if (s->n_slices > OWC_REGIONS_MAX)
		return "a sample with impossible slices";
	if (s->n_kernel_ips > OWC_KERNEL_IPS_MAX)
		return "a sample with an impossible kernel stack";
	if (!s->period)
		return "a sample that stands for nothing";
	if (s->alloc && (!s->alloc->id || !s->alloc->objects))
		return "an allocation that stands for nothing";
	if (s->wait && (!s->wait->n || s->wait->n > UINT32_MAX || s->wait->runnable > s->period))
		return "a wait that cannot be";
	e->type = EVENT_SAMPLE;
	*to = (struct event_sample){
		.event = (uint16_t)s->event,
		.cpu = s->cpu,
		.period = s->period,
		.has_user_regs = s->has_user_regs,
		.compat = s->compat,
		.stack_cut = s->stack_cut,
		.n_regions = (uint32_t)s->n_regions,
		.n_slices = (uint32_t)s->n_slices,
		.slices_end = (uint8_t)(s->slices_end < PLAN_ENDS ? s->slices_end : PLAN_BAD),
		.n_kernel_ips = (uint32_t)s->n_kernel_ips,
		.kernel_ips = s->kernel_ips,
		.cgroup_id = s->cgroup_id,
		.has_uid = s->user != 0,
		.uid = s->user - (s->user != 0),
		.ns_pid = s->ns_pid,
		.process_start_ns = s->process_start_ns
	};
	if (s->alloc)
		to->alloc = (struct event_alloc){ .id = s->alloc->id,
						  .size = s->alloc->size,
						  .objects = s->alloc->objects,
						  .tracked = s->alloc->tracked };
	if (s->wait) {
		to->wait = (struct event_wait){ .n = s->wait->n,
						.runnable = s->wait->runnable,
						.waker_pid = s->wait->waker_pid,
						.waker_tid = s->wait->waker_tid,
						.id = s->wait->id };
		to->wait.waker_stack =
			(uint8_t)(s->wait->waker_stack < EVENT_WAKER_N ? s->wait->waker_stack
								       : EVENT_WAKER_UNSEEN);
		to->wait.waker = s->wait->waker.len ? event_text(o, &s->wait->waker) : NULL;
		if (s->wait->waker.len && !to->wait.waker)
			return "a wait that ended by no thread";
	}
	to->regs.known = s->regs_known;
	for (size_t i = 0, n = 0; i < UW_REGS_MAX; i++)
		if (s->regs_known >> i & 1)
			to->regs.value[i] = s->regs[n++];
	to->regions = take_regions(o, s->regions, s->n_regions);
	to->slices = take_regions(o, s->slices, s->n_slices);
	if (!to->regions || !to->slices)
		return owc_no_memory;
	return NULL;
}

/* As take_sample, for the thread that ended a wait. */
static const char *take_waker(struct owc *o, const Offwind__Capture__Waker *w, struct event *e)
{
	const char *why;

	if (!w->id || !w->sample || w->sample->wait)
		return "a waker of no wait";
	why = take_sample(o, w->sample, e);
	e->type = EVENT_WAKER;
	e->sample.wait.id = w->id;
	return why;
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
 * Count the events that all versions of the format have: the writer's trailer leaves the later
 * kinds out, too (count_event in write.c).
 */
const char *owc_take_record(struct owc *o, const Offwind__Capture__Record *r, struct event *e,
			    bool *is_event)
{
	const char *why = NULL;

	*is_event = false;
	if (r->kind_case == OFFWIND__CAPTURE__RECORD__KIND_HEADER)
		return owc_take_header(o, r->header);
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
		o->seen.n_samples += !why;
		break;
	case OFFWIND__CAPTURE__RECORD__KIND_WAKER:
		why = take_waker(o, r->waker, e);
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
	case OFFWIND__CAPTURE__RECORD__KIND_MEMORY:
		e->type = EVENT_MEMORY;
		e->memory =
			(struct event_memory){ r->memory->content.data, r->memory->content.len };
		break;
	default:
		*is_event = false;
		break;
	}
	if (*is_event) {
		o->seen.n_events += e->type != EVENT_CGROUP && e->type != EVENT_FREED &&
				    e->type != EVENT_GENERATED && e->type != EVENT_MEMORY &&
				    e->type != EVENT_WAKER;
		return why;
	}
	switch (r->kind_case) {
	case OFFWIND__CAPTURE__RECORD__KIND_IMAGE:
		return take_image(o, r->image);
	case OFFWIND__CAPTURE__RECORD__KIND_KERNEL_SYMBOLS:
		return o->all_symbols ? NULL : owc_take_symbols(o, r->kernel_symbols);
	case OFFWIND__CAPTURE__RECORD__KIND_TRAILER:
		return take_trailer(o, r->trailer);
	default:
		return NULL; /* a kind of a later version: ignored */
	}
}
