/*
 * tests/peers/libunwind.c: walks captured stacks with libunwind's remote unwinding, in the way that
 * perf uses it: with its own search of .eh_frame_hdr, and files read by an accessor. libunwind's
 * cache of rules is on; perf turns it off for single samples.
 */
#include <libunwind.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/peers/peer.h"

/* Exported for perf and gdb, but declared in no header. */
#define search_table UNW_OBJ(dwarf_search_unwind_table)
int search_table(unw_addr_space_t as, unw_word_t ip, unw_dyn_info_t *di, unw_proc_info_t *pi,
		 int need, void *arg);

struct remote {
	struct recording *recording;
	unw_addr_space_t *spaces; /* one a life */
	/* Of the walk under way: */
	const struct sample *sample;
	const struct life *life;
	const struct code *code;     /* last one found */
	const struct loaded *loaded; /* likewise */
	uint64_t own[PEER_FRAMES];   /* for callers that do not need pcs */
};

static int find_proc_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *pi, int need,
			  void *arg)
{
	struct remote *r = arg;
	const struct code *code = r->code;
	unw_dyn_info_t di = { .format = UNW_INFO_FORMAT_REMOTE_TABLE };

	if (!code || ip < code->start || ip >= code->end)
		code = life_code(r->life, ip);
	if (!code || !code->image || !code->image->n_fdes)
		return -UNW_ENOINFO;
	r->code = code;
	di.start_ip = code->start;
	di.end_ip = code->end;
	di.u.rti.segbase = code->bias + code->image->hdr_vaddr;
	di.u.rti.table_data = code->bias + code->image->table_vaddr;
	di.u.rti.table_len = code->image->n_fdes;
	return search_table(as, ip, &di, pi, need, arg);
}

static int access_mem(unw_addr_space_t as, unw_word_t addr, unw_word_t *value, int write, void *arg)
{
	struct remote *r = arg;
	const struct uw_region *stack = &r->sample->stack;
	const struct loaded *loaded = r->loaded;
	const uint8_t *bytes;

	(void)as;
	if (write)
		return -UNW_EINVAL;
	if (addr >= stack->addr && addr - stack->addr < stack->size &&
	    stack->size - (addr - stack->addr) >= 8) {
		memcpy(value, stack->bytes + (addr - stack->addr), 8);
		return 0;
	}
	if (!loaded || addr < loaded->start || addr >= loaded->end)
		loaded = life_loaded(r->life, addr);
	if (!loaded)
		return -UNW_EINVAL;
	r->loaded = loaded;
	/*
	 * Writable memory is read, too: libunwind reads a pointer to the personality there and
	 * gives up without it.
	 */
	bytes = image_at(loaded->image, addr - loaded->bias, 8);
	if (!bytes)
		return -UNW_EINVAL;
	memcpy(value, bytes, 8);
	return 0;
}

/* libunwind's numbers of general registers are the DWARF numbers. */
static int access_reg(unw_addr_space_t as, unw_regnum_t reg, unw_word_t *value, int write,
		      void *arg)
{
	const struct remote *r = arg;

	(void)as;
	if (write || reg < 0 || reg >= UW_REGS_MAX || !(r->sample->regs.known >> reg & 1))
		return -UNW_EBADREG;
	*value = r->sample->regs.value[reg];
	return 0;
}

static void put_unwind_info(unw_addr_space_t as, unw_proc_info_t *pi, void *arg)
{
	(void)as;
	(void)pi;
	(void)arg;
}

static int get_dyn_info_list_addr(unw_addr_space_t as, unw_word_t *addr, void *arg)
{
	(void)as;
	(void)addr;
	(void)arg;
	return -UNW_ENOINFO;
}

static int access_fpreg(unw_addr_space_t as, unw_regnum_t reg, unw_fpreg_t *value, int write,
			void *arg)
{
	(void)as;
	(void)reg;
	(void)value;
	(void)write;
	(void)arg;
	return -UNW_EBADREG;
}

static int resume(unw_addr_space_t as, unw_cursor_t *cursor, void *arg)
{
	(void)as;
	(void)cursor;
	(void)arg;
	return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t as, unw_word_t addr, char *name, size_t size,
			 unw_word_t *off, void *arg)
{
	(void)as;
	(void)addr;
	(void)name;
	(void)size;
	(void)off;
	(void)arg;
	return -UNW_ENOINFO;
}

static unw_accessors_t accessors = {
	.find_proc_info = find_proc_info,
	.put_unwind_info = put_unwind_info,
	.get_dyn_info_list_addr = get_dyn_info_list_addr,
	.access_mem = access_mem,
	.access_reg = access_reg,
	.access_fpreg = access_fpreg,
	.resume = resume,
	.get_proc_name = get_proc_name,
};

static void remote_free(void *self)
{
	struct remote *r = self;

	for (size_t i = 0; r && r->spaces && i < r->recording->n_lives; i++)
		if (r->spaces[i])
			unw_destroy_addr_space(r->spaces[i]);
	if (r)
		free(r->spaces);
	free(r);
}

static int remote_new(struct recording *recording, size_t life, void **self)
{
	struct remote *r = calloc(1, sizeof(*r));
	int err = r ? recording_load(recording, life) : -ENOMEM;

	if (!err) {
		r->recording = recording;
		r->spaces = calloc(recording->n_lives, sizeof(*r->spaces));
		err = r->spaces ? 0 : -ENOMEM;
	}
	for (size_t i = 0; !err && i < recording->n_lives; i++) {
		r->spaces[i] = unw_create_addr_space(&accessors, 0);
		if (!r->spaces[i] || unw_set_caching_policy(r->spaces[i], UNW_CACHE_GLOBAL))
			err = -ENOMEM;
	}
	if (err) {
		remote_free(r);
		return err;
	}
	*self = r;
	return 0;
}

static size_t remote_walk(void *self, const struct sample *sample, uint64_t *pcs)
{
	struct remote *r = self;
	unw_cursor_t cursor;
	size_t n = 0;

	if (!pcs)
		pcs = r->own;
	r->sample = sample;
	r->life = &r->recording->lives[sample->life];
	r->code = NULL;
	r->loaded = NULL;
	if (unw_init_remote(&cursor, r->spaces[sample->life], r))
		return 0;
	do {
		unw_word_t ip;

		/* libunwind's outermost frame is the one whose caller would be at 0. */
		if (unw_get_reg(&cursor, UNW_REG_IP, &ip) || !ip)
			break;
		pcs[n++] = ip;
	} while (n < PEER_FRAMES && unw_step(&cursor) > 0);
	return n;
}

const struct peer peer_libunwind = {
	.name = "libunwind", .new = remote_new, .free = remote_free, .walk = remote_walk
};
