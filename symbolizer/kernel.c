#include "symbolizer/prefer.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A kernel has some 200,000 symbols of at most 511 bytes (KSYM_NAME_LEN); modules add theirs. */
#define SYMBOLS_MAX    ((size_t)8 << 20)
#define ARENA_MAX      ((size_t)512 << 20)
#define LINE_MAX_BYTES ((size_t)4096)
#define CHUNK	       ((size_t)256 << 10)
/* The last symbol of a module or of the kernel reaches over a page, to the end of one; as in perf. */
#define TAIL ((uint64_t)4096)

struct symbol {
	uint64_t addr;
	uint32_t module; /* arena offset; 0: "" */
	uint32_t name : 30;
	uint32_t bind : 2;
};

enum bind { GLOBAL, WEAK, LOCAL, NOT_CODE }; /* the sooner, the better the name */

struct sym_kernel {
	struct symbol *symbols; /* by address, the best name for it last */
	size_t n_symbols, room;
	char *names;
	size_t names_size, names_room;
	uint32_t last_module; /* they come in runs */
	size_t n_sorted;      /* while reading: so many from the first on are in order */
};

_Static_assert(ARENA_MAX <= (size_t)1 << 30, "offsets fit their bits");

/* ---- reading ---------------------------------------------------------------- */

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

static int add_symbol(struct sym_kernel *k, const struct symbol *symbol)
{
	if (k->n_symbols == k->room) {
		size_t room = k->room ? k->room * 2 : (size_t)1 << 16;
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

/*
 * `ADDRESS TYPE NAME` or `ADDRESS TYPE NAME\t[MODULE]` (kernel/kallsyms.c, s_show).  tab: the
 * line's own, or NULL; plain: all bytes of it are known to be printable ASCII.
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
	if (type == 'T')
		symbol.bind = GLOBAL;
	else if (type == 't')
		symbol.bind = LOCAL;
	else
		symbol.bind = type == 'W' || type == 'w' ? WEAK : NOT_CODE;
	/* What is no code only marks where code ends; its name is not kept. */
	err = symbol.bind == NOT_CODE ? 0 : add_name(k, p, (size_t)(end - p), plain, &name);
	symbol.name = name & (((uint32_t)1 << 30) - 1);
	return err ? err : add_symbol(k, &symbol);
}

/* Are all bytes printable ASCII or ends of lines?  Eight at a time: bit 7 of a byte tells. */
static bool is_plain(const char *bytes, size_t n)
{
	const uint64_t ones = UINT64_MAX / 255, high = ones << 7;
	uint64_t odd = 0;

	for (; n >= 8; n -= 8, bytes += 8) {
		uint64_t v, newline;

		memcpy(&v, bytes, 8);
		odd |= v | (v + ones); /* 0x80 and above; 0x7f */
		/* Without carries: each byte below is cut to 7 bits first. */
		newline = (v ^ ones * '\n') & ~high;
		odd |= ~((v & ~high) + ones * (0x80 - 0x20)) & ((newline + ones * 0x7f) & high);
	}
	odd &= high;
	for (; n; n--, bytes++)
		odd |= (*bytes < 0x20 && *bytes != '\n') || *bytes > 0x7e;
	return !odd;
}

/* All whole lines of [line, end); *rest: what follows them. */
static int read_chunk(struct sym_kernel *k, const char *line, const char *end, const char **rest)
{
	bool plain = is_plain(line, (size_t)(end - line));
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

static int read_lines(struct sym_kernel *k, int fd)
{
	size_t kept = 0; /* the beginning of a line whose end is still to come */
	char *chunk = malloc(CHUNK);
	int err = chunk ? 0 : -ENOMEM;

	while (!err) {
		ssize_t n = read(fd, chunk + kept, CHUNK - kept);
		const char *rest;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			err = -errno;
		if (n <= 0) /* a last line without its end is a torn one: its name may be */
			break;
		kept += (size_t)n;
		err = read_chunk(k, chunk, chunk + kept, &rest);
		kept -= (size_t)(rest - chunk);
		if (!err && kept > LINE_MAX_BYTES)
			err = -EBADMSG;
		memmove(chunk, rest, kept);
	}
	free(chunk);
	return err;
}

/* ---- ordering ---------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
	const struct symbol *a = left, *b = right;

	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static bool is_better(const struct sym_kernel *k, const struct symbol *a, const struct symbol *b)
{
	const char *name_a = k->names + a->name, *name_b = k->names + b->name;

	if (a->bind != b->bind)
		return a->bind < b->bind;
	return sym_prefer(name_a, strlen(name_a), name_b, strlen(name_b)) < 0;
}

/* As the kernel writes them they are in order up to its modules'. */
static void order(struct sym_kernel *k)
{
	size_t run = k->n_sorted, low = 0, high = run;
	uint64_t lowest = UINT64_MAX;

	for (size_t i = run; i < k->n_symbols; i++)
		lowest = k->symbols[i].addr < lowest ? k->symbols[i].addr : lowest;
	while (low < high) { /* the first of the run that is not below all that follow it */
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
	int err;

	if (!k)
		return -ENOMEM;
	err = add_bytes(k, "", 0, &empty); /* offset 0: no module */
	if (!err)
		err = read_lines(k, fd);
	if (err)
		goto out;
	order(k);
	if (!k->n_symbols || !k->symbols[k->n_symbols - 1].addr) {
		err = k->n_symbols ? -EPERM : -EBADMSG;
		goto out;
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
	free(kernel->symbols);
	free(kernel->names);
	free(kernel);
}

/* ---- asking ------------------------------------------------------------------ */

/* The first symbol beyond addr. */
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

int sym_kernel_find(const struct sym_kernel *kernel, uint64_t addr, struct sym_symbol *out,
		    const char **module)
{
	size_t next = find_above(kernel, addr);
	const struct symbol *s = next ? &kernel->symbols[next - 1] : NULL;
	uint64_t end;

	if (!s || s->bind == NOT_CODE)
		return -ENOENT;
	/* Up to the next symbol, or to the end of a page where that is another module's. */
	end = s->addr > UINT64_MAX - 2 * TAIL ? UINT64_MAX : (s->addr + 2 * TAIL - 1) & ~(TAIL - 1);
	if (next < kernel->n_symbols) {
		const struct symbol *n = &kernel->symbols[next];
		bool same = strcmp(kernel->names + s->module, kernel->names + n->module) == 0;

		if (same || n->addr < end)
			end = n->addr;
	}
	if (addr >= end)
		return -ENOENT;
	*out = (struct sym_symbol){ .addr = s->addr,
				    .size = end - s->addr,
				    .name = kernel->names + s->name };
	*module = kernel->names + s->module;
	return 0;
}

int sym_kernel_lookup(const struct sym_kernel *kernel, const char *name, uint64_t *addr)
{
	const struct symbol *found = NULL;

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
