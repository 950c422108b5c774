/*
 * symbolizer/elf/v8_builtins.c: names the functions that are built into V8, the JavaScript virtual machine, in a library
 * without .symtab.
 *
 * Their code is one block, and only local symbols name its parts ("Builtins_ArrayMap"). V8 itself finds them in two tables
 * (src/snapshot/embedded/embedded-data.h and src/builtins/builtins.cc of V8 10.2 and 11.3). Debian's libnode exports the
 * functions that use the tables; the code of these says where the tables are:
 *
 *   DefaultEmbeddedBlobCode()      returns the block: the value of a pointer in 10.2, its address in 11.3
 *   DefaultEmbeddedBlobCodeSize()  returns a number: the size of the block
 *   DefaultEmbeddedBlobData()      returns likewise: three hashes, and then 28 bytes (32 in 11.3) for each function, which
 *                                  begin with the offset of its code in the block and the length of its code
 *   Builtins::name(i)              returns the name of a function: the first of the 24 bytes that a table has for each
 *
 * The loader writes the pointers, so their values are in relocations; what has none is the thing itself. Later versions of V8
 * may sort the block in another way: the tables must fit together in all of their entries, or there are no names.
 */
#include "symbolizer/elf/symbol_table.h"

#include "base/bytes.h"
#include "base/elf_machine.h"
#include "symbolizer/elf/dynamic_symbols.h"
#include "symbolizer/elf/lazy_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RELOCS_MAX ((uint64_t)64 << 20)
#define BLOCK_MAX  (64u << 20)
#define PARTS_MAX  8192u /* V8 11.3 has 2,182 */
#define PARTS_MIN  64u
#define CHAIN_MAX  256u /* symbols whose hashes are in one bucket */

enum {
	FUNCTION_MAX = 32, /* bytes of code of a function that returns one value */
	SYMBOL_MAX = 64,   /* bytes of its name */
	NAME_MAX = 127,	   /* bytes of a built-in function's name */
	HASHES = 24,	   /* bytes before the parts */
	PART_10 = 28,	   /* bytes of a part in V8 10 and 11 */
	PART_11 = 32,
	ENTRY = 24, /* bytes, in the table of names */
	ALIGN = 64
};

struct part {
	uint32_t off, size; /* of its code, in the block */
	uint64_t name;	    /* vaddr; 0: not found */
};

struct builtins {
	const struct uw_elf *image;
	uint64_t block_at, parts_at; /* vaddrs that the code has: of pointers, or not */
	uint64_t block, parts;	     /* their values, or the same where they are no pointers */
	uint64_t names_at;	     /* vaddr of the table of names */
	uint32_t size;		     /* of the block */
	struct part *part;	     /* owned */
	size_t n;
};

/* Read size bytes at a vaddr. */
static bool get(const struct uw_elf *image, uint64_t vaddr, void *out, uint64_t size)
{
	uint64_t off, room;

	return !sym_dynamic_locate(image, vaddr, &off, &room) && size <= room &&
	       !uw_source_read(&image->source, off, out, size);
}

/* ---- the exported functions --------------------------------------------------------------------- */

/* The tables that a symbol is found in by its name. */
struct exports {
	const Elf64_Shdr *hashes, *symbols, *strings;
};

static bool find_exports(const struct uw_elf *image, struct exports *e)
{
	*e = (struct exports){ .hashes = uw_elf_section(image, ".gnu.hash") };
	for (size_t i = 1; i < image->n_sections && !e->symbols; i++)
		if (image->sections[i].sh_type == SHT_DYNSYM)
			e->symbols = &image->sections[i];
	if (!e->hashes || !e->symbols || e->symbols->sh_link >= image->n_sections)
		return false;
	e->strings = &image->sections[e->symbols->sh_link];
	return true;
}

/* Read size bytes at an offset of a section. */
static bool get_of(const struct uw_elf *image, const Elf64_Shdr *section, uint64_t off, void *out,
		   uint64_t size)
{
	return off <= section->sh_size && size <= section->sh_size - off &&
	       section->sh_offset <= UINT64_MAX - off &&
	       !uw_source_read(&image->source, section->sh_offset + off, out, size);
}

/* Read symbol number i, and return whether it has this name. */
static bool is_named(const struct uw_elf *image, const struct exports *e, uint64_t i,
		     const char *name, Elf64_Sym *out)
{
	const size_t size = strlen(name) + 1;
	char found[SYMBOL_MAX];

	return size <= sizeof(found) &&
	       get_of(image, e->symbols, i * sizeof(*out), out, sizeof(*out)) &&
	       get_of(image, e->strings, out->st_name, found, size) && !memcmp(found, name, size);
}

/*
 * Look a symbol up by its name: the hash gives the bucket, which has the first symbol of a chain, and each link of the chain
 * has a symbol's hash, but for bit 0, which is set at the end.
 */
static bool find_symbol(const struct uw_elf *image, const struct exports *e, const char *name,
			Elf64_Sym *out)
{
	uint32_t head[4], hash = 5381, first,
			  link = 0; /* buckets, first symbol, bloom words, shift */
	uint64_t buckets, chain;

	for (const char *c = name; *c; c++)
		hash = hash * 33 + (uint8_t)*c;
	if (!get_of(image, e->hashes, 0, head, sizeof(head)) || !head[0])
		return false;
	buckets = sizeof(head) + head[2] * UINT64_C(8);
	chain = buckets + head[0] * UINT64_C(4);
	if (!get_of(image, e->hashes, buckets + hash % head[0] * UINT64_C(4), &first, 4) ||
	    first < head[1])
		return false;
	for (uint32_t i = 0; i < CHAIN_MAX && !(link & 1); i++) {
		if (!get_of(image, e->hashes, chain + (first - head[1] + (uint64_t)i) * 4, &link,
			    4))
			return false;
		if ((link | 1) == (hash | 1) && is_named(image, e, first + (uint64_t)i, name, out))
			return true;
	}
	return false;
}

/* Find the address that the code of an exported function loads. */
static bool find_loaded(const struct uw_elf *image, const struct exports *e, const char *name,
			uint64_t *vaddr)
{
	uint8_t code[FUNCTION_MAX];
	Elf64_Sym symbol;
	size_t n;

	if (!find_symbol(image, e, name, &symbol))
		return false;
	n = symbol.st_size < sizeof(code) ? (size_t)symbol.st_size : sizeof(code);
	return get(image, symbol.st_value, code, n) &&
	       uw_machine_loads(image->machine, code, n, symbol.st_value, vaddr);
}

/* Find where the tables are. */
static bool find_tables(struct builtins *v)
{
	struct exports e;
	uint64_t size_at;
	uint8_t size[4];

	if (!find_exports(v->image, &e) ||
	    !find_loaded(v->image, &e, "_ZN2v88internal23DefaultEmbeddedBlobCodeEv",
			 &v->block_at) ||
	    !find_loaded(v->image, &e, "_ZN2v88internal27DefaultEmbeddedBlobCodeSizeEv",
			 &size_at) ||
	    !find_loaded(v->image, &e, "_ZN2v88internal23DefaultEmbeddedBlobDataEv",
			 &v->parts_at) ||
	    !find_loaded(v->image, &e, "_ZN2v88internal8Builtins4nameENS0_7BuiltinE",
			 &v->names_at) ||
	    !get(v->image, size_at, size, sizeof(size)))
		return false;
	v->size = uw_bytes_little(size);
	return v->size <= BLOCK_MAX;
}

/* ---- the tables --------------------------------------------------------------------------------- */

/*
 * Read where the parts of the block are, of so many bytes each in the table. Each one begins where the one before ends, with
 * at least one byte between and rounded up to ALIGN, and the last one ends where the block does: so their number is found.
 */
static bool read_parts(struct builtins *v, uint64_t each)
{
	uint64_t end = 0;

	for (v->n = 0; v->n < PARTS_MAX && end < v->size; v->n++) {
		struct part *p = &v->part[v->n];
		uint8_t bytes[8];

		if (!get(v->image, v->parts + HASHES + v->n * each, bytes, sizeof(bytes)))
			return false;
		p->off = uw_bytes_little(bytes);
		p->size = uw_bytes_little(bytes + 4);
		if (p->off != end || !p->size)
			return false;
		end = (end + p->size + ALIGN) / ALIGN * ALIGN;
	}
	return v->n >= PARTS_MIN && end == v->size;
}

static int find_parts(struct builtins *v)
{
	if (v->block > UINT64_MAX - v->size)
		return -ENOTSUP;
	v->part = calloc(PARTS_MAX, sizeof(*v->part));
	if (!v->part)
		return -ENOMEM;
	return read_parts(v, PART_10) || read_parts(v, PART_11) ? 0 : -ENOTSUP;
}

/* Take the values that the loader writes to the pointers, and then those of the names. */
static int take_relocations(struct builtins *v)
{
	const Elf64_Shdr *section = uw_elf_section(v->image, ".rela.dyn");
	const Elf64_Rela *relas;
	void *bytes;
	size_t n;
	int err = section ? sym_elf_load(v->image, section->sh_offset, section->sh_size, RELOCS_MAX,
					 &bytes)
			  : -ENOTSUP;

	if (err)
		return err;
	relas = bytes;
	n = section->sh_size / sizeof(*relas);
	v->block = v->block_at;
	v->parts = v->parts_at;
	for (size_t i = 0; i < n; i++) {
		if (!uw_machine_is_relative(v->image->machine, relas[i].r_info))
			continue;
		if (relas[i].r_offset == v->block_at)
			v->block = (uint64_t)relas[i].r_addend;
		if (relas[i].r_offset == v->parts_at)
			v->parts = (uint64_t)relas[i].r_addend;
	}
	err = find_parts(v);
	for (size_t i = 0; !err && i < n; i++) {
		uint64_t at = relas[i].r_offset - v->names_at;

		if (at / ENTRY < v->n && at % ENTRY == 0 &&
		    uw_machine_is_relative(v->image->machine, relas[i].r_info))
			v->part[at / ENTRY].name = (uint64_t)relas[i].r_addend;
	}
	free(bytes);
	return err;
}

/* Read a name, which is an identifier. Return its length; 0: it is none. */
static size_t read_name(const struct builtins *v, uint64_t vaddr, char out[NAME_MAX + 1])
{
	uint64_t off, room;
	size_t n = 0;

	if (!vaddr || sym_dynamic_locate(v->image, vaddr, &off, &room))
		return 0;
	if (room > NAME_MAX + 1)
		room = NAME_MAX + 1;
	if (uw_source_read(&v->image->source, off, out, room))
		return 0;
	while (n < room && (out[n] == '_' || (out[n] >= '0' && out[n] <= '9') ||
			    ((out[n] | 32) >= 'a' && (out[n] | 32) <= 'z')))
		n++;
	return n < room && !out[n] ? n : 0;
}

/* ---- symbols ------------------------------------------------------------------------------------ */

/* Add one function, unless it is not wanted (struct sym_builder). */
static int add_function(struct sym_builder *b, const struct builtins *v, const struct part *part)
{
	static const char prefix[] = "Builtins_";
	const uint64_t addr = v->block + part->off, end = addr + part->size;
	char name[sizeof(prefix) + NAME_MAX];
	size_t n = 0;
	uint64_t off = 0;
	int err;

	if (!b->pages.n || sym_pages_overlap(&b->pages, addr, end)) {
		n = read_name(v, part->name, name + sizeof(prefix) - 1);
		if (!n)
			return 0;
		memcpy(name, prefix, sizeof(prefix) - 1);
		n += sizeof(prefix) - 1;
		err = sym_builder_names(b, n, &off);
		if (err)
			return err;
		memcpy(b->names + off, name, n);
		if (b->lazy_names && off >= SYM_NAME_ARENA)
			return -E2BIG;
		off |= b->lazy_names ? SYM_NAME_ARENA : 0;
	}
	return sym_builder_add(b, addr, end, off, n, SYM_KIND_FUNC, SYM_BIND_LOCAL);
}

int sym_v8_builtins_add(struct sym_builder *b, const struct uw_elf *image)
{
	struct builtins v = { .image = image };
	int err = 0;

	if (image->narrow || !find_tables(&v))
		return 0;
	err = take_relocations(&v);
	for (size_t i = 0; !err && i < v.n; i++)
		err = add_function(b, &v, &v.part[i]);
	free(v.part);
	return err == -ENOTSUP ? 0 : err;
}
