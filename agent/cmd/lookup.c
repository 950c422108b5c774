/* agent/cmd/lookup.c: looks up names of addresses that were recorded elsewhere or earlier. */
#include "agent/cmd/lookup.h"

#include "agent/clock.h"
#include "agent/pipeline/profile.h"
#include "agent/process/modules.h"
#include "base/text.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* How many files may be open before all are closed. */
enum { FILES_MAX = 256 };

struct lookup {
	const struct walking *walking;
	struct source_info info; /* all zero: of no recording */
	struct opener *opener;
	struct modules *modules;
	struct names *names;
	const struct module *module; /* that was opened last */
	unsigned int n_files;	     /* that were opened */
};

/* Make the modules and names that there are not yet. */
static int begin(struct lookup *l)
{
	struct store *store = l->walking->pipeline.store;
	int err = modules_new(l->opener, &l->info, false, &l->modules);

	if (err)
		return err;
	modules_for_names(l->modules);
	modules_tables(l->modules, store, NULL); /* of files that are gone */
	err = names_new(l->opener, &l->info, !l->walking->as_linked, &l->names);
	if (err)
		return err;
	names_store(l->names, store);
	if (!l->walking->no_lines)
		names_lines(l->names, !l->walking->no_inline);
	return 0;
}

int lookup_new(const struct walking *walking, struct lookup **out)
{
	const struct pipeline_options *p = &walking->pipeline;
	const struct opener_options opening = { .symfs = p->symfs, .debug_dir = p->debug_dir };
	struct lookup *l = calloc(1, sizeof(*l));
	int err = l ? opener_new(&opening, &l->opener) : -ENOMEM;

	*out = l;
	if (err)
		return err;
	l->walking = walking;
	opener_fetch(l->opener, p->store);
	return begin(l);
}

void lookup_free(struct lookup *l)
{
	if (!l)
		return;
	names_free(l->names);
	modules_free(l->modules);
	opener_free(l->opener);
	free(l);
}

/* Read a build-id in hexadecimal. Size 0: it is none. */
static struct uw_build_id build_id_of(const char *text)
{
	struct uw_build_id id = { .size = 0 };
	size_t n = strlen(text);

	if (n % 2 || n / 2 > sizeof(id.bytes))
		return id;
	for (size_t i = 0; i < n / 2; i++) {
		int high = uw_hex_digit(text[2 * i]), low = uw_hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return (struct uw_build_id){ .size = 0 };
		id.bytes[i] = (uint8_t)(high << 4 | low);
	}
	id.size = (uint8_t)(n / 2);
	return id;
}

int lookup_open(struct lookup *l, const struct lookup_file *file, const char **why)
{
	const struct event_mapping mapping = { .start = file->start,
					       .end = file->limit,
					       .off = file->off,
					       .prot = PROT_READ | PROT_EXEC,
					       .path = file->path,
					       .file = true,
					       .build_id = build_id_of(file->build_id) };
	struct module *module = modules_get(l->modules, 0, &mapping);
	struct uw_mapping resolved = { .start = file->start,
				       .end = file->limit,
				       .off = file->off,
				       .prot = PROT_READ | PROT_EXEC,
				       .user = module };

	l->module = module;
	if (!module)
		return -ENOMEM;
	if (module->state == MODULE_NOT_OPENED)
		l->n_files++;
	(void)modules_resolve(l->modules, &resolved);
	*why = module->state == MODULE_USABLE ? NULL : module_state_sentence(module->state);
	return 0;
}

/*
 * Return where names are looked up for a recorded address: that address, or, if no code of the file is there, what lies
 * at that offset in the file. While a file cannot be opened, its addresses are offsets.
 */
static uint64_t lookup_of(const struct uw_object *object, uint64_t address)
{
	size_t n;
	const struct uw_segment *s = uw_object_segments(object, &n);
	uint64_t vaddr;

	for (size_t i = 0; i < n; i++)
		if (s[i].flags & PF_X && address - s[i].vaddr < s[i].mem_size)
			return address;
	return uw_object_vaddr(object, address, &vaddr) ? address : vaddr;
}

int lookup_names(struct lookup *l, const uint64_t *addresses, size_t n, lookup_fn fn, void *ctx,
		 uint64_t *unnamed)
{
	struct location *locations = calloc(n, sizeof(*locations));
	uint32_t *ids = calloc(n, sizeof(*ids));
	int err = locations && ids ? 0 : -ENOMEM;
	const struct profile profile = {
		.locations = locations, .n_locations = n, .location_ids = ids, .n_location_ids = n
	};

	for (size_t i = 0; !err && i < n; i++) {
		locations[i] =
			(struct location){ .vaddr = lookup_of(l->module->object, addresses[i]),
					   .module = l->module };
		ids[i] = (uint32_t)i;
	}
	if (!err)
		names_prepare(l->names, &profile);
	for (size_t i = 0; !err && i < n; i++) {
		struct name name;

		names_find(l->names, &locations[i], &name);
		if ((name.function && *name.function) || name.bounded)
			err = fn(ctx, i, &name);
		else
			++*unnamed;
	}
	free(locations);
	free(ids);
	return err;
}

int lookup_bound(struct lookup *l)
{
	if (l->n_files < FILES_MAX) {
		names_bound(&l->names, now_ns());
		return 0;
	}
	names_free(l->names);
	modules_free(l->modules);
	l->names = NULL;
	l->modules = NULL;
	l->n_files = 0;
	return begin(l);
}
