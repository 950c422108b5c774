/* agent/opener/mapped_link.c: opens links in /proc/PID/map_files. */
#include "agent/opener/places.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

int places_mapped_link(const struct opener_file *file, int *fd)
{
	int process, err = places_process_directory(file->pid, &process);
	char name[64];

	if (err)
		return err;
	(void)snprintf(name, sizeof(name), "map_files/%" PRIx64 "-%" PRIx64, file->start,
		       file->end);
	err = places_process_open(process, name, O_PATH, fd);
	(void)close(process);
	return err;
}
