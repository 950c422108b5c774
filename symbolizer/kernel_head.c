/*
 * symbolizer/kernel_head.c: looks symbols up in the text of the first part of a list of kernel
 * symbols.
 */
#include "symbolizer/kernel_head.h"

#include "base/elf.h"
#include "base/growth.h"
#include "base/search.h"
#include "base/text.h"
#include "symbolizer/elf/prefer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK	  ((size_t)4096)
#define HEAD_MIN  ((size_t)64 << 10) /* a smaller head is not worth the two ways */
#define GROUP_MAX 8		     /* limit on blocks searched for one address */

/* ---- reading ---------------------------------------------------------------- */

/* 16 bytes at a time, on any machine with such vectors. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));

/* Replace newlines by NULs. */
static void end_lines(char *text, size_t size)
{
	size_t at = 0;

	for (; size - at >= 16; at += 16) {
		bytes16 v;

		memcpy(&v, text + at, 16);
		v &= (bytes16)(v != '\n');
		memcpy(text + at, &v, 16);
	}
	for (; at < size; at++)
		if (text[at] == '\n')
			text[at] = '\0';
}

/* Address, type and name of a line in the kernel's format, without a module. */
struct line {
	uint64_t addr;
	const char *name; /* the type is name[-2] */
};

/* Parse the fixed part of a line: 16 hexadecimal digits, space, type, space. */
static bool parse_line(const char *p, const char *end, struct line *out)
{
	uint64_t addr = 0;

	if (end - p < 20 || p[16] != ' ' || p[18] != ' ')
		return false;
	for (int i = 0; i < 16; i++) {
		int digit = uw_hex_digit(p[i]);

		if (digit < 0)
			return false;
		addr = addr << 4 | (uint64_t)digit;
	}
	*out = (struct line){ .addr = addr, .name = p + 19 };
	return true;
}

static int add_block(struct sym_kernel_head *h, uint64_t addr, size_t off)
{
	if (UW_ARRAY_GROW(h->blocks, h->n_blocks, h->room_blocks, SIZE_MAX))
		return -ENOMEM;
	h->blocks[h->n_blocks++] = (struct sym_kernel_block){ .addr = addr, .off = off };
	return 0;
}

/*
 * Remove the last block, whose first line is the first line after the head, and so its end. A small
 * head is not used.
 */
static void close_head(struct sym_kernel_head *h)
{
	size_t end = h->n_blocks ? h->blocks[h->n_blocks - 1].off : 0;

	if (end < HEAD_MIN) {
		h->n_blocks = 0;
		return;
	}
	h->n_blocks--;
	h->size = end;
}

/*
 * Parse one line in each BLOCK bytes. The lines between are parsed when an address in the block is
 * looked up.
 */
int sym_kernel_head_in(struct sym_kernel_head *h, char *text, size_t size)
{
	size_t plain = uw_text_plain_size(text, size, '\n'), off = 0;
	struct line last = { 0 }, line;
	int err;

	while (off < plain) {
		const char *stop = memchr(text + off, '\n', plain - off);

		if (!stop || !parse_line(text + off, stop, &line) || line.addr < last.addr)
			break;
		err = add_block(h, line.addr, off);
		if (err)
			return err;
		last = line;
		off += BLOCK;
		stop = off < plain ? memchr(text + off, '\n', plain - off) : NULL;
		if (!stop)
			break;
		off = (size_t)(stop + 1 - text);
	}
	close_head(h);
	end_lines(text, h->size);
	return 0;
}

/*
 * Do the same in a file, by reading only the first line of each block. The other lines are checked
 * when their block is read.
 */
static int probe_head(struct sym_kernel_head *h, size_t size)
{
	char two[1200]; /* the rest of one line and the next line; names have up to 511 bytes */
	struct line last = { 0 }, line;
	size_t at = 0, n, off;
	int err = 0;

	for (; !err && at < size; at = off + BLOCK) {
		const char *begin = two, *stop;

		n = size - at < sizeof(two) ? size - at : sizeof(two);
		err = uw_read_at(h->fd, at, two, n);
		if (err)
			break;
		if (at) {
			begin = memchr(two, '\n', n);
			if (!begin)
				break;
			begin++;
		}
		stop = memchr(begin, '\n', n - (size_t)(begin - two));
		if (!stop || !parse_line(begin, stop, &line) || line.addr < last.addr ||
		    uw_text_plain_size(begin, (size_t)(stop - begin), '\n') !=
			    (size_t)(stop - begin))
			break;
		off = at + (size_t)(begin - two);
		err = add_block(h, line.addr, off);
		last = line;
	}
	close_head(h);
	return err;
}

/* Return where block i of the head ends. */
static size_t block_end(const struct sym_kernel_head *h, size_t i)
{
	return i + 1 < h->n_blocks ? h->blocks[i + 1].off : h->size;
}

/*
 * Return whether all lines of block i are valid, sorted, and not above the first line of the next
 * block.
 */
static bool is_sound(const struct sym_kernel_head *h, size_t i)
{
	uint64_t last = h->blocks[i].addr;
	size_t off = h->blocks[i].off, end = block_end(h, i);
	struct line line;

	if (!parse_line(h->text + off, h->text + end, &line) || line.addr != last)
		return false;
	for (; off < end; off += strlen(h->text + off) + 1) {
		if (!parse_line(h->text + off, h->text + end, &line) || line.addr < last)
			return false;
		last = line.addr;
	}
	return i + 1 == h->n_blocks || last <= h->blocks[i + 1].addr;
}

/* Make block i usable: read it if needed, and check it once. False: its lines are not valid. */
static bool need_block(const struct sym_kernel_head *h, size_t i)
{
	struct sym_kernel_block *block = &h->blocks[i];
	char *text = h->text + block->off;
	size_t size = block_end(h, i) - block->off;

	if (block->state != SYM_KERNEL_BLOCK_ABSENT)
		return block->state == SYM_KERNEL_BLOCK_THERE;
	block->state = SYM_KERNEL_BLOCK_BAD;
	if (h->fd >= 0) {
		if (uw_read_at(h->fd, block->off, text, size) || text[size - 1] != '\n' ||
		    uw_text_plain_size(text, size, '\n') != size)
			return false;
		end_lines(text, size);
	}
	if (is_sound(h, i))
		block->state = SYM_KERNEL_BLOCK_THERE;
	return block->state == SYM_KERNEL_BLOCK_THERE;
}

int sym_kernel_head_open(struct sym_kernel_head *h, int fd, size_t *size)
{
	struct stat st;
	int err;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)HEAD_MIN ||
	    (uint64_t)st.st_size > SYM_KERNEL_TEXT_MAX || lseek(fd, 0, SEEK_CUR))
		return -ENOENT;
	h->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (h->fd < 0)
		return -ENOENT;
	*size = (size_t)st.st_size;
	err = probe_head(h, *size);
	if (!err && !h->size)
		err = -ENOENT;
	if (!err && !(h->text = malloc(*size + 1)))
		err = -ENOMEM;
	if (!err)
		err = uw_read_at(h->fd, h->size, h->text + h->size, *size - h->size);
	if (err == -ENOENT) {
		(void)close(h->fd);
		h->fd = -1;
	}
	return err;
}

/* ---- lookup ------------------------------------------------------------------ */

bool sym_kernel_name_is_better(enum sym_kernel_bind bind, const char *name,
			       const struct sym_kernel_found *than)
{
	if (bind != than->bind)
		return bind < than->bind;
	return sym_prefer(name, strlen(name), than->name, strlen(than->name)) < 0;
}

/* Search the head from block number from on. */
static void scan_head(const struct sym_kernel_head *h, size_t from, uint64_t addr,
		      struct sym_kernel_found *out)
{
	struct line line;

	*out = (struct sym_kernel_found){ .next = UINT64_MAX };
	for (size_t i = from; i < h->n_blocks; i++) {
		size_t off = h->blocks[i].off, end = block_end(h, i);
		bool sound = need_block(h, i);

		for (; sound && off < end; off += strlen(h->text + off) + 1) {
			enum sym_kernel_bind bind;

			if (!parse_line(h->text + off, h->text + end, &line) ||
			    (out->any && line.addr < out->addr)) {
				sound = false;
				break;
			}
			if (line.addr > addr) {
				out->next = line.addr;
				out->next_module = "";
				return;
			}
			bind = sym_kernel_bind_of(line.name[-2]);
			if (!out->any || line.addr > out->addr ||
			    sym_kernel_name_is_better(bind, line.name, out)) {
				out->any = true;
				out->addr = line.addr;
				out->name = line.name;
				out->module = "";
				out->bind = bind;
			}
		}
		if (!sound) { /* the lines are not sorted after all */
			*out = (struct sym_kernel_found){ .next = UINT64_MAX };
			return;
		}
	}
}

void sym_kernel_head_find(const struct sym_kernel_head *h, uint64_t addr,
			  struct sym_kernel_found *out)
{
	/* the last block that begins at or before addr, + 1 */
	size_t above = UW_COUNT_WHILE(i, h->n_blocks, h->blocks[i].addr <= addr), from;

	if (!above) {
		*out = (struct sym_kernel_found){ .next = UINT64_MAX };
		if (h->n_blocks) {
			out->next = h->blocks[0].addr;
			out->next_module = "";
		}
		return;
	}
	from = above - 1;
	scan_head(h, from, addr, out);
	if (!out->any || out->addr != h->blocks[from].addr)
		return;
	/* Symbols with the same address as a block's first line may be in the blocks before it. */
	while (from && above - from <= GROUP_MAX && h->blocks[from].addr == out->addr)
		from--;
	if (from < above - 1)
		scan_head(h, from, addr, out);
}

/* Find the first code symbol of this name in block i. n is the length of the name with its NUL. */
static bool lookup_in_block(const struct sym_kernel_head *h, size_t i, const char *name, size_t n,
			    uint64_t *addr)
{
	const char *begin = h->text + h->blocks[i].off, *end = h->text + block_end(h, i);
	const char *at = begin;
	struct line line;

	while (n <= (size_t)(end - at) && (at = memmem(at, (size_t)(end - at), name, n))) {
		if (at - begin >= 19 && parse_line(at - 19, end, &line) &&
		    (at - begin == 19 || !at[-20]) &&
		    sym_kernel_bind_of(at[-2]) != SYM_KERNEL_NOT_CODE) {
			*addr = line.addr;
			return true;
		}
		at++;
	}
	return false;
}

bool sym_kernel_head_lookup(const struct sym_kernel_head *h, const char *name, uint64_t *addr)
{
	size_t n = strlen(name) + 1;

	for (size_t i = 0; i < h->n_blocks; i++)
		if (need_block(h, i) && lookup_in_block(h, i, name, n, addr))
			return true;
	return false;
}

void sym_kernel_head_fini(struct sym_kernel_head *h)
{
	if (h->fd >= 0)
		(void)close(h->fd);
	free(h->text);
	free(h->blocks);
}
