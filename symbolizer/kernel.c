/* symbolizer/kernel.c: reads /proc/kallsyms or a copy of it, and looks up kernel symbols. */
#include "base/growth.h"
#include "base/search.h"
#include "base/text.h"
#include "symbolizer/elf/prefer.h"
#include "symbolizer/kernel_head.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
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

struct sym_kernel {
	struct sym_kernel_head head; /* its text is all text of the list */
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
	int err = UW_ARRAY_RESERVE(k->names, k->names_size + n + 1, k->names_room, ARENA_MAX);

	if (err)
		return err;
	memcpy(k->names + k->names_size, name, n);
	k->names[k->names_size + n] = '\0';
	*off = (uint32_t)k->names_size;
	k->names_size += n + 1;
	return 0;
}

/* Append a name to the arena, sanitised if it is not plain ASCII. */
static int add_name(struct sym_kernel *k, const char *name, size_t n, bool plain, uint32_t *off)
{
	char *sanitized;
	int err;

	if (plain || uw_text_is_plain(name, n))
		return add_bytes(k, name, n, off);
	sanitized = sym_sanitize(name, n, 0);
	if (!sanitized)
		return -ENOMEM;
	err = add_bytes(k, sanitized, strlen(sanitized), off);
	free(sanitized);
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
	int err = UW_ARRAY_GROW(k->symbols, k->n_symbols, k->room, SYMBOLS_MAX);

	if (err)
		return err;
	if (k->n_sorted == k->n_symbols &&
	    (!k->n_symbols || k->symbols[k->n_symbols - 1].addr <= symbol->addr))
		k->n_sorted++;
	k->symbols[k->n_symbols++] = *symbol;
	return 0;
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

	for (; p != end && (digit = uw_hex_digit(*p)) >= 0; p++) {
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
	symbol.bind = sym_kernel_bind_of(type);
	/* Symbols of data only mark where code ends. Their names are not stored. */
	err = symbol.bind == SYM_KERNEL_NOT_CODE ? 0
						 : add_name(k, p, (size_t)(end - p), plain, &name);
	symbol.name = name & (((uint32_t)1 << 30) - 1);
	return err ? err : add_symbol(k, &symbol);
}

/* Parse all complete lines of [line, end). *rest is set to what follows them. */
static int read_chunk(struct sym_kernel *k, const char *line, const char *end, const char **rest)
{
	size_t size = (size_t)(end - line);
	bool plain = uw_text_plain_size(line, size, '\n') == size;
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

	if (!fstat(fd, &st) && st.st_size > 0 && (uint64_t)st.st_size < SYM_KERNEL_TEXT_MAX / 4)
		room = (size_t)st.st_size + 2; /* files in /proc have size 0 */
	text = malloc(room);
	err = text ? 0 : -ENOMEM;
	while (!err) {
		ssize_t got;

		if (n + 1 >= room) {
			char *grown = room < SYM_KERNEL_TEXT_MAX ? realloc(text, 4 * room) : NULL;

			if (!grown) {
				err = room < SYM_KERNEL_TEXT_MAX ? -ENOMEM : -E2BIG;
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

/* ---- ordering ---------------------------------------------------------------- */

UW_ORDER(compare, struct symbol, addr)

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
	size_t run = k->n_sorted, low;
	uint64_t lowest = UINT64_MAX;

	for (size_t i = run; i < k->n_symbols; i++)
		lowest = k->symbols[i].addr < lowest ? k->symbols[i].addr : lowest;
	/* the first of the sorted run that is not below all later ones */
	low = UW_COUNT_WHILE(i, run, k->symbols[i].addr < lowest);
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
	k->head.fd = -1;
	err = add_bytes(k, "", 0, &empty); /* offset 0: no module */
	if (!err)
		err = sym_kernel_head_open(&k->head, fd, &size);
	if (err == -ENOENT) {
		err = read_all(fd, &k->head.text, &size);
		if (!err)
			err = sym_kernel_head_in(&k->head, k->head.text, size);
	}
	if (!err)
		err = read_lines(k, k->head.text, k->head.size, size);
	if (err)
		goto out;
	order(k);
	if (!k->n_symbols || (!k->symbols[k->n_symbols - 1].addr &&
			      (!k->head.n_blocks || !k->head.blocks[k->head.n_blocks - 1].addr))) {
		err = k->n_symbols ? -EPERM : -EBADMSG;
		goto out;
	}
	if (!k->head.size) { /* names were copied */
		free(k->head.text);
		k->head.text = NULL;
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
	sym_kernel_head_fini(&kernel->head);
	free(kernel->symbols);
	free(kernel->names);
	free(kernel);
}

/* ---- lookup ------------------------------------------------------------------ */

/* Look up addr among the parsed symbols. */
static void find_in_symbols(const struct sym_kernel *k, uint64_t addr, struct sym_kernel_found *out)
{
	size_t next = UW_COUNT_WHILE(i, k->n_symbols, k->symbols[i].addr <= addr);

	*out = (struct sym_kernel_found){ .next = UINT64_MAX };
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
		out->bind = (enum sym_kernel_bind)s->bind;
	}
}

/*
 * Look in both parts of the list. The symbol that begins last contains addr, and the next one of
 * either part ends it.
 */
int sym_kernel_find(const struct sym_kernel *kernel, uint64_t addr, struct sym_symbol *out,
		    const char **module)
{
	struct sym_kernel_found head, rest, *best, *other;
	uint64_t end;

	sym_kernel_head_find(&kernel->head, addr, &head);
	find_in_symbols(kernel, addr, &rest);
	best = &rest;
	if (head.any &&
	    (!rest.any || head.addr > rest.addr ||
	     (head.addr == rest.addr && sym_kernel_name_is_better(head.bind, head.name, &rest))))
		best = &head;
	other = best == &head ? &rest : &head;
	if (other->next < best->next) {
		best->next = other->next;
		best->next_module = other->next_module;
	}
	if (!best->any || best->bind == SYM_KERNEL_NOT_CODE)
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

int sym_kernel_lookup(const struct sym_kernel *kernel, const char *name, uint64_t *addr)
{
	const struct symbol *found = NULL;

	if (sym_kernel_head_lookup(&kernel->head, name, addr))
		return 0;
	for (size_t i = 0; i < kernel->n_symbols && (!found || found->module); i++) {
		const struct symbol *s = &kernel->symbols[i];

		if (s->bind != SYM_KERNEL_NOT_CODE && (!found || !s->module) &&
		    strcmp(kernel->names + s->name, name) == 0)
			found = s;
	}
	if (!found)
		return -ENOENT;
	*addr = found->addr;
	return 0;
}
