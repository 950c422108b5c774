/*
 * tests/fuzz/fuzz_unpack.c: fuzzes decompression. Byte 0 chooses the format and, for those that
 * state their size beforehand, whether the statement is right or one byte too small; bytes 1 and 2
 * are that size.
 */
#include <stdlib.h>

#include "base/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 3
#define CAP  ((uint64_t)1 << 20)

static volatile uint64_t sink; /* all bytes that are returned must be readable */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *out = NULL;
	size_t n;
	int err;

	if (size < HEAD)
		return 0;
	n = (size_t)data[1] | (size_t)data[2] << 8;
	if (data[0] % 3 == 0)
		err = uw_unpack_zlib(data + HEAD, size - HEAD, n, CAP, &out);
	else if (data[0] % 3 == 1)
		err = uw_unpack_zstd(data + HEAD, size - HEAD, n, CAP, &out);
	else
		err = uw_unpack_xz(data + HEAD, size - HEAD, CAP, &out, &n);
	if (err) {
		if (out)
			abort();
		return 0;
	}
	if (n > CAP)
		abort();
	for (size_t i = 0; i < n; i++)
		sink += out[i];
	free(out);
	return 0;
}
