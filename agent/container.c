#include "agent/container.h"

#include <string.h>

bool container_of(const char *path, char id[CONTAINER_ID + 1])
{
	bool found = false;

	for (const char *p = path; *p;) {
		size_t n = strspn(p, "0123456789abcdef");

		if (n == CONTAINER_ID) {
			memcpy(id, p, n);
			id[n] = '\0';
			found = true;
		}
		p += n;
		p += strcspn(p, "0123456789abcdef");
	}
	return found;
}
