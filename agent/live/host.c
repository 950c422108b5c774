/* agent/live/host.c: reads what the kernel says about itself and this machine. */
#include "agent/live/host.h"

#include "agent/clock.h"
#include "agent/source/machine.h"
#include "agent/source/memory_image.h"
#include "agent/source/procfs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>
#include <time.h>

/* The auxiliary vector has the vDSO's address only; /proc/self/maps also has its end. */
void live_host_vdso(const uint8_t **out, size_t *out_size)
{
	const uint8_t *vdso = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
	struct event_mapping m;
	char *line = NULL;

	if (vdso && !procfs_own_mapping((uintptr_t)vdso, &m, &line) && m.start == (uintptr_t)vdso) {
		*out = vdso;
		*out_size = m.end - m.start;
	}
	free(line);
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
	struct utsname uts;

	info->machine = machine_here()->elf;
	(void)snprintf(info->recorder, sizeof(info->recorder), "offwind %s", OFFWIND_VERSION);
	if (!uname(&uts)) {
		(void)snprintf(info->host, sizeof(info->host), "%s", uts.nodename);
		(void)snprintf(info->kernel, sizeof(info->kernel), "%s", uts.release);
	}
	info->wall_first_ns = now_ns();
	info->wall_start_ns = clock_ns(CLOCK_REALTIME);
	info->kernel_text = find_kernel_text();
	image_kernel_build_id(&info->kernel_build_id);
	info->same_boot = true;
}
