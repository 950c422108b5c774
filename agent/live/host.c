/* agent/live/host.c: reads what the kernel says about itself and this machine. */
#include "agent/live/host.h"

#include "agent/clock.h"
#include "agent/live/system/inventory.h"
#include "agent/source/machine.h"

#include <elf.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>
#include <time.h>

void live_host_vdso(const uint8_t **out, size_t *out_size)
{
	const uint8_t *vdso = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
	FILE *maps = vdso ? fopen("/proc/self/maps", "re") : NULL;
	struct event_mapping m;
	char *line = NULL;
	size_t room = 0;

	if (!maps)
		return;
	while (getline(&line, &room, maps) > 0) {
		if (live_maps_line(line, &m) || m.start != (uintptr_t)vdso)
			continue;
		*out = vdso;
		*out_size = m.end - m.start;
	}
	free(line);
	(void)fclose(maps);
}

/*
 * Find the GNU build-id among ELF notes. *out is unchanged if there is none, or the notes are
 * damaged.
 */
static void find_build_id(const uint8_t *notes, size_t size, struct uw_build_id *out)
{
	Elf64_Nhdr note;

	while (size >= sizeof(note)) {
		size_t name, desc;

		memcpy(&note, notes, sizeof(note));
		notes += sizeof(note);
		size -= sizeof(note);
		if (note.n_namesz > size || note.n_descsz > size)
			return;
		name = (note.n_namesz + 3u) & ~3u;
		desc = (note.n_descsz + 3u) & ~3u;
		if (name > size || desc > size - name)
			return;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    !memcmp(notes, "GNU", 4) && note.n_descsz <= UW_BUILD_ID_MAX) {
			out->size = (uint8_t)note.n_descsz;
			memcpy(out->bytes, notes + name, note.n_descsz);
			return;
		}
		notes += name + desc;
		size -= name + desc;
	}
}

/* Return the address of the kernel's text (_text), or 0 if it is hidden (kptr_restrict). */
static uint64_t find_kernel_text(void)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	char line[512], name[8];
	uint64_t addr, text = 0;

	if (!file)
		return 0;
	/* kallsyms is sorted by address, so _text is near the start. */
	for (size_t i = 0; i < 65536 && !text && fgets(line, sizeof(line), file); i++)
		if (sscanf(line, "%" SCNx64 " %*c %7s", &addr, name) == 2 && !strcmp(name, "_text"))
			text = addr;
	(void)fclose(file);
	return text;
}

void live_host_fill(struct source_info *info)
{
	uint8_t notes[4096];
	struct utsname uts;
	FILE *file;

	info->machine = machine_here()->elf;
	(void)snprintf(info->recorder, sizeof(info->recorder), "offwind %s", OFFWIND_VERSION);
	if (!uname(&uts)) {
		(void)snprintf(info->host, sizeof(info->host), "%s", uts.nodename);
		(void)snprintf(info->kernel, sizeof(info->kernel), "%s", uts.release);
	}
	info->wall_first_ns = now_ns();
	info->wall_start_ns = clock_ns(CLOCK_REALTIME);
	info->kernel_text = find_kernel_text();
	file = fopen("/sys/kernel/notes", "re");
	if (file) {
		find_build_id(notes, fread(notes, 1, sizeof(notes), file), &info->kernel_build_id);
		(void)fclose(file);
	}
	info->same_boot = true;
}
