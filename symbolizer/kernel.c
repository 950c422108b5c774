/* symbolizer/kernel.c: reads /proc/kallsyms or a copy of it, and looks up kernel symbols. */
#include "symbolizer/elf/image.h"
#include "symbolizer/elf/prefer.h"
#include "symbolizer/symbolizer.h"
#include "symbolizer/text/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Limits. A kernel has some 200,000 symbols of at most 511 bytes (KSYM_NAME_LEN); modules add
 * theirs.
 */
#define SYMBOLS_MAX    ((size_t)8 << 20)
#define ARENA_MAX      ((size_t)512 << 20)
#define TEXT_MAX       ((size_t)128 << 20)
#define LINE_MAX_BYTES ((size_t)4096)
#define CHUNK	       ((size_t)256 << 10)
/* Size of the last symbol of a module or the kernel, before rounding up to a page; as in perf. */
#define TAIL ((uint64_t)4096)

struct symbol {
	uint64_t addr;
	uint32_t module; /* arena offset; 0: "" */
	uint32_t name : 30;
	uint32_t bind : 2;
};

enum bind { GLOBAL, WEAK, LOCAL, NOT_CODE }; /* a smaller value is a better name */

/*
 * The kernel's own symbols come first, sorted by address: 200,000 lines, of which a profile needs
 * some hundred. This first part of the list, the head, stays text, with a table of the address at
 * which each block begins. Lines that do not have this form (modules, lists written by other
 * programs) are parsed one by one. If the list is a regular file, even the head's text is read
 * block by block during lookups: writing a new page of memory takes longer than everything else
 * that is done with its lines.
 */
#define BLOCK	  ((size_t)4096)
#define HEAD_MIN  ((size_t)64 << 10) /* a smaller head is not worth the two ways */
#define GROUP_MAX 8		     /* limit on blocks searched for one address */

struct block {
	uint64_t addr;
	size_t off; /* offset in the text of its first line */
	enum { ABSENT, THERE, BAD } state;
};

struct sym_kernel {
	char *text; /* NUL-terminated lines, in the head only of blocks that were read; owned */
	int fd;	    /* the file that blocks are read from; -1: all text is in memory */
	size_t head_size; /* size of the head's text; 0: no head */
	struct block *blocks;
	size_t n_blocks, room_blocks;
	struct symbol *symbols; /* all other lines by address; the best name of an address last */
	size_t n_symbols, room;
	char *names;
	size_t names_size, names_room;
	uint32_t last_module; /* cached: modules' lines come in runs */
	size_t n_sorted;      /* while reading: number of symbols at the start that are sorted */
};

_Static_assert(ARENA_MAX <= (size_t)1 << 30, "offsets fit their bits");

/* ---- reading ---------------------------------------------------------------- */

/* Append a name and a NUL to the arena. -E2BIG, -ENOMEM. */
static int add_bytes(struct sym_kernel *k, const char *name, size_t n, uint32_t *off)
{
	if (n >= ARENA_MAX - k->names_size)
		return -E2BIG;
	if (n + 1 > k->names_room - k->names_size) {
		size_t room = k->names_room + k->names_room / 2 + n + 4096;
		char *grown = realloc(k->names, room);

		if (!grown)
			return -ENOMEM;
		k->names = grown;
		k->names_room = room;
	}
	memcpy(k->names + k->names_size, name, n);
	k->names[k->names_size + n] = '\0';
	*off = (uint32_t)k->names_size;
	k->names_size += n + 1;
	return 0;
}

/* Append a name to the arena, sanitised if it is not plain ASCII. */
static int add_name(struct sym_kernel *k, const char *name, size_t n, bool plain, uint32_t *off)
{
	char *clean;
	int err;

	for (size_t i = 0; !plain && i < n && name[i] >= 0x20 && name[i] < 0x7f; i++)
		plain = i == n - 1;
	if (plain)
		return add_bytes(k, name, n, off);
	clean = sym_sanitize(name, n, 0);
	if (!clean)
		return -ENOMEM;
	err = add_bytes(k, clean, strlen(clean), off);
	free(clean);
	return err;
}

/* Return the arena offset of a module's name, "[NAME]". -EBADMSG: not such a name. */
static int add_module(struct sym_kernel *k, const char *name, size_t n, uint32_t *off)
{
	const char *last = k->names + k->last_module;

	if (k->last_module && strlen(last) == n && memcmp(last, name, n) == 0) {
		*off = k->last_module;
		return 0;
	}
	if (n < 3 || name[0] != '[' || name[n - 1] != ']')
		return -EBADMSG;
	return add_name(k, name, n, false, off);
}

/* Append a symbol. -E2BIG, -ENOMEM. */
static int add_symbol(struct sym_kernel *k, const struct symbol *symbol)
{
	if (k->n_symbols == k->room) {
		size_t room = k->room ? k->room * 2 : (size_t)1 << 12;
		struct symbol *grown;

		if (room > SYMBOLS_MAX)
			return -E2BIG;
		grown = realloc(k->symbols, room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		k->symbols = grown;
		k->room = room;
	}
	if (k->n_sorted == k->n_symbols &&
	    (!k->n_symbols || k->symbols[k->n_symbols - 1].addr <= symbol->addr))
		k->n_sorted++;
	k->symbols[k->n_symbols++] = *symbol;
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* Return the kind of a symbol by its letter in kallsyms (nm(1)). */
static enum bind bind_of(char type)
{
	if (type == 'T')
		return GLOBAL;
	if (type == 't')
		return LOCAL;
	return type == 'W' || type == 'w' ? WEAK : NOT_CODE;
}

/*
 * Parse a line `ADDRESS TYPE NAME` or `ADDRESS TYPE NAME\t[MODULE]` (kernel/kallsyms.c, s_show).
 * tab is the line's own tab, or NULL. plain: all bytes of the line are printable ASCII.
 */
static int read_line(struct sym_kernel *k, const char *line, const char *end, const char *tab,
		     bool plain)
{
	struct symbol symbol = { 0 };
	const char *p = line;
	uint32_t name = 0;
	int digit, err;
	char type;

	for (; p != end && (digit = hex_digit(*p)) >= 0; p++) {
		if (p - line == 16)
			return -EBADMSG;
		symbol.addr = symbol.addr << 4 | (uint64_t)digit;
	}
	if (p == line || end - p < 4 || p[0] != ' ' || p[2] != ' ')
		return -EBADMSG;
	type = p[1];
	p += 3;
	if (tab && tab >= p) {
		err = add_module(k, tab + 1, (size_t)(end - tab - 1), &symbol.module);
		if (err)
			return err;
		k->last_module = symbol.module;
		end = tab;
	}
	if (p == end)
		return -EBADMSG;
	symbol.bind = bind_of(type);
	/* Symbols of data only mark where code ends. Their names are not stored. */
	err = symbol.bind == NOT_CODE ? 0 : add_name(k, p, (size_t)(end - p), plain, &name);
	symbol.name = name & (((uint32_t)1 << 30) - 1);
	return err ? err : add_symbol(k, &symbol);
}

/* Parse all complete lines of [line, end). *rest is set to what follows them. */
static int read_chunk(struct sym_kernel *k, const char *line, const char *end, const char **rest)
{
	size_t size = (size_t)(end - line);
	bool plain = sym_plain_size(line, size, '\n') == size;
	const char *tab = plain ? NULL : memchr(line, '\t', (size_t)(end - line));
	const char *stop;
	int err = 0;

	while (!err && (stop = memchr(line, '\n', (size_t)(end - line)))) {
		while (tab && tab < line)
			tab = memchr(line, '\t', (size_t)(end - line));
		err = read_line(k, line, stop, tab && tab < stop ? tab : NULL, plain);
		line = stop + 1;
	}
	*rest = line;
	return err;
}

/*
 * Read all of fd into memory. The buffer has room for one byte more than *size. The caller frees
 * *out.
 */
static int read_all(int fd, char **out, size_t *size)
{
	size_t n = 0, room = CHUNK;
	struct stat st;
	char *text;
	int err;

	if (!fstat(fd, &st) && st.st_size > 0 && (uint64_t)st.st_size < TEXT_MAX / 4)
		room += (size_t)st.st_size; /* files in /proc have size 0 */
	text = malloc(room);
	err = text ? 0 : -ENOMEM;
	while (!err) {
		ssize_t got;

		if (n + 1 >= room) {
			char *grown = room < TEXT_MAX ? realloc(text, 4 * room) : NULL;

			if (!grown) {
				err = room < TEXT_MAX ? -ENOMEM : -E2BIG;
				break;
			}
			text = grown;
			room *= 4;
		}
		got = read(fd, text + n, room - n - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			err = -errno;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	if (err) {
		free(text);
		return err;
	}
	*out = text;
	*size = n;
	return 0;
}

/* Parse the lines in [off, size) of the text. */
static int read_lines(struct sym_kernel *k, const char *text, size_t off, size_t size)
{
	int err = 0;

	while (!err && off < size) {
		size_t n = size - off < CHUNK ? size - off : CHUNK;
		const char *rest;

		err = read_chunk(k, text + off, text + off + n, &rest);
		if (err || rest != text + off) {
			off = (size_t)(rest - text);
			continue;
		}
		/* A last line without a newline is torn, so its name may be, too: ignore it. */
		return n > LINE_MAX_BYTES ? -EBADMSG : 0;
	}
	return err;
}

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
		int digit = hex_digit(p[i]);

		if (digit < 0)
			return false;
		addr = addr << 4 | (uint64_t)digit;
	}
	*out = (struct line){ .addr = addr, .name = p + 19 };
	return true;
}

/*
 * Add a block. The room is for the number of blocks of at least BLOCK bytes in size bytes of text.
 */
static int add_block(struct sym_kernel *k, size_t size, uint64_t addr, size_t off)
{
	if (k->n_blocks == k->room_blocks) {
		size_t room = size / BLOCK + 2;
		struct block *all = realloc(k->blocks, room * sizeof(*all));

		if (!all)
			return -ENOMEM;
		k->blocks = all;
		k->room_blocks = room;
	}
	k->blocks[k->n_blocks++] = (struct block){ .addr = addr, .off = off };
	return 0;
}

/*
 * Remove the last block, whose first line is the first line after the head, and so its end. A small
 * head is not used.
 */
static void close_head(struct sym_kernel *k)
{
	size_t end = k->n_blocks ? k->blocks[k->n_blocks - 1].off : 0;

	if (end < HEAD_MIN) {
		k->n_blocks = 0;
		return;
	}
	k->n_blocks--;
	k->head_size = end;
}

/*
 * Find the head and its blocks: plain lines without modules, in ascending order of their blocks'
 * addresses.
 */
static int find_head(struct sym_kernel *k, char *text, size_t size)
{
	size_t plain = sym_plain_size(text, size, '\n'), off = 0;
	struct line last = { 0 }, line;
	int err;

	while (off < plain) {
		const char *stop = memchr(text + off, '\n', plain - off);

		if (!stop || !parse_line(text + off, stop, &line) || line.addr < last.addr)
			break;
		err = add_block(k, size, line.addr, off);
		if (err)
			return err;
		last = line;
		off += BLOCK;
		stop = off < plain ? memchr(text + off, '\n', plain - off) : NULL;
		if (!stop)
			break;
		off = (size_t)(stop + 1 - text);
	}
	close_head(k);
	end_lines(text, k->head_size);
	return 0;
}

/*
 * Do the same in a file, by reading only the first line of each block. The other lines are checked
 * when their block is read.
 */
static int probe_head(struct sym_kernel *k, size_t size)
{
	char two[1200]; /* the rest of one line and the next line; names have up to 511 bytes */
	struct line last = { 0 }, line;
	size_t at = 0, n, off;
	int err = 0;

	for (; !err && at < size; at = off + BLOCK) {
		const char *begin = two, *stop;

		n = size - at < sizeof(two) ? size - at : sizeof(two);
		err = sym_read_at(k->fd, at, two, n);
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
		    sym_plain_size(begin, (size_t)(stop - begin), '\n') != (size_t)(stop - begin))
			break;
		off = at + (size_t)(begin - two);
		err = add_block(k, size, line.addr, off);
		last = line;
	}
	close_head(k);
	return err;
}

/* Return where block i of the head ends. */
static size_t block_end(const struct sym_kernel *k, size_t i)
{
	return i + 1 < k->n_blocks ? k->blocks[i + 1].off : k->head_size;
}

/*
 * Return whether all lines of block i are valid, sorted, and not above the first line of the next
 * block.
 */
static bool is_sound(const struct sym_kernel *k, size_t i)
{
	uint64_t last = k->blocks[i].addr;
	size_t off = k->blocks[i].off, end = block_end(k, i);
	struct line line;

	if (!parse_line(k->text + off, k->text + end, &line) || line.addr != last)
		return false;
	for (; off < end; off += strlen(k->text + off) + 1) {
		if (!parse_line(k->text + off, k->text + end, &line) || line.addr < last)
			return false;
		last = line.addr;
	}
	return i + 1 == k->n_blocks || last <= k->blocks[i + 1].addr;
}

/* Make block i usable: read it if needed, and check it once. False: its lines are not valid. */
static bool need_block(const struct sym_kernel *k, size_t i)
{
	struct block *block = &k->blocks[i];
	char *text = k->text + block->off;
	size_t size = block_end(k, i) - block->off;

	if (block->state != ABSENT)
		return block->state == THERE;
	block->state = BAD;
	if (k->fd >= 0) {
		if (sym_read_at(k->fd, block->off, text, size) || text[size - 1] != '\n' ||
		    sym_plain_size(text, size, '\n') != size)
			return false;
		end_lines(text, size);
	}
	if (is_sound(k, i))
		block->state = THERE;
	return block->state == THERE;
}

/*
 * Open a file whose head stays in the file. The text has room for the whole file, and holds the
 * part after the head. -ENOENT: the file is not suitable.
 */
static int read_tail(struct sym_kernel *k, int fd, size_t *size)
{
	struct stat st;
	int err;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)HEAD_MIN ||
	    (uint64_t)st.st_size > TEXT_MAX || lseek(fd, 0, SEEK_CUR))
		return -ENOENT;
	k->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (k->fd < 0)
		return -ENOENT;
	*size = (size_t)st.st_size;
	err = probe_head(k, *size);
	if (!err && !k->head_size)
		err = -ENOENT;
	if (!err && !(k->text = malloc(*size + 1)))
		err = -ENOMEM;
	if (!err)
		err = sym_read_at(k->fd, k->head_size, k->text + k->head_size,
				  *size - k->head_size);
	if (err == -ENOENT) {
		(void)close(k->fd);
		k->fd = -1;
	}
	return err;
}

/* ---- ordering ---------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
	const struct symbol *a = left, *b = right;

	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Return whether a's name is better than b's. */
static bool is_better(const struct sym_kernel *k, const struct symbol *a, const struct symbol *b)
{
	const char *name_a = k->names + a->name, *name_b = k->names + b->name;

	if (a->bind != b->bind)
		return a->bind < b->bind;
	return sym_prefer(name_a, strlen(name_a), name_b, strlen(name_b)) < 0;
}

/* Sort the symbols. The kernel writes them sorted, except for those of modules. */
static void order(struct sym_kernel *k)
{
	size_t run = k->n_sorted, low = 0, high = run;
	uint64_t lowest = UINT64_MAX;

	for (size_t i = run; i < k->n_symbols; i++)
		lowest = k->symbols[i].addr < lowest ? k->symbols[i].addr : lowest;
	while (low < high) { /* the first of the sorted run that is not below all later ones */
		size_t middle = low + (high - low) / 2;

		if (k->symbols[middle].addr < lowest)
			low = middle + 1;
		else
			high = middle;
	}
	if (run < k->n_symbols)
		qsort(k->symbols + low, k->n_symbols - low, sizeof(*k->symbols), compare);
	for (size_t i = 1; i < k->n_symbols; i++) {
		struct symbol *last = &k->symbols[i - 1], *s = &k->symbols[i];

		if (last->addr == s->addr && is_better(k, last, s)) {
			struct symbol best = *last;

			*last = *s;
			*s = best;
		}
	}
}

int sym_kernel_open(int fd, struct sym_kernel **out)
{
	struct sym_kernel *k = calloc(1, sizeof(*k));
	uint32_t empty;
	size_t size;
	int err;

	if (!k)
		return -ENOMEM;
	k->fd = -1;
	err = add_bytes(k, "", 0, &empty); /* offset 0: no module */
	if (!err)
		err = read_tail(k, fd, &size);
	if (err == -ENOENT) {
		err = read_all(fd, &k->text, &size);
		if (!err)
			err = find_head(k, k->text, size);
	}
	if (!err)
		err = read_lines(k, k->text, k->head_size, size);
	if (err)
		goto out;
	order(k);
	if (!k->n_symbols || (!k->symbols[k->n_symbols - 1].addr &&
			      (!k->n_blocks || !k->blocks[k->n_blocks - 1].addr))) {
		err = k->n_symbols ? -EPERM : -EBADMSG;
		goto out;
	}
	if (!k->head_size) { /* names were copied */
		free(k->text);
		k->text = NULL;
	}
	*out = k;
	k = NULL;
out:
	sym_kernel_free(k);
	return err;
}

void sym_kernel_free(struct sym_kernel *kernel)
{
	if (!kernel)
		return;
	if (kernel->fd >= 0)
		(void)close(kernel->fd);
	free(kernel->text);
	free(kernel->blocks);
	free(kernel->symbols);
	free(kernel->names);
	free(kernel);
}

/* ---- lookup ------------------------------------------------------------------ */

/* Return the index of the first symbol above addr. */
static size_t find_above(const struct sym_kernel *k, uint64_t addr)
{
	size_t low = 0, high = k->n_symbols;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (k->symbols[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The best symbol for an address so far, and where the next symbol starts. */
struct found {
	uint64_t addr, next; /* next: UINT64_MAX: there is none */
	const char *name, *module, *next_module;
	enum bind bind;
	bool any;
};

/* Look up addr among the parsed symbols. */
static void find_in_symbols(const struct sym_kernel *k, uint64_t addr, struct found *out)
{
	size_t next = find_above(k, addr);

	*out = (struct found){ .next = UINT64_MAX };
	if (next < k->n_symbols) {
		out->next = k->symbols[next].addr;
		out->next_module = k->names + k->symbols[next].module;
	}
	if (next) {
		const struct symbol *s = &k->symbols[next - 1];

		out->any = true;
		out->addr = s->addr;
		out->name = k->names + s->name;
		out->module = k->names + s->module;
		out->bind = (enum bind)s->bind;
	}
}

static bool name_is_better(enum bind bind, const char *name, const struct found *than)
{
	if (bind != than->bind)
		return bind < than->bind;
	return sym_prefer(name, strlen(name), than->name, strlen(than->name)) < 0;
}

/* Return the index + 1 of the last block that begins at or before addr; 0: none. */
static size_t find_block(const struct sym_kernel *k, uint64_t addr)
{
	size_t low = 0, high = k->n_blocks;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (k->blocks[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Search the head from block number from on. */
static void scan_head(const struct sym_kernel *k, size_t from, uint64_t addr, struct found *out)
{
	struct line line;

	*out = (struct found){ .next = UINT64_MAX };
	for (size_t i = from; i < k->n_blocks; i++) {
		size_t off = k->blocks[i].off, end = block_end(k, i);
		bool sound = need_block(k, i);

		for (; sound && off < end; off += strlen(k->text + off) + 1) {
			enum bind bind;

			if (!parse_line(k->text + off, k->text + end, &line) ||
			    (out->any && line.addr < out->addr)) {
				sound = false;
				break;
			}
			if (line.addr > addr) {
				out->next = line.addr;
				out->next_module = "";
				return;
			}
			bind = bind_of(line.name[-2]);
			if (!out->any || line.addr > out->addr ||
			    name_is_better(bind, line.name, out)) {
				out->any = true;
				out->addr = line.addr;
				out->name = line.name;
				out->module = "";
				out->bind = bind;
			}
		}
		if (!sound) { /* the lines are not sorted after all */
			*out = (struct found){ .next = UINT64_MAX };
			return;
		}
	}
}

/* Look up addr in the head. */
static void find_in_head(const struct sym_kernel *k, uint64_t addr, struct found *out)
{
	size_t above = find_block(k, addr), from;

	if (!above) {
		*out = (struct found){ .next = UINT64_MAX };
		if (k->n_blocks) {
			out->next = k->blocks[0].addr;
			out->next_module = "";
		}
		return;
	}
	from = above - 1;
	scan_head(k, from, addr, out);
	if (!out->any || out->addr != k->blocks[from].addr)
		return;
	/* Symbols with the same address as a block's first line may be in the blocks before it. */
	while (from && above - from <= GROUP_MAX && k->blocks[from].addr == out->addr)
		from--;
	if (from < above - 1)
		scan_head(k, from, addr, out);
}

int sym_kernel_find(const struct sym_kernel *kernel, uint64_t addr, struct sym_symbol *out,
		    const char **module)
{
	struct found head, rest, *best, *other;
	uint64_t end;

	find_in_head(kernel, addr, &head);
	find_in_symbols(kernel, addr, &rest);
	best = &rest;
	if (head.any && (!rest.any || head.addr > rest.addr ||
			 (head.addr == rest.addr && name_is_better(head.bind, head.name, &rest))))
		best = &head;
	other = best == &head ? &rest : &head;
	if (other->next < best->next) {
		best->next = other->next;
		best->next_module = other->next_module;
	}
	if (!best->any || best->bind == NOT_CODE)
		return -ENOENT;
	/*
	 * The symbol extends to the next one or, if that belongs to another module, at most over a
	 * page, rounded up to a page's end.
	 */
	end = best->addr > UINT64_MAX - 2 * TAIL ? UINT64_MAX
						 : (best->addr + 2 * TAIL - 1) & ~(TAIL - 1);
	if (best->next_module && (strcmp(best->module, best->next_module) == 0 || best->next < end))
		end = best->next;
	if (addr >= end)
		return -ENOENT;
	*out = (struct sym_symbol){ .addr = best->addr,
				    .size = end - best->addr,
				    .name = best->name };
	*module = best->module;
	return 0;
}

/* Find the first code symbol of this name in block i. n is the length of the name with its NUL. */
static bool lookup_in_block(const struct sym_kernel *k, size_t i, const char *name, size_t n,
			    uint64_t *addr)
{
	const char *begin = k->text + k->blocks[i].off, *end = k->text + block_end(k, i);
	const char *at = begin;
	struct line line;

	while (n <= (size_t)(end - at) && (at = memmem(at, (size_t)(end - at), name, n))) {
		if (at - begin >= 19 && parse_line(at - 19, end, &line) &&
		    (at - begin == 19 || !at[-20]) && bind_of(at[-2]) != NOT_CODE) {
			*addr = line.addr;
			return true;
		}
		at++;
	}
	return false;
}

/* Find a code symbol by name in the head. */
static bool lookup_in_head(const struct sym_kernel *k, const char *name, uint64_t *addr)
{
	size_t n = strlen(name) + 1;

	for (size_t i = 0; i < k->n_blocks; i++)
		if (need_block(k, i) && lookup_in_block(k, i, name, n, addr))
			return true;
	return false;
}

int sym_kernel_lookup(const struct sym_kernel *kernel, const char *name, uint64_t *addr)
{
	const struct symbol *found = NULL;

	if (lookup_in_head(kernel, name, addr))
		return 0;
	for (size_t i = 0; i < kernel->n_symbols && (!found || found->module); i++) {
		const struct symbol *s = &kernel->symbols[i];

		if (s->bind != NOT_CODE && (!found || !s->module) &&
		    strcmp(kernel->names + s->name, name) == 0)
			found = s;
	}
	if (!found)
		return -ENOENT;
	*addr = found->addr;
	return 0;
}
