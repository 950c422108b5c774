/*
 * agent/owc/format.c: the boot id, which tells whether a capture file was recorded since
 * this machine was booted.
 */
#include "agent/owc/format.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool owc_boot_id(char out[OWC_BOOT_ID_SIZE])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, OWC_BOOT_ID_SIZE - 1);

	if (fd >= 0)
		(void)close(fd);
	if (n <= 0)
		return false;
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return out[0] != '\0';
}
