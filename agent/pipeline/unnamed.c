/* agent/pipeline/unnamed.c: sums up the samples without function names, by file. */
#include "agent/pipeline/unnamed.h"

#include "agent/process/modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* Add value to a file's sum. Files beyond UNNAMED_FILES are not listed. */
static void add_file(struct unnamed *u, const struct module *module, uint64_t value)
{
	struct opener_file file;
	char *path;

	for (size_t i = 0; i < u->n_files; i++)
		if (!strcmp(u->files[i].path, module->path)) {
			u->files[i].value += value;
			return;
		}
	if (!u->files)
		u->files = calloc(UNNAMED_FILES, sizeof(*u->files));
	if (!u->files || u->n_files == UNNAMED_FILES || !(path = strdup(module->path)))
		return;
	module_file(module, &file);
	u->files[u->n_files++] = (struct unnamed_file){
		.path = path, .own = !file.view, .inode = file.inode, .value = value
	};
}

void unnamed_add(struct unnamed *u, const struct profile *profile, struct names *names,
		 const struct source_info *info)
{
	struct utsname here;

	if (!info->n_events ||
	    (info->host[0] && !uname(&here) && strcmp(info->host, here.nodename) != 0))
		return;
	if (strcmp(info->events[0].unit, "nanoseconds") != 0)
		(void)snprintf(u->what, sizeof(u->what), "%s", info->events[0].name);
	u->unsure = u->unsure || names_left_out(names);
	for (size_t i = 0; i < profile->n_entries; i++) {
		const struct profile_entry *e = &profile->entries[i];
		const struct location *l;
		struct name name;

		if (e->event)
			continue;
		u->whole += e->value;
		if (!e->n_locations || e->n_kernel)
			continue;
		l = &profile->locations[profile->location_ids[e->first_location]];
		if (l->module->kind != MODULE_FILE || l->module->state != MODULE_USABLE ||
		    l->module->gone)
			continue;
		names_find(names, l, &name);
		if (name.function && *name.function)
			continue;
		u->value += e->value;
		add_file(u, l->module, e->value);
	}
}

void unnamed_fini(struct unnamed *u)
{
	for (size_t i = 0; i < u->n_files; i++)
		free(u->files[i].path);
	free(u->files);
	*u = (struct unnamed){ .n_files = 0 };
}
