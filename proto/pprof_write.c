/* proto/pprof_write.c: joins the encoded parts of a profile, compresses and writes them. */
#include "proto/pprof.h"

#include "proto/gzip.h"
#include "proto/pprof_builder.h"
#include "proto/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Return the whole message, which the caller frees; NULL: out of memory. */
static uint8_t *join(const struct pprof *p, size_t *size)
{
	uint8_t times[WIRE_SMALL_MAX], *times_end = times;
	uint8_t period[WIRE_SMALL_MAX], *period_end = period;
	uint8_t last[WIRE_SMALL_MAX], *last_end = last;
	uint8_t *all, *at;

	times_end = wire_put_number(times_end, PROFILE_TIME_NANOS, (uint64_t)p->time_ns);
	times_end = wire_put_number(times_end, PROFILE_DURATION_NANOS, (uint64_t)p->duration_ns);
	period_end = wire_put_number(period_end, PROFILE_PERIOD, (uint64_t)p->period);
	period_end = wire_put_packed(period_end, PROFILE_COMMENT, p->comments.n);
	last_end = wire_put_number(last_end, PROFILE_DEFAULT_SAMPLE_TYPE,
				   (uint64_t)p->default_sample_type);
	const struct {
		const uint8_t *bytes;
		size_t n;
	} parts[] = {
		{ p->types.bytes, p->types.n },
		{ p->samples.bytes, p->samples.n },
		{ p->mappings.bytes, p->mappings.n },
		{ p->locations.bytes, p->locations.n },
		{ p->functions.bytes, p->functions.n },
		{ p->strings.bytes, p->strings.n },
		{ times, (size_t)(times_end - times) },
		{ p->period_type.bytes, p->period_type.n },
		{ period, (size_t)(period_end - period) },
		{ p->comments.bytes, p->comments.n },
		{ last, (size_t)(last_end - last) },
	};

	*size = 0;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		*size += parts[i].n;
	at = all = malloc(*size);
	for (size_t i = 0; all && i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (parts[i].n)
			memcpy(at, parts[i].bytes, parts[i].n);
		at += parts[i].n;
	}
	return all;
}

/* Write all bytes. Return 0 or a system error. */
static int write_all(int fd, const uint8_t *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n == 0)
			return -EIO;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			bytes += n;
			size -= (size_t)n;
		}
	}
	return 0;
}

int pprof_write(struct pprof *p, int gzip_level, int fd)
{
	uint8_t *bytes;
	size_t size;
	int err = 0;

	if (p->err)
		return p->err;
	if (gzip_level < 0 || gzip_level > 9)
		return -EINVAL;
	bytes = join(p, &size);
	if (!bytes)
		return -ENOMEM;
	if (gzip_level)
		err = gzip_replace(&bytes, &size, gzip_level);
	if (!err)
		err = write_all(fd, bytes, size);
	free(bytes);
	return err;
}
