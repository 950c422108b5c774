/*
 * agent/owc/owc_format.c: reads this machine's boot id, by which a capture file shows whether it was
 * recorded since the machine was booted, and decodes the sizes of records.
 */
#include "agent/owc/owc_format.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Read the boot id. */
static bool read_boot_id(char out[OWC_BOOT_ID_SIZE])
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

/* It does not change while this process runs, and a worker in the sandbox could not read it. */
bool owc_boot_id(char out[OWC_BOOT_ID_SIZE])
{
	static char found[OWC_BOOT_ID_SIZE];

	if (!found[0] && !read_boot_id(found))
		found[0] = '\0';
	memcpy(out, found, OWC_BOOT_ID_SIZE);
	return out[0] != '\0';
}

int owc_record_size(const uint8_t *at, size_t left, size_t *size, size_t *used)
{
	size_t n = 0;

	*size = 0;
	do {
		if (n == left || n == 4)
			return n == left ? -ENODATA : -EBADMSG;
		*size |= (size_t)(at[n] & 0x7f) << 7 * n;
	} while (at[n++] & 0x80);
	*used = n;
	return 0;
}
