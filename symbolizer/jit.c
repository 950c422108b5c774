/* symbolizer/jit.c: reads names of generated code from perf maps and jitdump files. */
#include "symbolizer/symbolizer.h"

#include "base/bytes.h"
#include "base/growth.h"
#include "base/search.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Limits. A process that generates code for days has some hundred thousand functions. */
#define TEXT_MAX    ((uint64_t)128 << 20)
#define DUMP_MAX    ((uint64_t)8 << 30)
#define ENTRIES_MAX ((size_t)2 << 20)
#define NAMES_MAX   ((size_t)96 << 20)
#define NAME_ROOM   ((size_t)4096)

/* Linux, tools/perf/Documentation/jitdump-specification.txt */
#define DUMP_MAGIC   0x4a695444u /* "JiTD" */
#define DUMP_HEAD    40
#define RECORD_HEAD  16
#define RECORDS_MAX  ((uint64_t)4 << 20)
#define SEARCHED_MAX ((uint64_t)64 << 20) /* entries searched for code that moved */
#define PIECE_MAX    8192 /* bytes read at once: records are short, and follow each other */
enum { CODE_LOAD = 0, CODE_MOVE = 1, CODE_UNWINDING = 4 };

struct entry {
	uint64_t addr, end; /* end > addr */
	uint32_t name;	    /* offset in names */
	uint32_t number;    /* position in the file; a later entry replaces an earlier one */
	struct frames {
		uint64_t off; /* offset in the file */
		uint32_t size;
	} frames;
};

struct sym_jit {
	struct entry *entries; /* ascending, without overlaps */
	size_t n, room;
	char *names;
	size_t names_size, names_room;
	uint64_t n_searched;
};

/* Append a sanitised name. -E2BIG, -ENOMEM. */
static int add_name(struct sym_jit *j, const char *text, size_t n, uint32_t *out)
{
	char *sanitized = NULL;
	int err;

	n = strnlen(text, n);
	if (n >= NAME_ROOM || !uw_text_is_plain(text, n)) {
		sanitized = sym_sanitize(text, n, NAME_ROOM);
		if (!sanitized)
			return -ENOMEM;
		text = sanitized;
		n = strlen(sanitized);
	}
	err = UW_ARRAY_RESERVE(j->names, j->names_size + n + 1, j->names_room, NAMES_MAX);
	if (err) {
		free(sanitized);
		return err;
	}
	memcpy(j->names + j->names_size, text, n);
	j->names[j->names_size + n] = '\0';
	*out = (uint32_t)j->names_size;
	j->names_size += n + 1;
	free(sanitized);
	return 0;
}

/* Append an entry. An impossible range is ignored. -E2BIG, -ENOMEM. */
static int add(struct sym_jit *j, uint64_t addr, uint64_t size, uint32_t name, struct frames frames)
{
	int err;

	if (!size || size > UINT64_MAX - addr)
		return 0;
	err = UW_ARRAY_GROW(j->entries, j->n, j->room, ENTRIES_MAX);
	if (err)
		return err;
	j->entries[j->n] = (struct entry){ .addr = addr,
					   .end = addr + size,
					   .name = name,
					   .number = (uint32_t)j->n,
					   .frames = frames };
	j->n++;
	return 0;
}

/* ---- perf maps: "START SIZE name", in hexadecimal, a line each ------------------------------- */

/* Read a hexadecimal number and the space after it. */
static bool take_hex(const char **p, const char *end, uint64_t *out)
{
	const char *start = *p;
	uint64_t value = 0;

	if (end - *p > 2 && (*p)[0] == '0' && (*p)[1] == 'x')
		start = *p += 2;
	for (; *p < end && *p - start < 16; (*p)++) {
		char c = **p;
		int digit = c >= '0' && c <= '9'   ? c - '0'
			    : c >= 'a' && c <= 'f' ? c - 'a' + 10
			    : c >= 'A' && c <= 'F' ? c - 'A' + 10
						   : -1;

		if (digit < 0)
			break;
		value = value << 4 | (uint64_t)digit;
	}
	*out = value;
	if (*p == start || *p == end || **p != ' ')
		return false;
	(*p)++;
	return true;
}

/* Read all complete lines of a perf map. Lines that are not valid are ignored. */
static int read_map(struct sym_jit *j, int fd, uint64_t size)
{
	char *text = malloc(size + 1), *line = text, *end;
	uint64_t have = 0;
	int err = text ? 0 : -ENOMEM;

	while (!err && have < size) {
		ssize_t n = pread(fd, text + have, size - have, (off_t)have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break; /* the file became shorter: use what was read */
		have += (uint64_t)n;
	}
	for (end = text + have; !err && line < end;) {
		char *next = memchr(line, '\n', (size_t)(end - line));
		const char *p = line;
		uint64_t addr, bytes;
		uint32_t name;

		if (!next)
			break; /* this line is still being written */
		if (take_hex(&p, next, &addr) && take_hex(&p, next, &bytes) && p < next) {
			err = add_name(j, p, (size_t)(next - p), &name);
			if (!err)
				err = add(j, addr, bytes, name, (struct frames){ .size = 0 });
		}
		line = next + 1;
	}
	free(text);
	return err == -E2BIG ? 0 : err; /* keep what fits */
}

/* ---- jitdump --------------------------------------------------------------------------------- */

/* The piece of a file that was read last. */
struct dump {
	int fd;
	uint64_t off; /* of the piece in the file */
	size_t n;
	uint8_t piece[PIECE_MAX];
};

_Static_assert(PIECE_MAX >= 40 + NAME_ROOM, "the head of a load record fits");

/* Copy at most PIECE_MAX bytes of the file. */
static bool read_at(struct dump *d, uint64_t off, void *out, size_t size)
{
	if (off < d->off || off - d->off > d->n || d->n - (off - d->off) < size) {
		ssize_t n;

		do
			n = pread(d->fd, d->piece, sizeof(d->piece), (off_t)off);
		while (n < 0 && errno == EINTR);
		d->off = off;
		d->n = n < 0 ? 0 : (size_t)n;
		if (d->n < size)
			return false;
	}
	memcpy(out, d->piece + (off - d->off), size);
	return true;
}

/*
 * Find the .eh_frame in an unwinding record, which precedes the code that it describes. An
 * .eh_frame_hdr follows the .eh_frame.
 */
static struct frames read_unwinding(struct dump *d, uint64_t off, uint32_t size)
{
	uint8_t head[24];
	struct uw_bytes c = uw_bytes_of(head, sizeof(head));
	uint64_t all, header;

	if (size < sizeof(head) || !read_at(d, off, head, sizeof(head)))
		return (struct frames){ .size = 0 };
	all = uw_bytes_u64(&c);
	header = uw_bytes_u64(&c);
	if (all > size - sizeof(head) || header >= all)
		return (struct frames){ .size = 0 };
	return (struct frames){ .off = off + sizeof(head), .size = (uint32_t)(all - header) };
}

/* Add the function of a load record. frames is from the unwinding record before it. */
static int read_load(struct sym_jit *j, struct dump *d, uint64_t off, uint32_t size,
		     struct frames frames)
{
	uint8_t head[40 + NAME_ROOM];
	uint32_t n = size < sizeof(head) ? size : (uint32_t)sizeof(head), name;
	struct uw_bytes c = uw_bytes_of(head, n);
	uint64_t addr, bytes;
	int err;

	if (n <= 40 || !read_at(d, off, head, n))
		return 0;
	uw_bytes_skip(&c, 16); /* pid, tid, vma */
	addr = uw_bytes_u64(&c);
	bytes = uw_bytes_u64(&c);
	(void)uw_bytes_u64(&c); /* index */
	err = add_name(j, (const char *)c.pos, uw_bytes_left(&c), &name);
	return err ? err : add(j, addr, bytes, name, frames);
}

/*
 * Add a function that moved. It has the name and the unwind information of the function at its old
 * address.
 */
static int read_move(struct sym_jit *j, struct dump *d, uint64_t off, uint32_t size)
{
	uint8_t head[48];
	struct uw_bytes c = uw_bytes_of(head, sizeof(head));
	uint64_t from, to, bytes;

	if (size < sizeof(head) || !read_at(d, off, head, sizeof(head)))
		return 0;
	uw_bytes_skip(&c, 16);
	from = uw_bytes_u64(&c);
	to = uw_bytes_u64(&c);
	bytes = uw_bytes_u64(&c);
	for (size_t i = j->n; i-- > 0 && j->n - i < 65536 && j->n_searched < SEARCHED_MAX;
	     j->n_searched++)
		if (j->entries[i].addr == from)
			return add(j, to, bytes, j->entries[i].name, j->entries[i].frames);
	return 0;
}

/* Read all records of a jitdump file, up to one that is incomplete. */
static int read_dump(struct sym_jit *j, int fd, uint64_t size)
{
	struct dump d = { .fd = fd };
	struct frames frames = { .size = 0 };
	uint32_t head[3];
	uint64_t off, n = 0;
	int err = 0;

	if (!read_at(&d, 0, head, sizeof(head)) || head[1] != 1 || head[2] < DUMP_HEAD)
		return -EBADMSG;
	for (off = head[2]; !err && off < size && size - off >= RECORD_HEAD && n < RECORDS_MAX;
	     n++) {
		uint32_t record[2];

		if (!read_at(&d, off, record, sizeof(record)) || record[1] < RECORD_HEAD ||
		    record[1] > size - off)
			break; /* still being written, or damaged: use what was read */
		if (record[0] == CODE_UNWINDING)
			frames = read_unwinding(&d, off + RECORD_HEAD, record[1] - RECORD_HEAD);
		else if (record[0] == CODE_LOAD)
			err = read_load(j, &d, off + RECORD_HEAD, record[1] - RECORD_HEAD, frames);
		else if (record[0] == CODE_MOVE)
			err = read_move(j, &d, off + RECORD_HEAD, record[1] - RECORD_HEAD);
		if (record[0] == CODE_LOAD || record[0] == CODE_MOVE)
			frames.size = 0;
		off += record[1];
	}
	return err == -E2BIG ? 0 : err;
}

/* ---- both ------------------------------------------------------------------------------------ */

UW_ORDER_2(by_addr, struct entry, addr, number)

/*
 * Sort the entries and remove overlaps. Memory is reused, so of two entries that overlap the later
 * one wins.
 */
static void choose(struct sym_jit *j)
{
	struct entry *e = j->entries;
	size_t left = 0;

	if (j->n)
		qsort(e, j->n, sizeof(*e), by_addr);
	for (size_t i = 0; i < j->n; i++) {
		struct entry now = e[i];

		while (left && e[left - 1].end > now.addr && e[left - 1].number < now.number) {
			e[left - 1].end = now.addr;
			if (e[left - 1].addr != now.addr)
				break;
			left--;
		}
		if (left && e[left - 1].end > now.addr) {
			now.addr = e[left - 1].end;
			now.frames.size = 0; /* they describe code that begins at another address */
		}
		if (now.addr < now.end)
			e[left++] = now;
	}
	j->n = left;
}

int sym_jit_open(int fd, struct sym_jit **out)
{
	struct sym_jit *j;
	uint32_t magic = 0;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOTSUP;
	j = calloc(1, sizeof(*j));
	if (!j)
		return -ENOMEM;
	if (pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) && magic == DUMP_MAGIC)
		err = (uint64_t)st.st_size > DUMP_MAX ? -E2BIG
						      : read_dump(j, fd, (uint64_t)st.st_size);
	else
		err = (uint64_t)st.st_size > TEXT_MAX ? -E2BIG
						      : read_map(j, fd, (uint64_t)st.st_size);
	if (err) {
		sym_jit_free(j);
		return err;
	}
	choose(j);
	*out = j;
	return 0;
}

void sym_jit_free(struct sym_jit *j)
{
	if (!j)
		return;
	free(j->entries);
	free(j->names);
	free(j);
}

int sym_jit_at(const struct sym_jit *j, size_t i, struct sym_symbol *out)
{
	if (i >= j->n)
		return -ENOENT;
	*out = (struct sym_symbol){ .addr = j->entries[i].addr,
				    .size = j->entries[i].end - j->entries[i].addr,
				    .name = j->names + j->entries[i].name };
	return 0;
}

void sym_jit_frames(const struct sym_jit *j, size_t i, uint64_t *off, uint32_t *size)
{
	*off = i < j->n ? j->entries[i].frames.off : 0;
	*size = i < j->n ? j->entries[i].frames.size : 0;
}

int sym_jit_find(const struct sym_jit *j, uint64_t addr, struct sym_symbol *out)
{
	size_t low = UW_COUNT_WHILE(i, j->n, j->entries[i].addr <= addr);

	if (!low || addr >= j->entries[low - 1].end)
		return -ENOENT;
	return sym_jit_at(j, low - 1, out);
}
