/* symbolizer/elf/table.c: collects function symbols, chooses among them, and looks them up. */
#include "symbolizer/elf/table.h"

#include "base/unpack.h"
#include "schema/symbols.h"
#include "symbolizer/elf/dynamic.h"
#include "symbolizer/elf/prefer.h"
#include "symbolizer/symbolizer.h"
#include "symbolizer/text/plain.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Limits. The largest files known (a browser with all its symbols) have some two million functions
 * and 300 MB of names.
 */
#define ENTRIES_MAX  ((size_t)16 << 20)
#define ARENA_MAX    ((uint64_t)1 << 30)
#define PACKED_MAX   ((uint64_t)64 << 20)
#define UNPACKED_MAX ((uint64_t)256 << 20)
/*
 * Entries may share name bytes, so the sum has its own limit: in a hostile file all entries share.
 */
#define NAME_BYTES_MAX ((uint64_t)2 << 30)
#define CLEANED_MAX    ((uint64_t)64 << 20)
/*
 * Limits beyond practical need: symbols at one address with different ends, and symbols inside each
 * other.
 */
#define SAME_ADDR_MAX 4
#define ENCLOSING_MAX 64
/* Without sections, every symbol is looked up in the segments. */
#define SEGMENTS_MAX 64

#define NONE	    UINT32_MAX
#define LENGTH_BITS 17
#define LENGTH_MASK (((uint32_t)1 << LENGTH_BITS) - 1)
#define CHUNK	    ((size_t)256 << 10)
#define UNMEASURED  SYM_UNMEASURED

/* Leave string tables of at least this size in the file if few names are needed. */
#define UNREAD_MIN ((uint64_t)256 << 10)
/* If an address has more aliases than this, find the best name at once. */
#define ALIASES_MAX 16

_Static_assert(UNMEASURED == LENGTH_MASK, "it is no length");
_Static_assert(SYM_NAME_BYTES_MAX + 1 < UNMEASURED, "a length fits beside the rank");
_Static_assert(ARENA_MAX < SYM_ENTRY_OPEN, "an arena offset leaves the top bit free");

/* ---- wanted pages -------------------------------------------------------------- */

#define PAGE_SHIFT 12
/* The limit is 4 GiB of code. */
#define PAGES_MAX ((uint64_t)1 << 20)

static bool has_page(const struct sym_pages *pages, uint64_t addr)
{
	uint64_t page = (addr - pages->low) >> PAGE_SHIFT;

	return addr >= pages->low && page < pages->n && pages->bits[page / 64] >> page % 64 & 1;
}

static void add_page(struct sym_pages *pages, uint64_t addr)
{
	uint64_t page = (addr - pages->low) >> PAGE_SHIFT;

	if (addr >= pages->low && page < pages->n)
		pages->bits[page / 64] |= (uint64_t)1 << page % 64;
}

/* Return whether [addr, end) overlaps any page of the set. */
static bool reaches_any(const struct sym_pages *pages, uint64_t addr, uint64_t end)
{
	uint64_t page, last;

	if (end <= pages->low)
		return false;
	page = addr < pages->low ? 0 : (addr - pages->low) >> PAGE_SHIFT;
	last = (end - 1 - pages->low) >> PAGE_SHIFT;
	if (last >= pages->n)
		last = pages->n - 1;
	while (page <= last) {
		uint64_t word = pages->bits[page / 64] >> page % 64;

		if (word)
			return page + (uint64_t)__builtin_ctzll(word) <= last;
		page += 64 - page % 64;
	}
	return false;
}

/*
 * Make the set of the pages that contain n addresses of the image's code. out->n stays 0 if the
 * image has no code range of reasonable size.
 */
static int choose_pages(const struct sym_image *image, const uint64_t *vaddrs, size_t n,
			struct sym_pages *out)
{
	uint64_t low = UINT64_MAX, high = 0;
	struct sym_pages pages;

	for (size_t i = 0; i < image->n_segments; i++) {
		const Elf64_Phdr *p = &image->segments[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) ||
		    p->p_memsz > UINT64_MAX - p->p_vaddr)
			continue;
		low = p->p_vaddr < low ? p->p_vaddr : low;
		high = p->p_vaddr + p->p_memsz > high ? p->p_vaddr + p->p_memsz : high;
	}
	if (high <= low || (high - low) >> PAGE_SHIFT >= PAGES_MAX)
		return 0;
	pages.low = low;
	pages.n = (size_t)((high - low) >> PAGE_SHIFT) + 1;
	pages.bits = calloc(pages.n / 64 + 1, sizeof(*pages.bits));
	if (!pages.bits)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		add_page(&pages, vaddrs[i]);
	*out = pages;
	return 0;
}

/* ---- collecting ---------------------------------------------------------- */

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
		uint64_t room = size < CHUNK ? need + need / 2 + CHUNK : need;
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
	if (b->pages.n && (kind == SYM_KIND_FUNC || kind == SYM_KIND_STUB) &&
	    !reaches_any(&b->pages, addr, end)) {
		leave_out(b, addr);
		return 0;
	}
	if (b->n_entries == b->room) {
		size_t room = b->room ? b->room * 2 : 256;
		struct sym_entry *grown;

		if (room > ENTRIES_MAX)
			return -E2BIG;
		grown = realloc(b->entries, room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		b->entries = grown;
		b->room = room;
	}
	b->name_bytes += length == UNMEASURED ? 0 : length + 1;
	if (b->name_bytes > NAME_BYTES_MAX)
		return -E2BIG;
	b->entries[b->n_entries++] =
		(struct sym_entry){ .addr = addr,
				    .end = end,
				    .name = (uint32_t)name,
				    .aux = ((uint32_t)kind * 4 + bind) << LENGTH_BITS |
					   (uint32_t)length };
	return 0;
}

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

/*
 * Return the end of the code that a symbol of this section and address can cover; 0: it names no
 * code.
 */
static uint64_t code_end(const struct sym_image *image, uint16_t index, uint64_t addr, bool typed)
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
	return sym_plain_size(bytes, size, '\0') == size && !memchr(bytes, '@', size);
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
	*length = names->simple ? UNMEASURED : strnlen(name, SYM_NAME_BYTES_MAX + 1);
	if (*length <= SYM_NAME_BYTES_MAX) {
		*length = sym_version_at(name, *length);
		name[*length] = '\0';
	}
	return true;
}

/* Do the same for a lazy name. It is read only if it decides whether the symbol is ignored. */
static bool counts_unread(struct sym_builder *b, uint32_t name, const struct names *names,
			  bool typed, enum sym_bind bind)
{
	bool marker = false;

	if (!name) /* offset 0 is the empty name */
		return false;
	if (!typed && bind == SYM_BIND_LOCAL && !b->odd)
		b->odd = sym_unread_is_marker(b->unread, name | names->flag, &marker);
	return !marker;
}

/* Add a symbol if it names a function. -EBADMSG: this symbol is damaged. */
static int add_symbol(struct sym_builder *b, const struct sym_image *image, const Elf64_Sym *sym,
		      const struct names *names)
{
	unsigned int type = ELF64_ST_TYPE(sym->st_info);
	bool typed = type == STT_FUNC || type == STT_GNU_IFUNC;
	enum sym_bind bind;
	uint64_t addr = sym->st_value;
	size_t length = UNMEASURED;
	enum sym_kind kind;
	uint64_t end;

	if (!typed && type != STT_NOTYPE)
		return 0;
	if (b->pages.n && b->sized_now != (typed && sym->st_size))
		return 0;
	if (image->machine == EM_ARM)
		addr &= ~(uint64_t)1; /* the Thumb bit */
	end = code_end(image, sym->st_shndx, addr, typed);
	if (!end)
		return 0;
	if (sym->st_name >= names->size)
		return -EBADMSG;
	bind = bind_of(sym);
	if (b->unread ? !counts_unread(b, sym->st_name, names, typed, bind)
		      : !look_at_name(b, names->off + sym->st_name, names, typed, bind, &length))
		return 0;
	if (sym->st_size) {
		end = sym->st_size < end - addr ? addr + sym->st_size : end;
		kind = typed ? SYM_KIND_FUNC : SYM_KIND_LABEL;
	} else {
		kind = typed ? SYM_KIND_FUNC_OPEN : SYM_KIND_LABEL_OPEN;
	}
	if (b->pages.n && !b->sized_now)
		add_page(&b->pages, addr);
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
	       !reaches_any(&b->pages, sym->st_value, sym->st_value + sym->st_size) &&
	       !open_before(b, sym->st_value);
}

/* Add all symbols of a section. keep: remember the section for the PLT. */
static int add_symbols(struct sym_builder *b, const struct sym_image *image,
		       const Elf64_Shdr *symbols, const Elf64_Shdr *strings, bool keep)
{
	size_t each = image->narrow ? sizeof(Elf32_Sym) : sizeof(Elf64_Sym);
	uint64_t off = symbols->sh_offset, size = symbols->sh_size;
	uint64_t names_off = strings->sh_offset, names_size = strings->sh_size;
	struct names names = { .size = names_size };
	int damage = 0;
	char *chunk;
	bool whole;
	int err;

	if (names_off > image->size || names_size > image->size - names_off || off > image->size ||
	    size > image->size - off)
		return -EBADMSG;
	if (b->unread) {
		err = sym_unread_add(b->unread, image->off + names_off, names_size, &names.flag);
		if (err) {
			b->odd = err;
			return 0;
		}
	} else {
		err = sym_builder_names(b, names_size, &names.off);
		if (err)
			return err;
		err = sym_image_read(image, names_off, b->names + names.off, names_size);
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
	chunk = malloc(CHUNK);
	if (!chunk)
		return -ENOMEM;
	size -= size % each;
	whole = keep && size <= CHUNK && !b->dynsym_bytes;
	while (size) {
		size_t n = size < CHUNK ? (size_t)size : CHUNK - CHUNK % each;

		err = sym_image_read(image, off, chunk, n);
		for (size_t i = 0; !err && i < n; i += each) {
			Elf64_Sym sym;

			if (image->narrow)
				sym = widen_symbol((const Elf32_Sym *)(const void *)(chunk + i));
			else if (b->pages.n && image->machine != EM_ARM &&
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
static int add_dynamic(struct sym_builder *b, const struct sym_image *image)
{
	Elf64_Shdr symbols, strings;
	int err = sym_dynamic_find(image, &symbols, &strings);

	if (!err)
		err = add_symbols(b, image, &symbols, &strings, false);
	return err == -ENOENT ? 0 : err;
}

static int add_image(struct sym_builder *b, const struct sym_image *image, bool packed);

/* Add the symbols of the ELF file inside .gnu_debugdata (xz). */
static int add_packed(struct sym_builder *b, const struct sym_image *image,
		      const Elf64_Shdr *section)
{
	struct sym_image inner;
	void *packed;
	uint8_t *bytes;
	size_t size;
	int err = sym_image_load(image, section->sh_offset, section->sh_size, PACKED_MAX, &packed);

	if (err)
		return err;
	err = uw_unpack_xz(packed, section->sh_size, UNPACKED_MAX, &bytes, &size);
	free(packed);
	if (err)
		return err;
	err = sym_image_init_bytes(&inner, bytes, size);
	if (!err) {
		err = add_image(b, &inner, true);
		sym_image_fini(&inner);
	}
	free(bytes);
	return err;
}

/* Add the symbol tables of an image. packed: as in add_image. */
static int add_tables(struct sym_builder *b, const struct sym_image *image, bool packed)
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

static unsigned int rank_of(const struct sym_entry *e)
{
	return e->aux >> LENGTH_BITS;
}

static enum sym_kind kind_of(const struct sym_entry *e)
{
	return (enum sym_kind)(rank_of(e) / 4);
}

static bool is_open(enum sym_kind kind)
{
	return kind == SYM_KIND_FUNC_OPEN || kind == SYM_KIND_LABEL_OPEN;
}

static int compare_bounds(const void *left, const void *right)
{
	const struct sym_bound *a = left, *b = right;

	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Remember the symbols without a size, because symbols that are left out may end them. */
static int note_opens(struct sym_builder *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->n_entries; i++)
		n += is_open(kind_of(&b->entries[i]));
	b->opens = n ? calloc(n, sizeof(*b->opens)) : NULL;
	if (n && !b->opens)
		return -ENOMEM;
	for (size_t i = 0; i < b->n_entries; i++)
		if (is_open(kind_of(&b->entries[i])))
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

		if (!is_open(kind_of(e)))
			continue;
		found = bsearch(&key, b->opens, b->n_opens, sizeof(key), compare_bounds);
		if (found && found->next < e->end)
			e->end = found->next;
	}
}

static bool has_symtab(const struct sym_image *image)
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
static int add_image(struct sym_builder *b, const struct sym_image *image, bool packed)
{
	const Elf64_Shdr *section;
	int err;

	if (image->type == ET_REL) /* its symbols have no addresses yet */
		return sym_builder_left_out(b, -ENOTSUP);
	if (image->sections_lost)
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
	section = sym_image_section(image, ".gnu_debugdata");
	if (section) {
		err = sym_builder_left_out(b, add_packed(b, image, section));
		if (err)
			return err;
	}
	if (!has_symtab(image)) {
		err = sym_builder_left_out(b, sym_gopclntab_add(b, image));
		if (err)
			return err;
	}
	return sym_builder_left_out(b, sym_plt_add(b, image));
}

/* ---- sorting and choosing -------------------------------------------------- */

static bool is_measured(const struct sym_entry *e)
{
	return (e->aux & LENGTH_MASK) != UNMEASURED;
}

/* Return the length of an entry's name in bytes; measure it if needed. */
static size_t length_of(const struct sym_builder *b, const struct sym_entry *e)
{
	return is_measured(e) ? e->aux & LENGTH_MASK : strlen(b->names + e->name);
}

/*
 * The data that is sorted: the address relative to the lowest one, and the entry. A key has a third
 * of the size of an entry. Moving and first writing memory is what sorting spends its time on.
 */
struct key {
	uint64_t addr : 40;
	uint64_t entry : 24;
};

_Static_assert(ENTRIES_MAX <= (size_t)1 << 24, "an entry's number fits");

/*
 * Radix sort: 11 bits in each pass, lowest bits first; stable. The result is in keys or in other.
 */
static struct key *sort_keys(struct key *keys, struct key *other, size_t n, uint64_t highest)
{
	enum { BITS = 11, BUCKETS = 1 << BITS };
	uint32_t count[BUCKETS];

	for (unsigned int shift = 0; shift < 40 && highest >> shift; shift += BITS) {
		struct key *swap = keys;
		uint32_t sum = 0;

		memset(count, 0, sizeof(count));
		for (size_t i = 0; i < n; i++)
			count[keys[i].addr >> shift & (BUCKETS - 1)]++;
		for (size_t i = 0; i < BUCKETS; i++) {
			uint32_t here = count[i];

			count[i] = sum;
			sum += here;
		}
		for (size_t i = 0; i < n; i++)
			other[count[keys[i].addr >> shift & (BUCKETS - 1)]++] = keys[i];
		keys = other;
		other = swap;
	}
	return keys;
}

/* Move entry keys[i] to place i, for each i. Destroys the keys. */
static void move_entries(struct sym_entry *entries, struct key *keys, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sym_entry first = entries[i];
		size_t at = i;

		/* Follow the cycle that i is in. An entry in its place is a cycle of its own. */
		while (keys[at].entry != i) {
			size_t from = keys[at].entry;

			entries[at] = entries[from];
			keys[at].entry = at & (((uint32_t)1 << 24) - 1);
			at = from;
		}
		entries[at] = first;
		keys[at].entry = at & (((uint32_t)1 << 24) - 1);
	}
}

/* Order by address, for files whose addresses are terabytes apart. */
static int compare_addr(const void *left, const void *right)
{
	const struct sym_entry *a = left, *b = right;

	if (a->addr != b->addr)
		return a->addr < b->addr ? -1 : 1;
	return 0;
}

/* Sort the entries by address. -ENOMEM. */
static int sort_by_addr(struct sym_builder *b)
{
	struct sym_entry *e = b->entries;
	uint64_t low = UINT64_MAX, high = 0;
	size_t n = b->n_entries;
	struct key *keys, *sorted;
	bool is_sorted = true;

	for (size_t i = 0; i < n; i++) {
		low = e[i].addr < low ? e[i].addr : low;
		high = e[i].addr > high ? e[i].addr : high;
		is_sorted = is_sorted && (i == 0 || e[i - 1].addr <= e[i].addr);
	}
	if (is_sorted)
		return 0;
	if ((high - low) >> 40) {
		qsort(e, n, sizeof(*e), compare_addr);
		return 0;
	}
	keys = malloc(2 * n * sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		keys[i].addr = (e[i].addr - low) & (((uint64_t)1 << 40) - 1);
		keys[i].entry = i & (((uint32_t)1 << 24) - 1);
	}
	sorted = sort_keys(keys, keys + n, n, high - low);
	move_entries(e, sorted, n);
	free(keys);
	return 0;
}

/* Return whether a is the better of two symbols at one address, by the rule in symbolizer.h. */
static bool is_better(const struct sym_builder *b, const struct sym_entry *a,
		      const struct sym_entry *c)
{
	int order;

	if (rank_of(a) != rank_of(c))
		return rank_of(a) < rank_of(c);
	order = sym_prefer(b->names + a->name, length_of(b, a), b->names + c->name,
			   length_of(b, c));
	return order ? order < 0 : a->end > c->end;
}

/* Unread names that may be better than the names of chosen entries. */
struct others {
	size_t n;
	struct {
		size_t chosen;
		uint32_t name;
	} list[ALIASES_MAX];
};

/* Do the same as is_better for two entries that differ only in name and end, with lazy names. */
static bool is_better_unread(struct sym_builder *b, const struct sym_entry *a,
			     const struct sym_entry *c)
{
	int order = 0;

	if (!b->odd && (a->name | c->name) & SYM_NAME_ARENA)
		b->odd = -ENOTSUP;
	if (!b->odd && a->name != c->name)
		b->odd = sym_unread_prefer(b->unread, a->name, c->name, &order);
	return order ? order < 0 : a->end > c->end;
}

/* Return whether e is among the entries between which names decide. */
static bool is_candidate(const struct sym_entry *e, const struct sym_entry *first, uint64_t reached)
{
	return e->end > reached && rank_of(e) == rank_of(first);
}

/*
 * Choose among symbols at one address with lazy names. If the best ones differ only in their names,
 * choose any of them and note the other names as aliases. If their ends differ, the names must be
 * compared now.
 */
static const struct sym_entry *choose_unread(struct sym_builder *b, const struct sym_entry *group,
					     size_t n, uint64_t reached, size_t chosen,
					     struct others *others)
{
	const struct sym_entry *first = NULL, *best;
	size_t candidates = 0;
	bool alike = true;

	for (size_t i = 0; i < n; i++)
		if (group[i].end > reached && (!first || rank_of(&group[i]) < rank_of(first)))
			first = &group[i];
	for (size_t i = 0; first && i < n; i++) {
		if (is_candidate(&group[i], first, reached)) {
			candidates++;
			alike = alike && group[i].end == first->end;
		}
	}
	alike = alike && candidates <= ALIASES_MAX - others->n;
	best = first;
	for (size_t i = 0; first && i < n; i++) {
		const struct sym_entry *e = &group[i];

		if (e == first || !is_candidate(e, first, reached))
			continue;
		if (!alike) {
			best = is_better_unread(b, e, best) ? e : best;
		} else if ((e->name | first->name) & SYM_NAME_ARENA) {
			b->odd = b->odd ? b->odd : -ENOTSUP;
		} else if (e->name != first->name) {
			others->list[others->n].chosen = chosen;
			others->list[others->n++].name = e->name;
		}
	}
	return best;
}

/* Do the same for names in the arena. */
static const struct sym_entry *
choose_read(const struct sym_builder *b, const struct sym_entry *group, size_t n, uint64_t reached)
{
	const struct sym_entry *best = NULL;

	for (size_t i = 0; i < n; i++) {
		if (group[i].end > reached && (!best || is_better(b, &group[i], best)))
			best = &group[i];
	}
	return best;
}

/*
 * Choose the best of n symbols at one address, and after it those that extend further, the best
 * first. Ends increase, so each chosen symbol is inside the next one. Return their number.
 */
static size_t choose(struct sym_builder *b, const struct sym_entry *group, size_t n,
		     struct sym_entry *chosen, struct others *others)
{
	uint64_t reached = 0;
	size_t found = 0;

	others->n = 0;
	while (found < SAME_ADDR_MAX) {
		const struct sym_entry *best;

		if (n == 1) /* most symbols are alone at their address */
			best = group;
		else if (b->unread)
			best = choose_unread(b, group, n, reached, found, others);
		else
			best = choose_read(b, group, n, reached);
		if (!best || (found && kind_of(best) != SYM_KIND_FUNC))
			break;
		chosen[found++] = *best;
		if (kind_of(best) != SYM_KIND_FUNC || n == 1)
			break;
		reached = best->end;
	}
	return found;
}

/* Add the aliases noted for one chosen entry. -ENOMEM. */
static int note_others(struct sym_builder *b, size_t entry, size_t chosen,
		       const struct others *others)
{
	for (size_t i = 0; i < others->n; i++) {
		if (others->list[i].chosen != chosen)
			continue;
		if (b->n_aliases == b->room_aliases) {
			size_t room = b->room_aliases ? b->room_aliases * 2 : 1024;
			struct sym_alias *grown =
				reallocarray(b->aliases, room, sizeof(*b->aliases));

			if (!grown)
				return -ENOMEM;
			b->aliases = grown;
			b->room_aliases = room;
		}
		b->aliases[b->n_aliases++] = (struct sym_alias){ .entry = (uint32_t)entry,
								 .name = others->list[i].name };
	}
	return 0;
}

/* Reduce the entries: usually one for each address, and none that a more trusted one covers. */
static int choose_all(struct sym_builder *b)
{
	struct sym_entry *e = b->entries;
	uint64_t func_end = 0, any_end = 0; /* ends of the sized entries so far */
	size_t kept = 0, next;
	struct others others;

	for (size_t i = 0; i < b->n_entries; i = next) {
		struct sym_entry chosen[SAME_ADDR_MAX];
		enum sym_kind kind;
		uint64_t reached;
		size_t n;

		for (next = i + 1; next < b->n_entries && e[next].addr == e[i].addr; next++)
			;
		n = choose(b, e + i, next - i, chosen, &others);
		kind = kind_of(&chosen[0]);
		if (kind != SYM_KIND_FUNC && chosen[0].addr < func_end)
			continue;
		if ((kind == SYM_KIND_LABEL_OPEN || kind == SYM_KIND_STUB) &&
		    chosen[0].addr < any_end)
			continue;
		/* A symbol without a size ends where the next one begins. */
		if (kept && is_open(kind_of(&e[kept - 1])) && e[kept - 1].end > chosen[0].addr)
			e[kept - 1].end = chosen[0].addr;
		reached = is_open(kind) ? 0 : chosen[n - 1].end;
		any_end = reached > any_end ? reached : any_end;
		if (kind == SYM_KIND_FUNC)
			func_end = reached > func_end ? reached : func_end;
		while (n) { /* the widest first, because a lookup finds the last one first */
			e[kept] = chosen[--n];
			if (others.n && note_others(b, kept, n, &others))
				return -ENOMEM;
			kept++;
		}
	}
	b->n_entries = kept;
	return 0;
}

/* Link each entry to the nearest one before it that extends beyond the entry's start. */
static void link_enclosing(struct sym_builder *b)
{
	struct sym_entry *e = b->entries;

	for (size_t i = 0; i < b->n_entries; i++) {
		uint32_t up = i ? (uint32_t)(i - 1) : NONE;

		while (up != NONE && e[up].end <= e[i].addr)
			up = e[up].aux; /* it ends before i, so no later entry needs it either */
		e[i].name |= is_open(kind_of(&e[i])) ? SYM_ENTRY_OPEN : 0;
		e[i].aux = up;
	}
}

/* ---- names ------------------------------------------------------------------- */

static bool is_plain(const char *name, size_t n)
{
	return sym_plain_size(name, n, ' ') == n;
}

/* Make every chosen name valid UTF-8 of limited length. Most names are already. */
static int clean_names(struct sym_builder *b)
{
	uint64_t cleaned = 0;
	size_t kept = 0;

	for (size_t i = 0; i < b->n_entries; i++) {
		struct sym_entry e = b->entries[i];
		size_t n;
		uint64_t off;
		char *clean;
		int err;

		n = is_measured(&e) ? length_of(b, &e) : 0; /* names not measured are simple */
		if (!n || (n <= SYM_NAME_BYTES_MAX && is_plain(b->names + e.name, n))) {
			b->entries[kept++] = e;
			continue;
		}
		clean = sym_sanitize(b->names + e.name, n, SYM_NAME_BYTES_MAX);
		if (!clean)
			return -ENOMEM;
		n = strlen(clean);
		cleaned += n + 1;
		err = cleaned > CLEANED_MAX ? -E2BIG : sym_builder_names(b, n, &off);
		if (!err) {
			memcpy(b->names + off, clean, n);
			e.name = (uint32_t)off;
			e.aux = (e.aux & ~LENGTH_MASK) | (uint32_t)n;
			b->entries[kept++] = e;
		}
		free(clean);
		err = sym_builder_left_out(b, err);
		if (err)
			return err;
	}
	b->n_entries = kept;
	return 0;
}

/* Copy the names in use to a new arena, if that halves its size. String tables name data, too. */
static void pack_names(struct sym_builder *b)
{
	uint64_t need = 0, done = 0;
	char *packed;

	for (size_t i = 0; i < b->n_entries; i++) {
		if (!is_measured(&b->entries[i]))
			return; /* measuring all names would cost more than the memory is worth */
		need += length_of(b, &b->entries[i]) + 1;
	}
	if (need > b->names_size / 2)
		return;
	packed = malloc(need + 1);
	if (!packed)
		return; /* this only saves memory */
	for (size_t i = 0; i < b->n_entries; i++) {
		struct sym_entry *e = &b->entries[i];

		memcpy(packed + done, b->names + e->name, length_of(b, e) + 1);
		e->name = (uint32_t)done;
		done += length_of(b, e) + 1;
	}
	free(b->names);
	b->names = packed;
	b->names_size = done;
}

/* ---- the table ------------------------------------------------------------------ */

/*
 * Build a table. debug is the file's separate debug file; NULL: there is none. unread: use lazy
 * names; on success unread and pages belong to the table. -EAGAIN: lazy names are impossible for
 * this file. On any failure unread and pages stay the caller's.
 */
static int open_image(const struct sym_image *image, const struct sym_image *debug,
		      struct sym_unread *unread, const struct sym_pages *pages,
		      struct sym_table **out)
{
	struct sym_table *table = calloc(1, sizeof(*table));
	struct sym_builder b = { .unread = unread,
				 .pages = pages ? *pages : (struct sym_pages){ 0 } };
	struct sym_entry *fitting;
	char *names;
	int err;

	if (!table)
		return -ENOMEM;
	err = add_image(&b, image, false);
	if (!err && debug)
		err = add_image(&b, debug, true);
	if (err)
		goto out;
	bound_opens(&b);
	err = sort_by_addr(&b);
	if (err)
		goto out;
	err = choose_all(&b);
	if (!err && b.odd)
		err = -EAGAIN;
	if (!err && !b.unread)
		err = clean_names(&b);
	if (err)
		goto out;
	if (!b.unread)
		pack_names(&b);
	link_enclosing(&b);
	fitting = b.n_entries ? realloc(b.entries, b.n_entries * sizeof(*fitting)) : NULL;
	table->entries = fitting ? fitting : b.entries;
	table->n_entries = b.n_entries;
	names = b.names_size ? realloc(b.names, b.names_size) : NULL;
	table->names = names ? names : b.names;
	table->names_size = b.names_size;
	table->damage = b.damage;
	table->aliases = b.aliases;
	table->n_aliases = b.n_aliases;
	table->unread = unread;
	table->pages = b.pages;
	b.entries = NULL;
	b.names = NULL;
	b.aliases = NULL;
	*out = table;
	table = NULL;
out:
	free(b.entries);
	free(b.names);
	free(b.dynsym_bytes);
	free(b.aliases);
	free(b.opens);
	free(table);
	return err;
}

int sym_table_open_with(int fd, uint64_t elf_off, int debug_fd, struct sym_table **out)
{
	struct sym_image image, debug;
	int err = sym_image_init_fd(&image, fd, elf_off);
	bool has_debug;

	if (err)
		return err;
	has_debug = debug_fd >= 0 && !sym_image_init_fd(&debug, debug_fd, 0);
	err = open_image(&image, has_debug ? &debug : NULL, NULL, NULL, out);
	if (has_debug)
		sym_image_fini(&debug);
	sym_image_fini(&image);
	return err;
}

/* Return whether lazy names pay: the image has a large string table and no .gnu_debugdata. */
static bool has_many_names(const struct sym_image *image)
{
	uint64_t size = 0;

	for (size_t i = 1; i < image->n_sections; i++) {
		const Elf64_Shdr *s = &image->sections[i];

		if ((s->sh_type == SHT_SYMTAB || s->sh_type == SHT_DYNSYM) &&
		    s->sh_link < image->n_sections && image->sections[s->sh_link].sh_size > size)
			size = image->sections[s->sh_link].sh_size;
	}
	return size >= UNREAD_MIN && !sym_image_section(image, ".gnu_debugdata");
}

int sym_table_open_brief(int fd, const struct uw_view *view, uint64_t elf_off, int debug_fd,
			 const uint64_t *vaddrs, size_t n, struct sym_table **out)
{
	static const struct uw_view none;
	struct sym_pages pages = { .n = 0 };
	struct sym_unread *unread = NULL;
	struct sym_image image;
	int err;

	if (!view)
		view = &none;
	if (debug_fd >= 0)
		return sym_table_open_with(fd, elf_off, debug_fd, out);
	err = sym_image_init_viewed(&image, fd, elf_off, view);
	if (err)
		return err;
	err = has_many_names(&image) ? sym_unread_new(fd, view, &unread) : -EAGAIN;
	if (!err && n)
		err = choose_pages(&image, vaddrs, n, &pages);
	if (!err)
		err = open_image(&image, NULL, unread, &pages, out);
	/* Otherwise read the table like any other: the names cannot or need not be lazy. */
	if (err) {
		sym_unread_free(unread);
		free(pages.bits);
		err = open_image(&image, NULL, NULL, NULL, out);
	}
	sym_image_fini(&image);
	return err;
}

int sym_table_open(int fd, uint64_t elf_off, struct sym_table **out)
{
	return sym_table_open_with(fd, elf_off, -1, out);
}

int sym_table_open_image(const void *bytes, size_t size, struct sym_table **out)
{
	struct sym_image image;
	int err = sym_image_init_bytes(&image, bytes, size);

	if (err)
		return err;
	err = open_image(&image, NULL, NULL, NULL, out);
	sym_image_fini(&image);
	return err;
}

void sym_table_free(struct sym_table *table)
{
	if (!table)
		return;
	if (table->blob || table->kept) {
		uw_blob_free(table->kept);
		free(table->blob);
	} else {
		free(table->entries);
		free(table->names);
		free(table->aliases);
		free(table->pages.bits);
		sym_unread_free(table->unread);
	}
	free(table);
}

size_t sym_table_size(const struct sym_table *table)
{
	return table->n_entries;
}

int sym_table_damage(const struct sym_table *table)
{
	return table->damage;
}

int sym_table_at(const struct sym_table *table, size_t i, struct sym_symbol *out)
{
	const struct sym_entry *e;
	const char *name;
	int err = i < table->n_entries ? sym_keep_need(table, i) : -ENOENT;

	if (err)
		return err;
	e = &table->entries[i];
	if (table->unread) {
		err = sym_unread_name(table, i, &name);
	} else {
		name = table->names + (e->name & ~SYM_ENTRY_OPEN);
		err = sym_keep_need_name(table, e->name & ~SYM_ENTRY_OPEN);
	}
	if (err)
		return err;
	*out = (struct sym_symbol){ .addr = e->addr,
				    .size = e->name & SYM_ENTRY_OPEN ? 0 : e->end - e->addr,
				    .name = name };
	return 0;
}

/*
 * Find the range of entries in which the first entry after vaddr is. In a stored table, read these
 * entries.
 */
static int narrow(const struct sym_table *table, uint64_t vaddr, size_t *from, size_t *past)
{
	size_t low = 0, high;

	*from = 0;
	*past = table->n_entries;
	if (!table->kept)
		return 0;
	high = (table->n_entries + SYMBOLS_GROUP - 1) / SYMBOLS_GROUP;
	while (low < high) { /* the first group that begins beyond vaddr */
		size_t middle = low + (high - low) / 2;

		if (table->group[middle] <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	*from = low ? (low - 1) * SYMBOLS_GROUP : 0;
	*past = low * SYMBOLS_GROUP < table->n_entries ? low * SYMBOLS_GROUP : table->n_entries;
	return sym_keep_have(table, *from, *past);
}

int sym_table_find(const struct sym_table *table, uint64_t vaddr, struct sym_symbol *out)
{
	size_t low, high;
	uint32_t at;
	int err = narrow(table, vaddr, &low, &high);

	if (!err && table->pages.n && !has_page(&table->pages, vaddr))
		err = -EAGAIN;
	if (err)
		return err;
	while (low < high) { /* the first entry that starts beyond vaddr */
		size_t middle = low + (high - low) / 2;

		if (table->entries[middle].addr <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	at = low ? (uint32_t)(low - 1) : NONE;
	for (int i = 0; i < ENCLOSING_MAX && at != NONE; i++) {
		err = sym_keep_need(table, at);
		if (err)
			return err;
		if (vaddr < table->entries[at].end)
			return sym_table_at(table, at, out);
		at = table->entries[at].aux;
	}
	return -ENOENT;
}
