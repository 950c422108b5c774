/*
 * symbolizer/table.h: what symbol readers put into a table that is being built.
 *
 * Names lie one after another in one arena and are told by offset, because the
 * arena moves as it grows.
 */
#ifndef SYMBOLIZER_TABLE_H
#define SYMBOLIZER_TABLE_H

#include "symbolizer/image.h"
#include "symbolizer/unread.h"

/* Longer names are cut. */
#define SYM_NAME_BYTES_MAX ((size_t)64 << 10)
/* Behind the name of whom a PLT entry calls. */
#define SYM_STUB_SUFFIX "@plt"

/* In order of trust; an address keeps symbols of its most trusted kind. */
enum sym_kind {
	SYM_KIND_FUNC,	     /* typed, with a size */
	SYM_KIND_FUNC_OPEN,  /* typed, size not told */
	SYM_KIND_LABEL,	     /* untyped, with a size */
	SYM_KIND_LABEL_OPEN, /* untyped, size not told: hand-written assembly */
	SYM_KIND_STUB,	     /* made up here for a PLT entry */
};

enum sym_bind { SYM_BIND_GLOBAL, SYM_BIND_WEAK, SYM_BIND_LOCAL };

struct sym_entry {
	uint64_t addr;
	uint64_t end;  /* > addr */
	uint32_t name; /* arena offset; SYM_ENTRY_OPEN: its size was not told */
	uint32_t aux;  /* while built: kind, bind, length of the name; then: the enclosing entry */
};
#define SYM_ENTRY_OPEN ((uint32_t)1 << 31)

/* Pages of a file's code. */
struct sym_pages {
	uint64_t low;	/* where the first begins */
	size_t n;	/* 0: no such set */
	uint64_t *bits; /* owned */
};

struct sym_table {
	struct sym_entry *entries; /* owned, as are the names, unless they lie in the blob */
	size_t n_entries;
	char *names;
	size_t names_size;
	int damage;
	struct sym_unread *unread; /* NULL: names lie in names; owned, as is the next */
	struct sym_alias *aliases; /* of entries whose names are unread, in their order */
	size_t n_aliases;
	struct sym_pages pages; /* it has what there is in them, and not all else */
	/* NULL: it was read from a file; owned */
	void *blob;	       /* entries and names lie in it, all of it checked … */
	struct uw_blob *kept;  /* … or it is read, and looked at, as it is needed */
	const uint64_t *group; /* of a kept one: addresses of entries 0, SYMBOLS_GROUP, … */
};

/*
 * Of a kept table: sees to it that entries [from, past) are there, whatever they say; that one
 * is and can be used; that a name is, to its end.
 */
int sym_keep_have(const struct sym_table *table, size_t from, size_t past);
int sym_keep_need(const struct sym_table *table, size_t i);
int sym_keep_need_name(const struct sym_table *table, uint32_t name);

struct sym_builder {
	struct sym_entry *entries; /* owned */
	size_t n_entries, room;
	char *names; /* owned */
	size_t names_size, names_room;
	uint64_t name_bytes; /* of all entries, shared ones counted each time */
	int damage;	     /* the first part that was left out, and why */
	/* The file's own .dynsym, NULL: none or damaged; its names in the arena. */
	const Elf64_Shdr *dynsym;
	uint64_t dynstr_at, dynstr_size;
	void *dynsym_bytes; /* all of it, where that is little; NULL: it is read again; owned */
	struct sym_unread *unread; /* names stay where they are; NULL: they are read; borrowed */
	uint32_t dynstr_flag;	   /* of names of that table, where they are unread */
	int odd;		   /* why it cannot be done without the names after all */
	struct sym_alias *aliases; /* owned */
	size_t n_aliases, room_aliases;
	/*
	 * Only what reaches into these pages is wanted; owned.  Functions with a size and stubs can be
	 * left out, nobody is named by others there; all else decides about others' ends and is known
	 * first, and the pages where it begins are wanted too.
	 */
	struct sym_pages pages;
	bool sized_now; /* functions with a size are what is being collected, and nothing else */
	struct sym_bound *opens; /* of what has no size, by address; owned */
	size_t n_opens;
};

/* Where something that was left out begins, beyond a symbol without a size. */
struct sym_bound {
	uint64_t addr, next;
};

/* A name nobody has measured yet: there are 60,000 in a large library, of which few are asked for. */
#define SYM_UNMEASURED (((size_t)1 << 17) - 1)

/*
 * Room for size bytes and a NUL at the end of the arena; *off says where.
 * -E2BIG beyond the arena's 1 GiB.
 */
int sym_builder_names(struct sym_builder *b, uint64_t size, uint64_t *off);
/* name: arena offset of `length` bytes and a NUL. */
int sym_builder_add(struct sym_builder *b, uint64_t addr, uint64_t end, uint64_t name,
		    size_t length, enum sym_kind kind, enum sym_bind bind);
/* Keeps the first damage; system failures pass through, everything else becomes 0. */
int sym_builder_left_out(struct sym_builder *b, int err);

/* `name@VERSION` and `name@@VERSION`, as linkers write into .symtab: where the name ends. */
size_t sym_version_at(const char *name, size_t length);
/* Local labels that mark no function: mapping symbols (AAELF64 §5.5.5), assembler and annotator ones. */
bool sym_is_marker(const char *name);

/* symbolizer/plt.c: `name@plt` for the stubs through which x86_64 and aarch64 code calls others. */
int sym_plt_add(struct sym_builder *b, const struct sym_image *image);

/* symbolizer/gopclntab.c: the functions of a Go program, by its own table. */
int sym_gopclntab_add(struct sym_builder *b, const struct sym_image *image);

#endif
