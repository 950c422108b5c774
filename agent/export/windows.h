/*
 * agent/export/windows.h: the files of a recording that writes a profile for each window of time, all
 * in one directory: offwind-20260131T235959Z.pb.gz, in UTC. Sorted by name they are sorted by time.
 */
#ifndef AGENT_EXPORT_WINDOWS_H
#define AGENT_EXPORT_WINDOWS_H

#include "agent/export/formats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Write the path of the file of the window that began at this time (CLOCK_REALTIME). */
void window_path(const char *directory, uint64_t start_ns, enum format format, char *path,
		 size_t size);

/* Return whether path could be that of a window in this directory. */
bool window_is_in(const char *directory, const char *path);

/*
 * Delete the oldest windows of any format, so that keep are left. Failures are reported. A process
 * without rights asks its supervisor, which knows directory and keep from the command line.
 */
void windows_keep(const char *directory, uint32_t keep);

#endif
