/* agent/container.c: container ids in the paths of cgroups. */
#include "agent/container.h"

#include <string.h>

/*
 * An id is a run of exactly CONTAINER_ID lower-case hexadecimal digits. Later matches overwrite
 * earlier ones, so the innermost container wins.
 */
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
