/*
 * symbolizer/elf/symbol_table.h: the symbol table, and the builder that symbol readers fill.
 *
 * Names are stored one after another in an arena. Entries refer to them by offset, because the
 * arena moves when it grows.
 */
#ifndef SYMBOLIZER_ELF_SYMBOL_TABLE_H
#define SYMBOLIZER_ELF_SYMBOL_TABLE_H

#include "symbolizer/elf/lazy_names.h"
#include "symbolizer/elf/open.h"
#include "symbolizer/elf/pages.h"

/*
 * The largest files known (a browser with all its symbols) have some two million functions and 300
 * MB of names.
 */
#define SYM_ENTRIES_MAX ((size_t)16 << 20)
/* Longer names are cut. */
#define SYM_NAME_BYTES_MAX ((size_t)64 << 10)
/* Added to the name of the function that a PLT entry calls. */
#define SYM_STUB_SUFFIX "@plt"

/* In order of trust. An address gets symbols of its most trusted kind only. */
enum sym_kind {
	SYM_KIND_FUNC,	     /* typed, with a size */
	SYM_KIND_FUNC_OPEN,  /* typed, without a size */
	SYM_KIND_LABEL,	     /* untyped, with a size */
	SYM_KIND_LABEL_OPEN, /* untyped, without a size: hand-written assembly */
	SYM_KIND_STUB,	     /* made by plt.c for a PLT entry */
};

enum sym_bind { SYM_BIND_GLOBAL, SYM_BIND_WEAK, SYM_BIND_LOCAL };

struct sym_entry {
	uint64_t addr;
	uint64_t end;  /* > addr */
	uint32_t name; /* arena offset; SYM_ENTRY_OPEN: the size is not stated */
	uint32_t aux;  /* first kind, bind and name length; later the enclosing entry */
};
#define SYM_ENTRY_OPEN ((uint32_t)1 << 31)

struct sym_table {
	struct sym_entry *entries; /* owned, like the names, unless they are in the blob */
	size_t n_entries;
	char *names;
	size_t names_size;
	int damage;
	struct sym_lazy_names *lazy_names; /* lazy names; NULL: names are in the arena; owned */
	struct sym_alias *aliases;	   /* of entries with lazy names, by entry; owned */
	size_t n_aliases;
	struct sym_pages pages; /* if set, the table is complete for these pages only */
	/* A stored table; NULL: the table was read from a file; owned */
	void *blob;		/* entries and names are in it, and were all checked … */
	struct uw_blob *stored; /* … or parts are read and checked when they are needed */
	const uint64_t *group;	/* for stored: addresses of entries 0, SYMBOLS_GROUP, … */
};

/*
 * For a table in stored, read what is needed: entries [from, past), without checking their
 * contents; one entry, with a check that it is usable; a name to its end.
 */
int sym_keep_have(const struct sym_table *table, size_t from, size_t past);
int sym_keep_need(const struct sym_table *table, size_t i);
int sym_keep_need_name(const struct sym_table *table, uint32_t name);

struct sym_builder {
	struct sym_entry *entries; /* owned */
	size_t n_entries, room;
	char *names; /* owned */
	size_t names_size, names_room;
	uint64_t name_bytes; /* of all entries; shared names are counted each time */
	int damage;	     /* why the first part was left out; 0: nothing was */
	/* The file's own .dynsym, NULL: none or damaged; and its names in the arena. */
	const Elf64_Shdr *dynsym;
	uint64_t dynstr_at, dynstr_size;
	void *dynsym_bytes; /* the whole .dynsym, if it is small; NULL: read it again; owned */
	struct sym_lazy_names *lazy_names; /* NULL: names are read into the arena; borrowed */
	uint32_t dynstr_flag;		   /* marks names of that string table, if names are lazy */
	int odd;		   /* why lazy names are impossible for this file; 0: possible */
	struct sym_alias *aliases; /* owned */
	size_t n_aliases, room_aliases;
	/*
	 * If set, collect only symbols that overlap these pages; owned. Sized functions and PLT
	 * stubs outside can be dropped: no other symbol depends on them. All other symbols are
	 * collected first because they can end their neighbours. The pages where those begin are
	 * added to the set.
	 */
	struct sym_pages pages;
	bool sized_now;		 /* collect only functions with a size in this pass */
	struct sym_bound *opens; /* the symbols without a size, by address; owned */
	size_t n_opens;
};

/* next is where something that was left out begins, after the symbol without a size at addr. */
struct sym_bound {
	uint64_t addr, next;
};

/*
 * While a table is made, aux is the rank (kind and bind) and below it the length of the name in
 * bytes. SYM_UNMEASURED: the name was not measured, because a large library has 60,000 names, and
 * few are looked up.
 */
#define SYM_LENGTH_BITS 17
#define SYM_UNMEASURED	(((uint32_t)1 << SYM_LENGTH_BITS) - 1)

static inline unsigned int sym_entry_rank(const struct sym_entry *e)
{
	return e->aux >> SYM_LENGTH_BITS;
}

static inline enum sym_kind sym_entry_kind(const struct sym_entry *e)
{
	return (enum sym_kind)(sym_entry_rank(e) / 4);
}

static inline bool sym_kind_is_open(enum sym_kind kind)
{
	return kind == SYM_KIND_FUNC_OPEN || kind == SYM_KIND_LABEL_OPEN;
}

/* ---- symbolizer/elf/collect.c -------------------------------------------------------------- */

/*
 * Make room for size bytes and a NUL at the end of the arena, and set *off to the offset. -E2BIG
 * beyond the arena's limit of 1 GiB.
 */
int sym_builder_names(struct sym_builder *b, uint64_t size, uint64_t *off);
/* Add a symbol. name is the arena offset of length bytes and a NUL. -ENOMEM, -E2BIG. */
int sym_builder_add(struct sym_builder *b, uint64_t addr, uint64_t end, uint64_t name,
		    size_t length, enum sym_kind kind, enum sym_bind bind);
/* Record the first damage and return 0. System errors are returned unchanged. */
int sym_builder_left_out(struct sym_builder *b, int err);

/*
 * Add all symbols of an image and of its separate debug file (NULL: it has none). Damaged parts are
 * left out. On failure the builder is only to be freed.
 */
int sym_builder_collect(struct sym_builder *b, const struct uw_elf *image,
			const struct uw_elf *debug);

/* Return where a name ends before `@VERSION` or `@@VERSION`, which linkers append in .symtab. */
size_t sym_version_at(const char *name, size_t length);
/*
 * Return whether a local label marks no function: mapping symbols (AAELF64 §5.5.5), and labels of
 * assembler and annobin.
 */
bool sym_is_marker(const char *name);

/* ---- symbolizer/elf/choose.c --------------------------------------------------------------- */

/*
 * Make the entries what a table needs: sorted by address, usually one for each address, with clean
 * names, and aux the enclosing entry. -EAGAIN: names must not be lazy for this file. -ENOMEM.
 */
int sym_builder_choose(struct sym_builder *b);

/* ---- other readers of symbols -------------------------------------------------------------- */

/*
 * symbolizer/elf/plt.c: add `name@plt` for the stubs through which x86_64 and aarch64 code calls other
 * objects.
 */
int sym_plt_add(struct sym_builder *b, const struct uw_elf *image);

/* symbolizer/elf/go_names.c: add the functions of a Go program from its own table. */
int sym_gopclntab_add(struct sym_builder *b, const struct uw_elf *image);

/* symbolizer/elf/v8_builtins.c: add the functions that are built into V8, of a library that exports V8's functions. */
int sym_v8_builtins_add(struct sym_builder *b, const struct uw_elf *image);

#endif
