/* agent/process/hotspot_memory.c: reads a Java virtual machine's memory. */
#include "agent/process/hotspot_memory.h"

#include "agent/hash.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORK_MAX 65536u /* steps, some 100 µs, until it is asked whether there is time */
#define GET_WORK 16	/* steps that reading from a cached page takes */

void hotspot_memory_begin(struct hotspot_memory *m, uw_read_fn read, void *ctx)
{
	m->read = read;
	m->ctx = ctx;
	m->over = false;
	m->work = 0;
	memset(m->starts, 0, sizeof(m->starts));
}

void hotspot_memory_fini(struct hotspot_memory *m)
{
	for (unsigned int i = 0; i < HOTSPOT_PAGES; i++)
		free(m->pages[i]);
}

size_t hotspot_memory_size(const struct hotspot_memory *m)
{
	size_t n = 0;

	for (unsigned int i = 0; i < HOTSPOT_PAGES; i++)
		n += m->pages[i] ? HOTSPOT_PAGE : 0;
	return n;
}

bool hotspot_has_time(struct hotspot_memory *m, unsigned int n)
{
	m->work += n;
	if (m->work >= WORK_MAX) {
		m->work = 0;
		m->over |= m->read(m->ctx, 0, NULL, 0) == -ETIME;
	}
	return !m->over;
}

static bool get(struct hotspot_memory *m, uint64_t addr, void *out, size_t size)
{
	int err = m->over || !addr || addr > UINT64_MAX - size ? -EFAULT
							       : m->read(m->ctx, addr, out, size);

	m->over |= err == -ETIME;
	return !err;
}

/*
 * Return the byte at addr in a page that is cached for this call, so that many small reads of a
 * page cost one. NULL if the page cannot be read to its end.
 */
static const uint8_t *page_of(struct hotspot_memory *m, uint64_t addr)
{
	uint64_t start = addr & ~(uint64_t)(HOTSPOT_PAGE - 1);
	unsigned int slot = uw_hash_u64(start) % HOTSPOT_PAGES;

	if (!m->pages[slot])
		m->pages[slot] = malloc(HOTSPOT_PAGE);
	if (!m->pages[slot])
		return NULL;
	if (m->starts[slot] != start || !start) {
		m->starts[slot] = 0;
		if (!get(m, start, m->pages[slot], HOTSPOT_PAGE))
			return NULL;
		m->starts[slot] = start;
	}
	return m->pages[slot] + (addr - start);
}

bool hotspot_get(struct hotspot_memory *m, uint64_t addr, void *out, size_t size)
{
	uint8_t *to = out;

	if (!hotspot_has_time(m, GET_WORK))
		return false;
	if (size > HOTSPOT_PAGE)
		return get(m, addr, out, size);
	for (size_t left = size; left;) {
		size_t piece = HOTSPOT_PAGE - addr % HOTSPOT_PAGE;
		const uint8_t *p = page_of(m, addr);

		if (piece > left)
			piece = left;
		if (p)
			memcpy(to, p, piece);
		else if (!get(m, addr, to, piece)) /* the page need not be readable to its end */
			return false;
		to += piece;
		addr += piece;
		left -= piece;
	}
	return true;
}

bool hotspot_get_number(struct hotspot_memory *m, uint64_t addr, unsigned int size, uint64_t *out)
{
	uint8_t bytes[8];

	if (!hotspot_get(m, addr, bytes, size))
		return false;
	*out = uw_bytes_little_n(bytes, size);
	return true;
}

bool hotspot_get_packed(struct hotspot_memory *m, uint64_t *addr, uint8_t least, uint32_t *out)
{
	uint32_t value = 0;
	uint8_t byte;

	for (unsigned int i = 0; i < 5; i++) {
		if (!hotspot_get(m, *addr, &byte, 1) || byte < least)
			return false;
		++*addr;
		value += (uint32_t)(byte - least) << 6 * i;
		if (byte < 192)
			break;
	}
	*out = value;
	return true;
}

bool hotspot_get_text(struct hotspot_memory *m, uint64_t addr, char *out, size_t size)
{
	size_t n = 0;

	if (!hotspot_has_time(m, GET_WORK))
		return false;
	while (n < size - 1) { /* the memory after its end need not be readable */
		size_t piece = HOTSPOT_PAGE - (addr + n) % HOTSPOT_PAGE;
		const uint8_t *p = page_of(m, addr + n);

		if (!p)
			return false;
		if (piece > size - 1 - n)
			piece = size - 1 - n;
		memcpy(out + n, p, piece);
		if (memchr(out + n, 0, piece))
			return true;
		n += piece;
	}
	out[n] = 0;
	return true;
}
