/* agent/process/hotspot_methods.c: reads names and line numbers of HotSpot's methods. */
#include "agent/process/hotspot_methods.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/hash.h"

#include <stdlib.h>
#include <string.h>

/* What is cached; when there is more, all is read again. */
#define METHODS_MAX 16384u
#define TEXTS_MAX   (4u << 20)
#define LINES_MAX   (1u << 20)

#define METHOD_LINES_MAX 8192 /* of one method */
#define CHECK_NS	 UINT64_C(1000000000)
#define CHECK_MAX_NS	 (60 * CHECK_NS)

enum { HAS_LINES = 1 }; /* flag of a ConstMethod: line numbers follow its bytecode */

void hotspot_methods_fini(struct hotspot_methods *ms)
{
	free(ms->all);
	uw_hash_fini(&ms->by_address);
	free(ms->texts);
	free(ms->lines);
	*ms = (struct hotspot_methods){ .n = 0 };
}

size_t hotspot_methods_memory(const struct hotspot_methods *m)
{
	return m->room * sizeof(*m->all) + uw_hash_memory(&m->by_address) + m->room_texts +
	       m->room_lines * sizeof(*m->lines);
}

static void forget(struct hotspot_methods *ms)
{
	uw_hash_clear(&ms->by_address);
	ms->n = ms->n_texts = ms->n_lines = 0;
}

/* What leads to the names of a method. */
struct links {
	uint64_t pool, holder;
};

/* Read a Symbol's text. Return its length without terminator; 0 on failure. */
static size_t read_symbol(struct hotspot_memory *m, const struct hotspot_layout *l, uint64_t at,
			  char out[HOTSPOT_SYMBOL_MAX])
{
	uint64_t size;

	if (!hotspot_get_number(m, at + l->at[HOTSPOT_SYMBOL_LENGTH], 2, &size))
		return 0;
	if (size > HOTSPOT_SYMBOL_MAX)
		size = HOTSPOT_SYMBOL_MAX;
	return hotspot_get(m, at + l->at[HOTSPOT_SYMBOL_BODY], out, size) ? size : 0;
}

/* Read the Symbol that entry index of a ConstantPool leads to; likewise. */
static size_t read_constant(struct hotspot_memory *m, const struct hotspot_layout *l, uint64_t pool,
			    uint64_t index, char out[HOTSPOT_SYMBOL_MAX])
{
	uint64_t symbol;

	return hotspot_get_number(m, pool + l->pool_size + 8 * index, 8, &symbol)
		       ? read_symbol(m, l, symbol, out)
		       : 0;
}

/*
 * Read the names of the class, with its package as the virtual machine writes it ("java/util/List"), and of
 * the method. Return the length of the class's name; both are cut, not terminated. 0 on failure.
 */
static size_t read_names(struct hotspot_memory *m, const struct hotspot_layout *l,
			 uint64_t const_method, uint64_t *pool, char klass[HOTSPOT_SYMBOL_MAX],
			 char method[HOTSPOT_SYMBOL_MAX], size_t *n_method)
{
	uint64_t index, holder, symbol;
	size_t n;

	if (!hotspot_get_number(m, const_method + l->at[HOTSPOT_CONSTANTS], 8, pool) ||
	    !hotspot_get_number(m, const_method + l->at[HOTSPOT_NAME_INDEX], 2, &index) ||
	    !hotspot_get_number(m, *pool + l->at[HOTSPOT_HOLDER], 8, &holder) ||
	    !hotspot_get_number(m, holder + l->at[HOTSPOT_KLASS_NAME], 8, &symbol))
		return 0;
	n = read_symbol(m, l, symbol, klass);
	*n_method = read_constant(m, l, *pool, index, method);
	return *n_method ? n : 0;
}

/* Write the name as Java does: java.util.List.add. */
static void put_name(char *out, const char *klass, size_t n, const char *method, size_t n_method)
{
	for (size_t i = 0; i < n; i++)
		out[i] = klass[i] == '/' ? '.' : klass[i];
	out[n] = '.';
	memcpy(out + n + 1, method, n_method);
	out[n + 1 + n_method] = 0;
}

bool hotspot_method_name(struct hotspot_memory *m, const struct hotspot_layout *l, uint64_t method,
			 char out[HOTSPOT_NAME_MAX])
{
	char klass[HOTSPOT_SYMBOL_MAX], name[HOTSPOT_SYMBOL_MAX];
	uint64_t const_method, pool;
	size_t n, n_name;

	if (!hotspot_get_number(m, method + l->at[HOTSPOT_CONST_METHOD], 8, &const_method))
		return false;
	n = read_names(m, l, const_method, &pool, klass, name, &n_name);
	if (n)
		put_name(out, klass, n, name, n_name);
	return n != 0;
}

/* Append a text and return its offset; 0: no room. */
static uint32_t keep(struct hotspot_methods *ms, const char *text, size_t n)
{
	uint32_t at;

	if (!ms->n_texts)
		ms->n_texts = 1;
	if (UW_ARRAY_RESERVE(ms->texts, ms->n_texts + n + 1, ms->room_texts, TEXTS_MAX))
		return 0;
	at = (uint32_t)ms->n_texts;
	memcpy(ms->texts + at, text, n);
	ms->texts[at + n] = 0;
	ms->n_texts += n + 1;
	return at;
}

/*
 * Read the file: the directory that the package's name leads to, and the file's name in the class. So it
 * is found below a directory of sources. klass: n bytes.
 */
static uint32_t keep_file(struct hotspot_methods *ms, struct hotspot_memory *m,
			  const struct hotspot_layout *l, uint64_t pool, const char *klass,
			  size_t n)
{
	char path[2 * HOTSPOT_SYMBOL_MAX];
	uint64_t index;
	size_t n_file;

	while (n && klass[n - 1] != '/')
		n--;
	memcpy(path, klass, n);
	if (!l->has[HOTSPOT_SOURCE_FILE] ||
	    !hotspot_get_number(m, pool + l->at[HOTSPOT_SOURCE_FILE], 2, &index) || !index)
		return 0;
	n_file = read_constant(m, l, pool, index, path + n);
	return n_file ? keep(ms, path, n + n_file) : 0;
}

/* Read a number with its sign in the lowest bit. */
static bool get_signed(struct hotspot_memory *m, uint64_t *at, uint8_t least, uint32_t *out)
{
	uint32_t packed;

	if (!hotspot_get_packed(m, at, least, &packed))
		return false;
	*out = (packed >> 1) ^ (0 - (packed & 1));
	return true;
}

/*
 * Read the line numbers that follow the bytecode (code/compressedStream.hpp, CompressedLineNumberReadStream):
 * for each entry a byte with the steps of bytecode and line in 5 and 3 bits, or 255 and both as numbers;
 * 0 ends.
 */
static void read_lines(struct hotspot_methods *ms, struct hotspot_memory *m,
		       const struct hotspot_layout *l, struct hotspot_method *method)
{
	uint64_t at = method->code + method->size;
	uint32_t bci = 0, line = 0, more_bci, more_line;
	uint8_t byte;

	method->lines = (uint32_t)ms->n_lines;
	while (method->n_lines < METHOD_LINES_MAX && hotspot_get(m, at, &byte, 1) && byte) {
		at++;
		more_bci = byte >> 3;
		more_line = byte & 7;
		if (byte == 0xff && (!get_signed(m, &at, l->least_byte, &more_bci) ||
				     !get_signed(m, &at, l->least_byte, &more_line)))
			return;
		bci += more_bci;
		line += more_line;
		if (bci > UINT16_MAX || line > UINT16_MAX ||
		    UW_ARRAY_GROW(ms->lines, ms->n_lines, ms->room_lines, LINES_MAX))
			return;
		ms->lines[ms->n_lines++] =
			(struct hotspot_line){ .bci = (uint16_t)bci, .line = (uint16_t)line };
		method->n_lines++;
	}
}

uint32_t hotspot_methods_line(const struct hotspot_methods *ms, const struct hotspot_method *method,
			      uint32_t bci)
{
	const struct hotspot_line *best = NULL;

	/* The entries need not be sorted. */
	for (size_t i = method->lines; i < (size_t)method->lines + method->n_lines; i++)
		if (ms->lines[i].bci <= bci && (!best || ms->lines[i].bci >= best->bci))
			best = &ms->lines[i];
	return best ? best->line : 0;
}

/*
 * Read the method into the cache; old: what is cached at that address, UW_HASH_NONE: nothing. If that is the
 * method still, nothing changes but when it is looked at again. Return its index, or UW_HASH_NONE.
 */
static uint32_t read_method(struct hotspot_methods *ms, struct hotspot_memory *m,
			    const struct hotspot_layout *l, uint64_t at, uint32_t old, uint64_t now)
{
	char klass[HOTSPOT_SYMBOL_MAX], name[HOTSPOT_SYMBOL_MAX], text[HOTSPOT_NAME_MAX];
	struct hotspot_method *known = old == UW_HASH_NONE ? NULL : &ms->all[old],
			      new = { .at = at };
	uint64_t const_method, pool, size, flags;
	size_t n, n_name;

	if (!l->has_lines ||
	    !hotspot_get_number(m, at + l->at[HOTSPOT_CONST_METHOD], 8, &const_method) ||
	    !hotspot_get_number(m, const_method + l->at[HOTSPOT_CODE_SIZE], 2, &size) ||
	    !hotspot_get_number(m, const_method + l->at[HOTSPOT_CONST_FLAGS], 1, &flags))
		return UW_HASH_NONE;
	n = read_names(m, l, const_method, &pool, klass, name, &n_name);
	if (!n)
		return UW_HASH_NONE;
	put_name(text, klass, n, name, n_name);
	new.code = const_method + l->const_size;
	new.size = (uint32_t)size;
	new.pause_ns = CHECK_NS;
	if (known && known->code == new.code && known->size == new.size &&
	    !strcmp(ms->texts + known->name, text)) {
		known->pause_ns = longer_pause(known->pause_ns, CHECK_NS, CHECK_MAX_NS);
		known->check_ns = now + known->pause_ns;
		return old;
	}
	new.name = keep(ms, text, strlen(text));
	new.file = keep_file(ms, m, l, pool, klass, n);
	if (flags & HAS_LINES)
		read_lines(ms, m, l, &new);
	if (!new.name || m->over)
		return UW_HASH_NONE;
	new.serial = ++ms->serial;
	new.check_ns = now + new.pause_ns;
	if (!known) {
		if (array_grow(ms->all, ms->n, ms->room) ||
		    uw_hash_add(&ms->by_address, hash_u64(0, at), (uint32_t)ms->n))
			return UW_HASH_NONE;
		old = (uint32_t)ms->n++;
	}
	ms->all[old] = new;
	return old;
}

const struct hotspot_method *hotspot_methods_get(struct hotspot_methods *ms,
						 struct hotspot_memory *m,
						 const struct hotspot_layout *l, uint64_t method,
						 uint64_t now)
{
	uint32_t i = UW_HASH_FIND(k, &ms->by_address, hash_u64(0, method), ms->all[k].at == method);

	if (i != UW_HASH_NONE && now < ms->all[i].check_ns)
		return &ms->all[i];
	if (ms->n >= METHODS_MAX || ms->n_texts > TEXTS_MAX - HOTSPOT_NAME_MAX * 2 ||
	    ms->n_lines > LINES_MAX - METHOD_LINES_MAX) {
		forget(ms);
		i = UW_HASH_NONE;
	}
	i = read_method(ms, m, l, method, i, now);
	return i == UW_HASH_NONE ? NULL : &ms->all[i];
}
