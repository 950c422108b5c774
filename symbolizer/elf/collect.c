/* symbolizer/elf/collect.c: collects the function symbols of an ELF file in a builder. */
#include "symbolizer/elf/symbol_table.h"

#include "base/elf_machine.h"
#include "base/growth.h"
#include "base/limits.h"
#include "base/search.h"
#include "base/text.h"
#include "base/unpack.h"
#include "symbolizer/elf/dynamic_symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_MAX    ((uint64_t)1 << 30)
#define PACKED_MAX   ((uint64_t)64 << 20)
#define UNPACKED_MAX ((uint64_t)256 << 20)
/*
 * Entries may share name bytes, so the sum has its own limit: in a hostile file all entries share.
 */
#define NAME_BYTES_MAX ((uint64_t)2 << 30)
/* Without sections, every symbol is looked up in the segments. */
#define SEGMENTS_MAX 64
#define CHUNK	     ((size_t)256 << 10)
#define MORE_NAMES   ((size_t)4 << 10)

_Static_assert(SYM_NAME_BYTES_MAX + 1 < SYM_UNMEASURED, "a length fits beside the rank");
_Static_assert(ARENA_MAX < SYM_ENTRY_OPEN, "an arena offset leaves the top bit free");

/* ---- the builder --------------------------------------------------------------------------- */

int sym_builder_left_out(struct sym_builder *b, int err)
{
	if (err != -EBADMSG && err != -ENOTSUP && err != -E2BIG)
		return err;
	if (!b->damage)
		b->damage = err;
	return 0;
}

int sym_builder_names(struct sym_builder *b, uint64_t size, uint64_t *off)
{
	uint64_t need;

	if (size >= ARENA_MAX - b->names_size)
		return -E2BIG;
	need = b->names_size + size + 1;
	if (need > b->names_room) {
		/*
		 * A large size is a whole string table, added alone; small sizes come many times.
		 */
		uint64_t room = size < CHUNK ? need + need / 2 + MORE_NAMES : need;
		char *grown = realloc(b->names, room);

		if (!grown)
			return -ENOMEM;
		b->names = grown;
		b->names_room = room;
	}
	*off = b->names_size;
	b->names[need - 1] = '\0';
	b->names_size = need;
	return 0;
}

/*
 * Return the last symbol without a size that begins before addr, if addr is before its end so far.
 * Otherwise return NULL.
 */
static struct sym_bound *open_before(const struct sym_builder *b, uint64_t addr)
{
	struct sym_bound *last = b->opens;
	size_t n = b->n_opens;

	if (!n || addr <= last->addr)
		return NULL;
	while (n > 1) { /* branch-free */
		size_t half = n / 2;

		last = last[half].addr < addr ? last + half : last;
		n -= half;
	}
	return addr < last->next ? last : NULL;
}

/*
 * Record that a symbol at addr is left out: a symbol without a size before it ends there at the
 * latest.
 */
static void leave_out(struct sym_builder *b, uint64_t addr)
{
	struct sym_bound *open = open_before(b, addr);

	if (open)
		open->next = addr;
}

int sym_builder_add(struct sym_builder *b, uint64_t addr, uint64_t end, uint64_t name,
		    size_t length, enum sym_kind kind, enum sym_bind bind)
{
	int err;

	if (b->pages.n && (kind == SYM_KIND_FUNC || kind == SYM_KIND_STUB) &&
	    !sym_pages_overlap(&b->pages, addr, end)) {
		leave_out(b, addr);
		return 0;
	}
	err = UW_ARRAY_GROW(b->entries, b->n_entries, b->room, uw_limit(symbols));
	if (err == -E2BIG) {
		/*
		 * Some of the symbols would give wrong names: one without a size ends where the next
		 * one begins.
		 */
		uw_limit_reach(symbols);
		return -EFBIG;
	}
	if (err)
		return err;
	b->name_bytes += length == SYM_UNMEASURED ? 0 : length + 1;
	if (b->name_bytes > NAME_BYTES_MAX)
		return -E2BIG;
	b->entries[b->n_entries++] =
		(struct sym_entry){ .addr = addr,
				    .end = end,
				    .name = (uint32_t)name,
				    .aux = ((uint32_t)kind * 4 + bind) << SYM_LENGTH_BITS |
					   (uint32_t)length };
	return 0;
}

/* Cut only what looks like a version, because other names can have '@' in them. */
size_t sym_version_at(const char *name, size_t length)
{
	const char *at = length > 1 ? memchr(name + 1, '@', length - 1) : NULL;
	const char *p = at;

	if (!at || name[0] == '?') /* names mangled by Microsoft's compiler have '@' everywhere */
		return length;
	while (*p == '@')
		p++;
	if (!*p || p - at > 3)
		return length;
	for (; *p; p++) {
		if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
		      (*p >= '0' && *p <= '9') || *p == '_' || *p == '.' || *p == '-' || *p == '+'))
			return length;
	}
	return (size_t)(at - name);
}

bool sym_is_marker(const char *name)
{
	return name[0] == '$' || strncmp(name, ".L", 2) == 0 || strncmp(name, ".annobin", 8) == 0;
}

/* ---- the symbols of an ELF file ------------------------------------------------------------ */

/*
 * Return the end of the code that a symbol of this section and address can cover; 0: it names no
 * code.
 */
static uint64_t code_end(const struct uw_elf *image, uint16_t index, uint64_t addr, bool typed)
{
	if (index == SHN_UNDEF || (index >= SHN_LORESERVE && index != SHN_XINDEX))
		return 0;
	if (index < image->n_sections) {
		const Elf64_Shdr *s = &image->sections[index];

		if (!(s->sh_flags & SHF_ALLOC) || (!typed && !(s->sh_flags & SHF_EXECINSTR)) ||
		    addr < s->sh_addr || addr - s->sh_addr >= s->sh_size ||
		    s->sh_size > UINT64_MAX - s->sh_addr)
			return 0;
		return s->sh_addr + s->sh_size;
	}
	/* There are no section headers, or too many for a 16-bit index. */
	for (size_t i = 0; i < image->n_segments && i < SEGMENTS_MAX; i++) {
		const Elf64_Phdr *p = &image->segments[i];

		if (p->p_type == PT_LOAD && (p->p_flags & PF_X) && addr >= p->p_vaddr &&
		    addr - p->p_vaddr < p->p_memsz && p->p_memsz <= UINT64_MAX - p->p_vaddr)
			return p->p_vaddr + p->p_memsz;
	}
	return 0;
}

struct names { /* a string table in the arena, or in the file (lazy) */
	uint64_t off, size;
	bool simple;   /* see is_simple */
	uint32_t flag; /* for lazy names */
};

/*
 * Return whether the bytes are printable ASCII without '@', with NULs at most SYM_NAME_BYTES_MAX
 * apart. Then no name in them needs to be cut or sanitised.
 */
static bool is_simple(const char *bytes, uint64_t size)
{
	for (uint64_t at = 0; at < size; at += SYM_NAME_BYTES_MAX / 2) {
		uint64_t piece =
			size - at < SYM_NAME_BYTES_MAX / 2 ? size - at : SYM_NAME_BYTES_MAX / 2;

		if (!memchr(bytes + at, 0, piece) && piece == SYM_NAME_BYTES_MAX / 2)
			return false;
	}
	return uw_text_plain_size(bytes, size, '\0') == size && !memchr(bytes, '@', size);
}

static enum sym_bind bind_of(const Elf64_Sym *sym)
{
	switch (ELF64_ST_BIND(sym->st_info)) {
	case STB_LOCAL:
		return SYM_BIND_LOCAL;
	case STB_WEAK:
		return SYM_BIND_WEAK;
	default:
		return SYM_BIND_GLOBAL;
	}
}

/* Check a name in the arena. Return false if the symbol must be ignored. Otherwise set *length. */
static bool look_at_name(struct sym_builder *b, uint64_t off, const struct names *names, bool typed,
			 enum sym_bind bind, size_t *length)
{
	char *name = b->names + off;

	if (!*name || (!typed && bind == SYM_BIND_LOCAL && sym_is_marker(name)))
		return false;
	/* The search ends within the arena, because each part has a final NUL. */
	*length = names->simple ? SYM_UNMEASURED : strnlen(name, SYM_NAME_BYTES_MAX + 1);
	if (*length <= SYM_NAME_BYTES_MAX) {
		*length = sym_version_at(name, *length);
		name[*length] = '\0';
	}
	return true;
}

/* Do the same for a lazy name. It is read only if it decides whether the symbol is ignored. */
static bool counts_lazy(struct sym_builder *b, uint32_t name, const struct names *names, bool typed,
			enum sym_bind bind)
{
	bool marker = false;

	if (!name) /* offset 0 is the empty name */
		return false;
	if (!typed && bind == SYM_BIND_LOCAL && !b->odd)
		b->odd = sym_lazy_names_is_marker(b->lazy_names, name | names->flag, &marker);
	return !marker;
}

/* Add a symbol if it names a function. -EBADMSG: this symbol is damaged. */
static int add_symbol(struct sym_builder *b, const struct uw_elf *image, const Elf64_Sym *sym,
		      const struct names *names)
{
	unsigned int type = ELF64_ST_TYPE(sym->st_info);
	bool typed = type == STT_FUNC || type == STT_GNU_IFUNC;
	enum sym_bind bind;
	uint64_t addr = sym->st_value & ~uw_machine_symbol_bits(image->machine);
	size_t length = SYM_UNMEASURED;
	enum sym_kind kind;
	uint64_t end;

	if (!typed && type != STT_NOTYPE)
		return 0;
	if (b->pages.n && b->sized_now != (typed && sym->st_size))
		return 0;
	end = code_end(image, sym->st_shndx, addr, typed);
	if (!end)
		return 0;
	if (sym->st_name >= names->size)
		return -EBADMSG;
	bind = bind_of(sym);
	if (b->lazy_names
		    ? !counts_lazy(b, sym->st_name, names, typed, bind)
		    : !look_at_name(b, names->off + sym->st_name, names, typed, bind, &length))
		return 0;
	if (sym->st_size) {
		end = sym->st_size < end - addr ? addr + sym->st_size : end;
		kind = typed ? SYM_KIND_FUNC : SYM_KIND_LABEL;
	} else {
		kind = typed ? SYM_KIND_FUNC_OPEN : SYM_KIND_LABEL_OPEN;
	}
	if (b->pages.n && !b->sized_now)
		sym_pages_add(&b->pages, addr);
	return sym_builder_add(b, addr, end, (names->off + sym->st_name) | names->flag, length,
			       kind, bind);
}

static Elf64_Sym widen_symbol(const Elf32_Sym *s)
{
	return (Elf64_Sym){ .st_name = s->st_name,
			    .st_info = s->st_info,
			    .st_other = s->st_other,
			    .st_shndx = s->st_shndx,
			    .st_value = s->st_value,
			    .st_size = s->st_size };
}

/*
 * Return whether add_symbol would do nothing. Most symbols belong to the other pass, or overlap no
 * wanted page and end no symbol without a size.
 */
static bool passes_by(const struct sym_builder *b, const Elf64_Sym *sym, const struct names *names)
{
	unsigned int type = ELF64_ST_TYPE(sym->st_info);
	bool sized = (type == STT_FUNC || type == STT_GNU_IFUNC) && sym->st_size;

	if (sized != b->sized_now)
		return true;
	return sized && sym->st_name < names->size && sym->st_size <= UINT64_MAX - sym->st_value &&
	       !sym_pages_overlap(&b->pages, sym->st_value, sym->st_value + sym->st_size) &&
	       !open_before(b, sym->st_value);
}

/* Add all symbols of a section. keep: remember the section for the PLT. */
static int add_symbols(struct sym_builder *b, const struct uw_elf *image, const Elf64_Shdr *symbols,
		       const Elf64_Shdr *strings, bool keep)
{
	size_t each = image->narrow ? sizeof(Elf32_Sym) : sizeof(Elf64_Sym);
	uint64_t off = symbols->sh_offset, size = symbols->sh_size;
	uint64_t names_off = strings->sh_offset, names_size = strings->sh_size;
	struct names names = { .size = names_size };
	int damage = 0;
	char *chunk;
	bool whole;
	int err;

	if (names_off > image->source.size || names_size > image->source.size - names_off ||
	    off > image->source.size || size > image->source.size - off)
		return -EBADMSG;
	if (b->lazy_names) {
		err = sym_lazy_names_add(b->lazy_names, names_off, names_size, &names.flag);
		if (err) {
			b->odd = err;
			return 0;
		}
	} else {
		err = sym_builder_names(b, names_size, &names.off);
		if (err)
			return err;
		err = uw_source_read(&image->source, names_off, b->names + names.off, names_size);
		if (err)
			return err;
		names.simple = is_simple(b->names + names.off, names_size);
	}
	if (keep) {
		b->dynsym = symbols;
		b->dynstr_at = names.off;
		b->dynstr_flag = names.flag;
		b->dynstr_size = names_size;
	}
	size -= size % each;
	chunk = malloc(size < CHUNK ? (size_t)size : CHUNK);
	if (!chunk)
		return -ENOMEM;
	whole = keep && size <= CHUNK && !b->dynsym_bytes;
	while (size) {
		size_t n = size < CHUNK ? (size_t)size : CHUNK - CHUNK % each;

		err = uw_source_read(&image->source, off, chunk, n);
		for (size_t i = 0; !err && i < n; i += each) {
			Elf64_Sym sym;

			if (image->narrow)
				sym = widen_symbol((const Elf32_Sym *)(const void *)(chunk + i));
			else if (b->pages.n && !uw_machine_symbol_bits(image->machine) &&
				 passes_by(b, (const Elf64_Sym *)(const void *)(chunk + i), &names))
				continue;
			else
				memcpy(&sym, chunk + i, sizeof(sym));
			err = add_symbol(b, image, &sym, &names);
			if (err == -EBADMSG) { /* only this symbol is damaged */
				damage = err;
				err = 0;
			}
		}
		if (err)
			break;
		off += n;
		size -= n;
	}
	if (whole && !err)
		b->dynsym_bytes = chunk;
	else
		free(chunk);
	return err ? err : damage;
}

/* Add the symbols that the dynamic loader uses, if there are no section headers. */
static int add_dynamic(struct sym_builder *b, const struct uw_elf *image)
{
	Elf64_Shdr symbols, strings;
	int err = sym_dynamic_find(image, &symbols, &strings);

	if (!err)
		err = add_symbols(b, image, &symbols, &strings, false);
	return err == -ENOENT ? 0 : err;
}

static int add_image(struct sym_builder *b, const struct uw_elf *image, bool packed);

/* Add the symbols of the ELF file inside .gnu_debugdata (xz). */
static int add_packed(struct sym_builder *b, const struct uw_elf *image, const Elf64_Shdr *section)
{
	struct uw_elf inner;
	void *packed;
	uint8_t *bytes;
	size_t size;
	int err = sym_elf_load(image, section->sh_offset, section->sh_size, PACKED_MAX, &packed);

	if (err)
		return err;
	err = uw_unpack_xz(packed, section->sh_size, UNPACKED_MAX, &bytes, &size);
	free(packed);
	if (err)
		return err;
	err = sym_elf_open_bytes(&inner, bytes, size);
	if (!err) {
		err = add_image(b, &inner, true);
		uw_elf_fini(&inner);
	}
	free(bytes);
	return err;
}

/* Add the symbol tables of an image. packed: as in add_image. */
static int add_tables(struct sym_builder *b, const struct uw_elf *image, bool packed)
{
	bool seen[2] = { false, false }; /* one .symtab and one .dynsym, as the gABI says */
	int err;

	for (size_t i = 1; i < image->n_sections; i++) {
		const Elf64_Shdr *s = &image->sections[i];
		bool dynamic = s->sh_type == SHT_DYNSYM;

		if ((!dynamic && s->sh_type != SHT_SYMTAB) || seen[dynamic])
			continue;
		seen[dynamic] = true;
		if (s->sh_link >= image->n_sections ||
		    image->sections[s->sh_link].sh_type != SHT_STRTAB ||
		    (s->sh_flags & SHF_COMPRESSED))
			err = -EBADMSG;
		else
			err = add_symbols(b, image, s, &image->sections[s->sh_link],
					  !packed && dynamic);
		err = sym_builder_left_out(b, err);
		if (err)
			return err;
	}
	return 0;
}

UW_ORDER(compare_bounds, struct sym_bound, addr)

/* Remember the symbols without a size, because symbols that are left out may end them. */
static int note_opens(struct sym_builder *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->n_entries; i++)
		n += sym_kind_is_open(sym_entry_kind(&b->entries[i]));
	b->opens = n ? calloc(n, sizeof(*b->opens)) : NULL;
	if (n && !b->opens)
		return -ENOMEM;
	for (size_t i = 0; i < b->n_entries; i++)
		if (sym_kind_is_open(sym_entry_kind(&b->entries[i])))
			b->opens[b->n_opens++] = (struct sym_bound){ .addr = b->entries[i].addr,
								     .next = UINT64_MAX };
	if (n)
		qsort(b->opens, n, sizeof(*b->opens), compare_bounds);
	return 0;
}

/* End each symbol without a size at the first symbol that was left out after it. */
static void bound_opens(struct sym_builder *b)
{
	for (size_t i = b->n_opens; i > 1; i--)
		if (b->opens[i - 1].next < b->opens[i - 2].next)
			b->opens[i - 2].next = b->opens[i - 1].next;
	for (size_t i = 0; b->n_opens && i < b->n_entries; i++) {
		struct sym_entry *e = &b->entries[i];
		const struct sym_bound key = { .addr = e->addr }, *found;

		if (!sym_kind_is_open(sym_entry_kind(e)))
			continue;
		found = bsearch(&key, b->opens, b->n_opens, sizeof(key), compare_bounds);
		if (found && found->next < e->end)
			e->end = found->next;
	}
}

static bool has_symtab(const struct uw_elf *image)
{
	for (size_t i = 1; i < image->n_sections; i++)
		if (image->sections[i].sh_type == SHT_SYMTAB)
			return true;
	return false;
}

/*
 * Add all symbols of an image. packed: the image is from .gnu_debugdata or a debug file, so only
 * its symbol tables are used.
 */
static int add_image(struct sym_builder *b, const struct uw_elf *image, bool packed)
{
	const Elf64_Shdr *section;
	int err;

	if (image->type == ET_REL) /* its symbols have no addresses yet */
		return sym_builder_left_out(b, -ENOTSUP);
	if (image->sections_err)
		(void)sym_builder_left_out(b, -EBADMSG);
	if (!image->n_sections)
		return sym_builder_left_out(b, add_dynamic(b, image));
	err = add_tables(b, image, packed);
	if (!err && b->pages.n) {
		err = note_opens(b);
		b->sized_now = true;
		if (!err)
			err = add_tables(b, image, packed);
	}
	if (err || packed)
		return err;
	section = uw_elf_section(image, ".gnu_debugdata");
	if (section) {
		err = sym_builder_left_out(b, add_packed(b, image, section));
		if (err)
			return err;
	}
	if (!has_symtab(image)) {
		err = sym_builder_left_out(b, sym_gopclntab_add(b, image));
		if (!err)
			err = sym_builder_left_out(b, sym_v8_builtins_add(b, image));
		if (err)
			return err;
	}
	return sym_builder_left_out(b, sym_plt_add(b, image));
}

int sym_builder_collect(struct sym_builder *b, const struct uw_elf *image,
			const struct uw_elf *debug)
{
	int err = add_image(b, image, false);

	if (!err && debug)
		err = add_image(b, debug, true);
	if (!err)
		bound_opens(b);
	return err;
}
