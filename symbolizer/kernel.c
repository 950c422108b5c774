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
	uint32_t size;
	uint32_t name;	 /* arena offsets */
	uint32_t module; /* 0: "" */
	uint8_t bind;	 /* 0 global, 1 weak, 2 local */
	bool code;
};

struct sym_kernel {
	struct symbol *symbols; /* by address, the best name for it last */
	size_t n_symbols, room;
	char *names;
	size_t names_size, names_room;
	uint32_t last_module; /* they come in runs */
};

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

static int add_name(struct sym_kernel *k, const char *name, size_t n, uint32_t *off)
{
	bool plain = true;
	char *clean;
	int err;

	for (size_t i = 0; i < n; i++)
		plain = plain && name[i] >= 0x20 && name[i] < 0x7f;
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
	return add_name(k, name, n, off);
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

/* `ADDRESS TYPE NAME` or `ADDRESS TYPE NAME\t[MODULE]` (kernel/kallsyms.c, s_show). */
static int read_line(struct sym_kernel *k, const char *line, size_t n)
{
	struct symbol symbol = { 0 };
	const char *end = line + n, *p = line, *tab;
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
	tab = memchr(p, '\t', (size_t)(end - p));
	if (tab) {
		err = add_module(k, tab + 1, (size_t)(end - tab - 1), &symbol.module);
		if (err)
			return err;
		k->last_module = symbol.module;
		end = tab;
	}
	if (p == end)
		return -EBADMSG;
	symbol.code = strchr("TtWw", type) && type;
	symbol.bind = type == 'T' ? 0 : type == 't' ? 2 : 1;
	/* Others only mark where code ends; their names are not kept. */
	err = symbol.code ? add_name(k, p, (size_t)(end - p), &symbol.name) : 0;
	return err ? err : add_symbol(k, &symbol);
}

static int read_lines(struct sym_kernel *k, int fd)
{
	size_t kept = 0; /* the beginning of a line whose end is still to come */
	char *chunk = malloc(CHUNK);
	int err = chunk ? 0 : -ENOMEM;

	while (!err) {
		ssize_t n = read(fd, chunk + kept, CHUNK - kept);
		char *line = chunk, *end;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			err = -errno;
		if (n <= 0) /* a last line without its end is a torn one: its name may be */
			break;
		end = chunk + kept + n;
		while (!err) {
			char *stop = memchr(line, '\n', (size_t)(end - line));

			if (!stop)
				break;
			err = read_line(k, line, (size_t)(stop - line));
			line = stop + 1;
		}
		kept = (size_t)(end - line);
		if (!err && kept > LINE_MAX_BYTES)
			err = -EBADMSG;
		memmove(chunk, line, kept);
	}
	free(chunk);
	return err;
}

/* ---- ordering ---------------------------------------------------------------- */

static int compare(const void *left, const void *right, void *ctx)
{
	const struct symbol *a = left, *b = right;
	const struct sym_kernel *k = ctx;
	const char *name_a = k->names + a->name, *name_b = k->names + b->name;

	if (a->addr != b->addr)
		return a->addr < b->addr ? -1 : 1;
	if (a->code != b->code)
		return a->code ? 1 : -1;
	if (a->bind != b->bind)
		return a->bind < b->bind ? 1 : -1;
	return -sym_prefer(name_a, strlen(name_a), name_b, strlen(name_b));
}

/* Up to the next address of any symbol, or to the end of a page where that is another module's. */
static void set_sizes(struct sym_kernel *k)
{
	size_t next = k->n_symbols; /* the first symbol at a higher address */

	for (size_t i = k->n_symbols; i-- > 0;) {
		struct symbol *s = &k->symbols[i];
		uint64_t end = (s->addr > UINT64_MAX - 2 * TAIL)
				       ? UINT64_MAX
				       : (s->addr + 2 * TAIL - 1) & ~(TAIL - 1);

		if (i + 1 < k->n_symbols && s->addr != s[1].addr)
			next = i + 1;
		if (next < k->n_symbols) {
			const struct symbol *n = &k->symbols[next];
			bool same = strcmp(k->names + s->module, k->names + n->module) == 0;

			if (same || n->addr < end)
				end = n->addr;
		}
		s->size = end - s->addr < UINT32_MAX ? (uint32_t)(end - s->addr) : UINT32_MAX;
	}
}

int sym_kernel_open(int fd, struct sym_kernel **out)
{
	struct sym_kernel *k = calloc(1, sizeof(*k));
	uint64_t any = 0;
	uint32_t empty;
	size_t kept = 0;
	int err;

	if (!k)
		return -ENOMEM;
	err = add_bytes(k, "", 0, &empty); /* offset 0: no module */
	if (!err)
		err = read_lines(k, fd);
	if (err)
		goto out;
	for (size_t i = 0; i < k->n_symbols; i++)
		any |= k->symbols[i].addr;
	if (!any) {
		err = k->n_symbols ? -EPERM : -EBADMSG;
		goto out;
	}
	qsort_r(k->symbols, k->n_symbols, sizeof(*k->symbols), compare, k);
	set_sizes(k);
	for (size_t i = 0; i < k->n_symbols; i++) {
		if (k->symbols[i].code)
			k->symbols[kept++] = k->symbols[i];
	}
	k->n_symbols = kept;
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

int sym_kernel_find(const struct sym_kernel *kernel, uint64_t addr, struct sym_symbol *out,
		    const char **module)
{
	size_t low = 0, high = kernel->n_symbols;
	const struct symbol *s;

	while (low < high) { /* the first symbol beyond addr */
		size_t middle = low + (high - low) / 2;

		if (kernel->symbols[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return -ENOENT;
	s = &kernel->symbols[low - 1];
	if (addr - s->addr >= s->size)
		return -ENOENT;
	*out = (struct sym_symbol){ .addr = s->addr,
				    .size = s->size,
				    .name = kernel->names + s->name };
	*module = kernel->names + s->module;
	return 0;
}

int sym_kernel_lookup(const struct sym_kernel *kernel, const char *name, uint64_t *addr)
{
	const struct symbol *found = NULL;

	for (size_t i = 0; i < kernel->n_symbols; i++) {
		const struct symbol *s = &kernel->symbols[i];

		if ((!found || (found->module && !s->module)) &&
		    strcmp(kernel->names + s->name, name) == 0)
			found = s;
	}
	if (!found)
		return -ENOENT;
	*addr = found->addr;
	return 0;
}
