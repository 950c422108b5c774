/* agent/export/windows.c: names and deletes the files of windows of time. */
#include "agent/export/windows.h"

#include "agent/log.h"
#include "agent/role/files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "offwind-"

void window_path(const char *directory, uint64_t start_ns, enum format format, char *path,
		 size_t size)
{
	time_t start = (time_t)(start_ns / 1000000000);
	char stamp[32];
	struct tm tm;

	(void)gmtime_r(&start, &tm);
	(void)strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm);
	(void)snprintf(path, size, "%s/" PREFIX "%s%s", directory, stamp, format_suffix(format));
}

/* Return whether a name is that of a window's file, of any format; see window_path. */
static bool is_window(const char *name)
{
	static const char stamp[] = PREFIX "00000000T000000Z"; /* 0 stands for any digit */

	for (const char *s = stamp; *s; s++, name++)
		if (*s == '0' ? *name < '0' || *name > '9' : *name != *s)
			return false;
	for (unsigned int i = 0; i < FORMAT_N; i++)
		if (!strcmp(name, format_suffix((enum format)i)))
			return true;
	return false;
}

bool window_is_in(const char *directory, const char *path)
{
	size_t n = strlen(directory);

	return !strncmp(path, directory, n) && path[n] == '/' && !strchr(path + n + 1, '/') &&
	       is_window(path + n + 1);
}

static int is_window_entry(const struct dirent *entry) /* for scandir */
{
	return is_window(entry->d_name);
}

void windows_keep(const char *directory, uint32_t keep)
{
	struct dirent **entries;
	int n;

	if (files_are_asked_for()) {
		files_keep();
		return;
	}
	n = scandir(directory, &entries, is_window_entry, alphasort);
	for (int i = 0; i < n; i++) {
		char path[4096];

		(void)snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
		if ((uint32_t)(n - i) > keep && unlink(path))
			log_warning("%s: cannot be removed: %s", path, strerror(errno));
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}
