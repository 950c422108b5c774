/* agent/owc/pack.c: makes the records of a capture file: events, and facts of the source. */
#include "agent/owc/writing.h"

#include "agent/array.h"
#include "agent/owc/owc_format.h"

#include <errno.h>
#include <stdlib.h>

/* Limit of the kernel addresses that are stored for symbolizing. */
enum { KERNEL_LOOKUPS_MAX = 1 << 20 };

/* ---- header ---------------------------------------------------------------- */

/* Store the packed header. Return true if it differs from the one that was written last. */
static bool header_changed(struct owc_writer *w, const Offwind__Capture__Header *header)
{
	size_t size = offwind__capture__header__get_packed_size(header);
	uint8_t *packed = malloc(size + 1);

	if (!packed) {
		owc_fail(w, -ENOMEM);
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

/* Borrow all strings: owc_add_record packs them before this function returns. */
void owc_pack_header(struct owc_writer *w)
{
	const struct source_info *info = w->info;
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;
	Offwind__Capture__Header header = OFFWIND__CAPTURE__HEADER__INIT;
	Offwind__Capture__EventKind *kinds = calloc(info->n_events + 1, sizeof(*kinds));
	Offwind__Capture__EventKind **list = calloc(info->n_events + 1, sizeof(*list));
	char boot_id[OWC_BOOT_ID_SIZE];

	if (!kinds || !list) {
		owc_fail(w, -ENOMEM);
		goto out;
	}
	header.machine = info->machine;
	header.kind = owc_text(info->kind);
	header.host = owc_text(info->host);
	header.kernel = owc_text(info->kernel);
	header.recorder = owc_text(info->recorder);
	header.command = owc_text(info->command);
	header.wall_start_ns = info->wall_start_ns;
	header.wall_first_ns = info->wall_first_ns;
	header.kernel_build_id = owc_bytes(info->kernel_build_id.bytes, info->kernel_build_id.size);
	header.kernel_text = info->kernel_text;
	header.red_zone = info->red_zone;
	if (info->same_boot && owc_boot_id(boot_id))
		header.boot_id = owc_text(boot_id);
	for (size_t i = 0; i < info->n_events; i++) {
		const struct source_event *e = &info->events[i];

		offwind__capture__event_kind__init(&kinds[i]);
		kinds[i].name = owc_text(e->name);
		kinds[i].type = owc_text(e->type);
		kinds[i].unit = owc_text(e->unit);
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
	if (owc_add_record(w, &record))
		owc_fail(w, -E2BIG);
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
	image.content = owc_bytes(m->image, m->image_size);
	record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_IMAGE;
	record.image = &image;
	err = owc_add_record(w, &record);
	if (err)
		return err;
	*id = ++w->next_image;
	copy = w->n_images < OWC_IMAGES_MAX ? malloc(m->image_size) : NULL;
	if (copy) {
		memcpy(copy, m->image, m->image_size);
		w->images[w->n_images++] = (struct owc_written_image){ *id, copy, m->image_size };
	}
	return 0;
}

/*
 * Store a kernel address for owc_writer_kernel_lookups(). A lack of memory is ignored here,
 * because it costs only the name of this address.
 */
static void remember_lookup(struct owc_writer *w, uint64_t lookup)
{
	uint64_t hash = hash_u64(0, lookup);
	uint32_t id = UW_HASH_FIND(i, &w->by_lookup, hash, w->lookups[i] == lookup);

	if (id != UW_HASH_NONE || w->n_lookups == KERNEL_LOOKUPS_MAX ||
	    array_grow(w->lookups, w->n_lookups, w->room_lookups))
		return;
	w->lookups[w->n_lookups] = lookup;
	if (!uw_hash_add(&w->by_lookup, hash, (uint32_t)w->n_lookups))
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
		owc_fail(w, -ENOMEM);
	return !w->err;
}

/* Put n regions into the list from place at on. */
static void put_regions(struct owc_writer *w, size_t at, const struct uw_region *regions, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		Offwind__Capture__Region *r = &w->regions[at + i];

		offwind__capture__region__init(r);
		r->addr = regions[i].addr;
		r->content = owc_bytes(regions[i].bytes, regions[i].size);
		w->region_list[at + i] = r;
	}
}

/* Append a sample or a waker. Return -E2BIG if readers would not accept it. */
static int add_sample(struct owc_writer *w, const struct event *e, Offwind__Capture__Record *record)
{
	const struct event_sample *s = &e->sample;
	Offwind__Capture__Waker waker = OFFWIND__CAPTURE__WAKER__INIT;
	Offwind__Capture__Sample sample = OFFWIND__CAPTURE__SAMPLE__INIT;
	Offwind__Capture__Alloc alloc = OFFWIND__CAPTURE__ALLOC__INIT;
	Offwind__Capture__Wait wait = OFFWIND__CAPTURE__WAIT__INIT;
	uint64_t regs[UW_REGS_MAX];

	if (s->n_regions > OWC_REGIONS_MAX || s->n_slices > OWC_REGIONS_MAX ||
	    s->n_kernel_ips > OWC_KERNEL_IPS_MAX)
		return -E2BIG;
	if (!room_for_regions(w, (size_t)s->n_regions + s->n_slices))
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
	put_regions(w, 0, s->regions, s->n_regions);
	put_regions(w, s->n_regions, s->slices, s->n_slices);
	sample.regions = w->region_list;
	sample.n_regions = s->n_regions;
	sample.slices = s->n_slices ? w->region_list + s->n_regions : NULL;
	sample.n_slices = s->n_slices;
	sample.slices_end = s->slices_end;
	/* The packer does not change the addresses. */
	sample.kernel_ips = (uint64_t *)(uintptr_t)s->kernel_ips;
	sample.n_kernel_ips = s->n_kernel_ips;
	sample.cgroup_id = s->cgroup_id;
	sample.user = s->has_uid ? s->uid + 1 : 0;
	sample.ns_pid = s->ns_pid;
	sample.process_start_ns = s->process_start_ns;
	if (s->alloc.id) {
		alloc.id = s->alloc.id;
		alloc.size = s->alloc.size;
		alloc.objects = s->alloc.objects;
		alloc.tracked = s->alloc.tracked;
		sample.alloc = &alloc;
	}
	if (s->wait.n) {
		const char *name = s->wait.waker ? s->wait.waker : "";

		wait.n = s->wait.n;
		wait.runnable = s->wait.runnable;
		wait.waker = owc_bytes(name, strlen(name));
		wait.waker_pid = s->wait.waker_pid;
		wait.waker_tid = s->wait.waker_tid;
		wait.waker_stack = s->wait.waker_stack;
		wait.id = s->wait.id;
		sample.wait = &wait;
	}
	for (size_t i = 0; i < s->n_kernel_ips; i++)
		remember_lookup(w, s->kernel_ips[i] - (i != 0));
	if (e->type == EVENT_WAKER) {
		waker.id = s->wait.id;
		waker.sample = &sample;
		record->kind_case = OFFWIND__CAPTURE__RECORD__KIND_WAKER;
		record->waker = &waker;
	} else {
		record->kind_case = OFFWIND__CAPTURE__RECORD__KIND_SAMPLE;
		record->sample = &sample;
	}
	return owc_add_record(w, record);
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
	mapping.build_id = owc_bytes(m->build_id.bytes, m->build_id.size);
	mapping.path = owc_text(m->path);
	mapping.deleted = m->deleted;
	record->kind_case = OFFWIND__CAPTURE__RECORD__KIND_MAPPING;
	record->mapping = &mapping;
	return owc_add_record(w, record);
}

/* The messages are on the stack: owc_add_record packs the record before this function returns. */
int owc_pack_event(struct owc_writer *w, const struct event *e)
{
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;
	Offwind__Capture__Exec exec = OFFWIND__CAPTURE__EXEC__INIT;
	Offwind__Capture__Exit exit = OFFWIND__CAPTURE__EXIT__INIT;
	Offwind__Capture__Fork fork = OFFWIND__CAPTURE__FORK__INIT;
	Offwind__Capture__Comm comm = OFFWIND__CAPTURE__COMM__INIT;
	Offwind__Capture__Cgroup cgroup = OFFWIND__CAPTURE__CGROUP__INIT;
	Offwind__Capture__Freed freed = OFFWIND__CAPTURE__FREED__INIT;
	Offwind__Capture__Memory memory = OFFWIND__CAPTURE__MEMORY__INIT;
	Offwind__Capture__Generated generated = OFFWIND__CAPTURE__GENERATED__INIT;
	Offwind__Capture__Lost lost = OFFWIND__CAPTURE__LOST__INIT;

	record.time_ns = e->time_ns;
	record.pid = e->pid;
	record.tid = e->tid;
	switch (e->type) {
	case EVENT_MAPPING:
		return add_mapping(w, &e->mapping, &record);
	case EVENT_SAMPLE:
	case EVENT_WAKER:
		return add_sample(w, e, &record);
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
		comm.comm = owc_text(e->comm.comm);
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_COMM;
		record.comm = &comm;
		break;
	case EVENT_CGROUP:
		cgroup.id = e->cgroup.id;
		cgroup.path = owc_text(e->cgroup.path);
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
	case EVENT_MEMORY:
		memory.content = owc_bytes(e->memory.bytes, e->memory.size);
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_MEMORY;
		record.memory = &memory;
		break;
	case EVENT_CHANGED:
		return 0; /* each sample has its period */
	case EVENT_LOST:
		lost.reason = (uint32_t)e->lost.reason;
		lost.n_samples = e->lost.n_samples;
		lost.n_sideband = e->lost.n_sideband;
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_LOST;
		record.lost = &lost;
		break;
	}
	return owc_add_record(w, &record);
}

void owc_pack_symbols(struct owc_writer *w, const struct source_kernel_symbol *symbols, size_t n)
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
			one[i].name = owc_text(symbols[i].name);
			one[i].module = owc_text(symbols[i].module);
			list[i] = &one[i];
		}
		all.symbols = list;
		all.n_symbols = n;
		record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_KERNEL_SYMBOLS;
		record.kernel_symbols = &all;
		if (owc_add_record(w, &record))
			owc_fail(w, -E2BIG);
		w->frame.kernel_symbols = true;
	} else {
		owc_fail(w, -ENOMEM);
	}
	free(one);
	free(list);
}
