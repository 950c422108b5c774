/* agent/source/procfs.c: reads the mappings and the state of processes from /proc. */
#include "agent/source/procfs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- mappings ------------------------------------------------------------------- */

void procfs_set_path(struct event_mapping *mapping, char *path)
{
	size_t length = strlen(path);

	if (length > 10 && !strcmp(path + length - 10, " (deleted)")) {
		path[length - 10] = '\0';
		mapping->deleted = true;
	}
	mapping->path = path;
}

char *procfs_mount_path(char *path)
{
	char *to = path;

	for (const char *from = path; *from;) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
		    from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
			*to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 |
				       (from[3] - '0'));
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
	return path;
}

/* Restore newlines only: the kernel escapes nothing else in this file (proc_pid_maps(5)). */
int procfs_maps_line(char *line, struct event_mapping *mapping)
{
	struct event_mapping m = { 0 };
	char perms[5], *from, *to;
	int path_at = 0;

	if (sscanf(line,
		   "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %" SCNx32 ":%" SCNx32 " %" SCNu64 " %n",
		   &m.start, &m.end, perms, &m.off, &m.major, &m.minor, &m.inode, &path_at) != 7 ||
	    !path_at || m.start >= m.end || strlen(perms) != 4)
		return -EBADMSG;
	m.prot = (perms[0] == 'r' ? PROT_READ : 0u) | (perms[1] == 'w' ? PROT_WRITE : 0u) |
		 (perms[2] == 'x' ? PROT_EXEC : 0u);
	line[strcspn(line, "\n")] = '\0';
	for (from = to = line + path_at; *from;) {
		if (!strncmp(from, "\\012", 4)) {
			*to++ = '\n';
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
	procfs_set_path(&m, line + path_at);
	*mapping = m;
	return 0;
}

int procfs_own_mapping(uint64_t addr, struct event_mapping *out, char **line)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	struct event_mapping mapping;
	size_t room = 0;
	int err = -ENOENT;

	*line = NULL;
	while (maps && err && getline(line, &room, maps) > 0)
		if (!procfs_maps_line(*line, &mapping) && mapping.start <= addr &&
		    addr < mapping.end) {
			*out = mapping;
			err = 0;
		}
	if (maps)
		(void)fclose(maps);
	return err;
}

/* ---- processes ------------------------------------------------------------------ */

/* Read the number after key, such as "PPid:", from /proc/PID/status. */
static int status_number(uint32_t pid, const char *key, uint32_t *out)
{
	char path[40], line[256];
	FILE *file;
	int err = -ENOENT;

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/status", pid);
	file = fopen(path, "re");
	if (!file)
		return -ENOENT;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		err = sscanf(line + strlen(key), "%" SCNu32, out) == 1 ? 0 : -EBADMSG;
		break;
	}
	(void)fclose(file);
	return err;
}

bool procfs_ended(uint32_t pid)
{
	char path[40], line[256], state = 0;
	unsigned int threads = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/status", pid);
	file = fopen(path, "re");
	if (!file)
		return errno == ENOENT || errno == ESRCH;
	while (fgets(line, sizeof(line), file)) {
		(void)sscanf(line, "State: %c", &state);
		(void)sscanf(line, "Threads: %u", &threads);
	}
	(void)fclose(file);
	/* A zombie that has other threads is a leader that ended before them. */
	return !state || ((state == 'Z' || state == 'X') && threads <= 1);
}

int procfs_parent(uint32_t pid, uint32_t *parent)
{
	return status_number(pid, "PPid:", parent);
}

int procfs_group(uint32_t tid, uint32_t *pid)
{
	return status_number(tid, "Tgid:", pid);
}
