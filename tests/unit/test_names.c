/*
 * tests/unit/test_names.c: tests names of locations: symbols if there are any, otherwise the start
 * of the function.
 */
#include "agent/export/export.h"
#include "agent/pipeline/names.h"
#include "agent/process/modules.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

int main(void)
{
	const struct opener_options options = { 0 };
	const struct source_info info = { 0 };
	struct event_mapping mapping = { .start = 1, .end = 2 };
	struct uw_mapping mapped = { .start = 1, .end = 2 };
	struct opener *opener = NULL;
	struct modules *modules = NULL;
	struct names *names = NULL;
	struct module *zlib;
	struct location location = { 0 };
	uint64_t start = 0, end = 0;
	char place[256];
	struct name name;
	Dl_info dl = { 0 };
	int unnamed = 0;

	/*
	 * zlib as Debian ships it has exported symbols only, but unwind information for all.  (Of the
	 * C library there may be a debug file, which valgrind wants.)
	 */
	CHECK(dladdr(dlsym(RTLD_DEFAULT, "crc32_combine"), &dl) && dl.dli_fname, "zlib");
	mapping.path = dl.dli_fname;
	CHECK(!opener_new(&options, &opener) && !modules_new(opener, &info, false, &modules) &&
		      !names_new(opener, &info, true, &names),
	      "set up");
	zlib = modules_get(modules, 1, &mapping);
	mapped.user = zlib;
	uw_object_put(modules_resolve(modules, &mapped));
	CHECK(zlib->state == MODULE_USABLE, zlib->path);

	location = (struct location){
		.module = zlib,
		.vaddr = (uint64_t)((uintptr_t)dl.dli_saddr - (uintptr_t)dl.dli_fbase) + 2,
		.ra_bytes = 1,
	};
	names_find(names, &location, &name);
	CHECK(name.function && !strcmp(name.function, dl.dli_sname), "what the loader calls it");
	CHECK(name.offset == 3 && !name.bounded, "the pc is behind the address sought");
	CHECK(!uw_object_function(zlib->object, location.vaddr, &start, &end) &&
		      start == location.vaddr - 2 && end > location.vaddr,
	      "unwind information and symbol agree where it begins");

	/* Some function after this one has no symbol. */
	for (int i = 0; i < 2000 && !unnamed; i++) {
		location.vaddr = end;
		while (uw_object_function(zlib->object, location.vaddr, &start, &end) &&
		       location.vaddr < start + 4096)
			location.vaddr++; /* padding */
		names_find(names, &location, &name);
		unnamed = !name.function && name.bounded;
	}
	CHECK(unnamed, "a function without symbol");
	CHECK(name.start == start && start <= location.vaddr && location.vaddr < end,
	      "begins where unwind information says");
	export_place(&name, place, sizeof(place));
	CHECK(strstr(place, ".so") && strtoull(strstr(place, "+0x") + 1, NULL, 16) == start, place);

	location.vaddr = UINT64_C(1) << 40;
	names_find(names, &location, &name);
	CHECK(!name.function && !name.bounded, "outside");
	export_place(&name, place, sizeof(place));
	CHECK(place[0] == '[' && place[strlen(place) - 1] == ']', place);

	names_free(names);
	modules_free(modules);
	opener_free(opener);
	return check_done();
}
