/*
 * tests/diff/pprof_make.c: turns folded lines on standard input, "comm;outer;…;inner N", into a
 * pprof profile on standard output, with the exporter that profiles use.
 *
 * A frame "kernel:NAME" is a kernel frame. "lib/NAME" lies in lib, a file on this disk; "lib/?" has
 * no symbol.
 */
#include "agent/export/result.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { LOCATIONS_MAX = 1 << 16, MODULES_MAX = 64 };

static struct location locations[LOCATIONS_MAX];
static const char *functions[LOCATIONS_MAX]; /* NULL: no symbol */
static char *texts[LOCATIONS_MAX];
static size_t n_locations;
static struct module modules[MODULES_MAX];
static size_t n_modules;

void names_prepare(struct names *names, const struct profile *profile)
{
	(void)names;
	(void)profile;
}

void names_find(struct names *names, const struct location *location, struct name *out)
{
	const char *path = location->module->path, *slash = strrchr(path, '/');

	(void)names;
	*out = (struct name){ .function = functions[location - locations],
			      .system_name = functions[location - locations],
			      .module = slash ? slash + 1 : path };
}

static struct module *module_of(const char *path, enum module_kind kind)
{
	for (size_t i = 0; i < n_modules; i++)
		if (!strcmp(modules[i].path, path))
			return &modules[i];
	if (n_modules == MODULES_MAX)
		exit(2);
	modules[n_modules] = (struct module){ .id = (uint32_t)n_modules,
					      .kind = kind,
					      .path = strdup(path),
					      .build_id = { 1, { (uint8_t)n_modules } } };
	return &modules[n_modules++];
}

static uint32_t location_of(const char *frame)
{
	struct location *l = &locations[n_locations];
	const char *name;
	char path[512];

	for (size_t i = 0; i < n_locations; i++)
		if (!strcmp(texts[i], frame))
			return (uint32_t)i;
	if (n_locations == LOCATIONS_MAX)
		exit(2);
	texts[n_locations] = strdup(frame);
	l->ra_bytes = n_locations & 1;
	if (!strncmp(frame, "kernel:", 7)) {
		l->module = module_of("[kernel]", MODULE_KERNEL);
		l->vaddr = 0xffffffff81000000 + 7 * n_locations;
		name = texts[n_locations] + 7;
	} else {
		name = strchr(texts[n_locations], '/');
		if (!name)
			exit(2);
		(void)snprintf(path, sizeof(path), "/usr/bin/%.*s",
			       (int)(name - texts[n_locations]), frame);
		l->module = module_of(path, MODULE_FILE);
		l->vaddr = 0x1000 + 7 * n_locations;
		name++;
	}
	functions[n_locations] = strcmp(name, "?") != 0 ? name : NULL;
	return (uint32_t)n_locations++;
}

int main(void)
{
	static struct source_event event = {
		.name = "cpu-clock", .type = "cpu", .unit = "nanoseconds", .frequency_hz = 99
	};
	struct source_info info = { .machine = EM_X86_64,
				    .kind = "test",
				    .wall_start_ns = 1700000000000000000,
				    .wall_first_ns = 1,
				    .events = &event,
				    .n_events = 1 };
	struct profile p = { .locations = locations, .start_ns = 1, .end_ns = 3000000001 };
	struct result *r = NULL;
	char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, stdin) > 0) {
		char *count = strrchr(line, ' '), *rest = line, *frames[256], *frame;
		struct profile_entry *e;
		size_t n = 0;

		if (!count)
			return 2;
		*count++ = '\0';
		p.entries = reallocarray(p.entries, p.n_entries + 1, sizeof(*p.entries));
		p.location_ids =
			reallocarray(p.location_ids, p.n_location_ids + 256, sizeof(uint32_t));
		e = &p.entries[p.n_entries++];
		*e = (struct profile_entry){ .stop = p.n_entries % 3 ? UW_STOP_ROOT
								     : UW_STOP_TRUNCATED,
					     .has_user = true,
					     .pid = 100,
					     .tid = (uint32_t)(100 + p.n_entries),
					     .first_location = (uint32_t)p.n_location_ids,
					     .n_samples = strtoull(count, NULL, 10) };
		e->value = e->n_samples * 10101010;
		e->comm = e->process_comm = strdup(strsep(&rest, ";"));
		while ((frame = strsep(&rest, ";")) && n < 256)
			frames[n++] = frame;
		while (n > 0) {
			e->n_kernel += !strncmp(frames[n - 1], "kernel:", 7);
			p.location_ids[p.n_location_ids++] = location_of(frames[--n]);
			e->n_locations++;
		}
	}
	p.n_locations = n_locations;
	free(line);
	return result_new(FORMAT_PPROF, &r) || result_add(r, &p, NULL, &info) ||
	       result_write(r, NULL, stdout);
}
