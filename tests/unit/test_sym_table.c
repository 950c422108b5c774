/*
 * tests/unit/test_sym_table.c: tests symbol tables: sizes, aliases, kinds of symbols, damaged
 * files.
 */
#include "symbolizer/symbolizer.h"

#include "tests/check.h"

#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file of one page of headers and tables; .text and .data exist only as headers. */
enum { TEXT = 1, DATA, SYMTAB, STRTAB, SHSTRTAB, SECTIONS };
#define TEXT_ADDR 0x1000
#define TEXT_SIZE 0x1000

struct file {
	Elf64_Ehdr head;
	Elf64_Shdr sections[SECTIONS];
	char section_names[64];
	Elf64_Sym symbols[40];
	char strings[2048];
};

struct builder {
	struct file file;
	size_t n_symbols, n_strings;
};

static void start(struct builder *b)
{
	static const char names[] = "\0.text\0.data\0.symtab\0.strtab\0.shstrtab";
	struct file *f = &b->file;

	memset(b, 0, sizeof(*b));
	memcpy(f->head.e_ident, ELFMAG, SELFMAG);
	f->head.e_ident[EI_CLASS] = ELFCLASS64;
	f->head.e_ident[EI_DATA] = ELFDATA2LSB;
	f->head.e_ident[EI_VERSION] = EV_CURRENT;
	f->head.e_type = ET_DYN;
	f->head.e_machine = EM_X86_64;
	f->head.e_ehsize = sizeof(f->head);
	f->head.e_shoff = offsetof(struct file, sections);
	f->head.e_shentsize = sizeof(Elf64_Shdr);
	f->head.e_shnum = SECTIONS;
	f->head.e_shstrndx = SHSTRTAB;
	memcpy(f->section_names, names, sizeof(names));
	f->sections[TEXT] = (Elf64_Shdr){ .sh_name = 1,
					  .sh_type = SHT_NOBITS,
					  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
					  .sh_addr = TEXT_ADDR,
					  .sh_size = TEXT_SIZE };
	f->sections[DATA] = (Elf64_Shdr){ .sh_name = 7,
					  .sh_type = SHT_NOBITS,
					  .sh_flags = SHF_ALLOC | SHF_WRITE,
					  .sh_addr = 0x3000,
					  .sh_size = 0x1000 };
	f->sections[SYMTAB] = (Elf64_Shdr){ .sh_name = 13,
					    .sh_type = SHT_SYMTAB,
					    .sh_offset = offsetof(struct file, symbols),
					    .sh_link = STRTAB,
					    .sh_entsize = sizeof(Elf64_Sym) };
	f->sections[STRTAB] = (Elf64_Shdr){ .sh_name = 21,
					    .sh_type = SHT_STRTAB,
					    .sh_offset = offsetof(struct file, strings) };
	f->sections[SHSTRTAB] = (Elf64_Shdr){ .sh_name = 29,
					      .sh_type = SHT_STRTAB,
					      .sh_offset = offsetof(struct file, section_names),
					      .sh_size = sizeof(f->section_names) };
	b->n_symbols = b->n_strings = 1;
	f->sections[SYMTAB].sh_size = sizeof(Elf64_Sym);
	f->sections[STRTAB].sh_size = 1;
}

static void add(struct builder *b, uint64_t addr, uint64_t size, unsigned int bind,
		unsigned int type, uint16_t section, const char *name)
{
	b->file.symbols[b->n_symbols++] =
		(Elf64_Sym){ .st_name = (uint32_t)b->n_strings,
			     .st_info = (unsigned char)ELF64_ST_INFO(bind, type),
			     .st_shndx = section,
			     .st_value = addr,
			     .st_size = size };
	memcpy(b->file.strings + b->n_strings, name, strlen(name) + 1);
	b->n_strings += strlen(name) + 1;
	b->file.sections[SYMTAB].sh_size = b->n_symbols * sizeof(Elf64_Sym);
	b->file.sections[STRTAB].sh_size = b->n_strings;
}

static void func(struct builder *b, uint64_t addr, uint64_t size, const char *name)
{
	add(b, addr, size, STB_GLOBAL, STT_FUNC, TEXT, name);
}

static struct sym_table *finish(const struct builder *b)
{
	struct sym_table *table = NULL;

	CHECK(sym_table_open_image(&b->file, sizeof(b->file), &table) == 0 && table, "opens");
	return table;
}

/* "": nobody is there */
static const char *name_at(const struct sym_table *table, uint64_t addr)
{
	struct sym_symbol s = { 0 };

	if (!table || sym_table_find(table, addr, &s))
		return "";
	return s.name;
}

#define CHECK_NAME(table, addr, name, what) CHECK(strcmp(name_at(table, addr), name) == 0, what)

static void test_a_function_reaches_over_its_size(void)
{
	struct builder b;
	struct sym_table *t;
	struct sym_symbol s;

	start(&b);
	func(&b, 0x1100, 0x20, "second"); /* not in order of address */
	func(&b, 0x1000, 0x10, "first");
	func(&b, 0x1ff0, 0x100, "too_long");
	t = finish(&b);
	CHECK_NAME(t, 0xfff, "", "before all");
	CHECK_NAME(t, 0x1000, "first", "first byte");
	CHECK_NAME(t, 0x100f, "first", "last byte");
	CHECK_NAME(t, 0x1010, "", "a gap");
	CHECK_NAME(t, 0x111f, "second", "last byte");
	CHECK_NAME(t, 0x1fff, "too_long", "end of the section");
	CHECK_NAME(t, 0x2000, "", "no function leaves its section");
	CHECK_NAME(t, UINT64_MAX, "", "the last address");
	CHECK(t && sym_table_size(t) == 3 && sym_table_damage(t) == 0, "three, undamaged");
	CHECK(t && sym_table_at(t, 0, &s) == 0 && s.addr == 0x1000 && s.size == 0x10, "rank 0");
	CHECK(t && sym_table_at(t, 1, &s) == 0 && strcmp(s.name, "second") == 0, "rank 1");
	CHECK(t && sym_table_at(t, 3, &s) == -ENOENT, "no rank 3");
	sym_table_free(t);
}

static void test_without_a_size_it_reaches_to_the_next(void)
{
	struct builder b;
	struct sym_table *t;
	struct sym_symbol s = { .size = 1 };

	start(&b);
	func(&b, 0x1000, 0, "open");
	func(&b, 0x1040, 0x10, "sized");
	func(&b, 0x1048, 0, "inside_sized");
	func(&b, 0x1080, 0, "last");
	t = finish(&b);
	CHECK_NAME(t, 0x103f, "open", "up to the next");
	CHECK(t && sym_table_find(t, 0x1000, &s) == 0 && s.size == 0, "and says it does not know");
	CHECK_NAME(t, 0x104a, "sized", "a size says more than none");
	CHECK_NAME(t, 0x1050, "", "behind a sized one nobody is");
	CHECK_NAME(t, 0x1fff, "last", "up to the section's end");
	CHECK_NAME(t, 0x2000, "", "not beyond");
	sym_table_free(t);
}

static void test_the_innermost_function_wins(void)
{
	struct builder b;
	struct sym_table *t;

	start(&b);
	func(&b, 0x1000, 0x100, "outer");
	func(&b, 0x1010, 0x40, "middle");
	func(&b, 0x1020, 0x10, "inner");
	func(&b, 0x1048, 0x20, "overlap");
	func(&b, 0x1200, 0x10, "short");
	add(&b, 0x1200, 0x40, STB_LOCAL, STT_FUNC, TEXT, "long");
	t = finish(&b);
	CHECK_NAME(t, 0x100f, "outer", "before the middle one");
	CHECK_NAME(t, 0x1018, "middle", "in the middle one");
	CHECK_NAME(t, 0x1028, "inner", "in the inner one");
	CHECK_NAME(t, 0x1038, "middle", "behind the inner one");
	CHECK_NAME(t, 0x1048, "overlap", "the one that starts last");
	CHECK_NAME(t, 0x1060, "overlap", "beyond the middle one");
	CHECK_NAME(t, 0x1070, "outer", "behind them all");
	CHECK_NAME(t, 0x1100, "", "behind the outer one");
	CHECK_NAME(t, 0x120f, "short", "two at one address: the better name");
	CHECK_NAME(t, 0x1210, "long", "and behind its end the longer one");
	sym_table_free(t);
}

static void test_one_name_of_several_is_chosen(void)
{
	/* The first of the two must win each time; the table has them in both orders. */
	static const struct {
		const char *what;
		struct {
			uint64_t size;
			unsigned int bind, type;
			const char *name;
		} of[2];
	} pairs[] = {
		{ "typed over untyped",
		  { { 8, STB_LOCAL, STT_FUNC, "zzz" }, { 8, STB_GLOBAL, STT_NOTYPE, "a" } } },
		{ "sized over open",
		  { { 8, STB_LOCAL, STT_FUNC, "zzz" }, { 0, STB_GLOBAL, STT_FUNC, "a" } } },
		{ "global over weak",
		  { { 8, STB_GLOBAL, STT_FUNC, "__zzz" }, { 8, STB_WEAK, STT_FUNC, "a" } } },
		{ "weak over local",
		  { { 8, STB_WEAK, STT_FUNC, "__zzz" }, { 8, STB_LOCAL, STT_FUNC, "a" } } },
		{ "unique is global",
		  { { 8, STB_GNU_UNIQUE, STT_FUNC, "__zzz" }, { 8, STB_WEAK, STT_FUNC, "a" } } },
		{ "fewer underscores",
		  { { 8, STB_GLOBAL, STT_FUNC, "write_it" }, { 8, STB_GLOBAL, STT_FUNC, "_w" } } },
		{ "shorter",
		  { { 8, STB_GLOBAL, STT_FUNC, "zz" }, { 8, STB_GLOBAL, STT_FUNC, "aaa" } } },
		{ "by bytes",
		  { { 8, STB_GLOBAL, STT_FUNC, "ab" }, { 8, STB_GLOBAL, STT_GNU_IFUNC, "ac" } } },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]) * 2; i++) {
		struct builder b;
		struct sym_table *t;

		start(&b);
		for (size_t j = 0; j < 2; j++) {
			size_t k = (i + j) % 2;

			add(&b, 0x1000, pairs[i / 2].of[k].size, pairs[i / 2].of[k].bind,
			    pairs[i / 2].of[k].type, TEXT, pairs[i / 2].of[k].name);
		}
		t = finish(&b);
		CHECK(t && sym_table_size(t) == 1, pairs[i / 2].what);
		CHECK_NAME(t, 0x1004, pairs[i / 2].of[0].name, pairs[i / 2].what);
		sym_table_free(t);
	}
}

static void test_what_counts_as_a_function(void)
{
	struct builder b;
	struct sym_table *t;

	start(&b);
	add(&b, 0x1000, 0, STB_GLOBAL, STT_NOTYPE, TEXT, "_start");
	add(&b, 0x1040, 0x10, STB_LOCAL, STT_NOTYPE, TEXT, "sized_label");
	add(&b, 0x1080, 0x20, STB_GLOBAL, STT_GNU_IFUNC, TEXT, "ifunc");
	add(&b, 0x1088, 0x8, STB_GLOBAL, STT_NOTYPE, TEXT, "label_inside");
	add(&b, 0x1100, 0x20, STB_GLOBAL, STT_OBJECT, TEXT, "table_in_text");
	add(&b, 0x1140, 0x20, STB_GLOBAL, STT_FUNC, SHN_UNDEF, "undefined");
	add(&b, 0x1180, 0x20, STB_GLOBAL, STT_FUNC, SHN_ABS, "absolute");
	add(&b, 0x11c0, 0, STB_LOCAL, STT_NOTYPE, TEXT, "$x");
	add(&b, 0x11c4, 0, STB_LOCAL, STT_NOTYPE, TEXT, "$d.3");
	add(&b, 0x11c8, 0, STB_LOCAL, STT_NOTYPE, TEXT, ".Ltmp3");
	add(&b, 0x11cc, 0, STB_LOCAL, STT_NOTYPE, TEXT, ".annobin_a.c");
	add(&b, 0x11d0, 4, STB_LOCAL, STT_SECTION, TEXT, "section");
	add(&b, 0x3000, 8, STB_GLOBAL, STT_NOTYPE, DATA, "label_in_data");
	add(&b, 0x2000, 0, STB_GLOBAL, STT_NOTYPE, TEXT, "_etext");
	add(&b, 0x5000, 8, STB_GLOBAL, STT_FUNC, TEXT, "outside_its_section");
	add(&b, 0x1200, 8, STB_GLOBAL, STT_FUNC, TEXT, "");
	add(&b, 0x1210, 8, STB_GLOBAL, STT_FUNC, TEXT, "write@@GLIBC_2.2.5");
	add(&b, 0x1220, 8, STB_GLOBAL, STT_FUNC, TEXT, "old@OPENSSL_1_1_0");
	add(&b, 0x1230, 8, STB_GLOBAL, STT_FUNC, TEXT, "-[Foo a@b:]");
	add(&b, 0x1240, 8, STB_GLOBAL, STT_FUNC, TEXT, "?f@@YAXXZ");
	add(&b, 0x1250, 8, STB_GLOBAL, STT_FUNC, TEXT, "@at");
	add(&b, 0x1260, 8, STB_GLOBAL, STT_FUNC, TEXT, "evil\x1b[2J\xff");
	t = finish(&b);
	CHECK_NAME(t, 0x1020, "_start", "hand-written assembly");
	CHECK_NAME(t, 0x1040, "sized_label", "a label with a size");
	CHECK_NAME(t, 0x1088, "ifunc", "an ifunc, and labels in it give way");
	CHECK_NAME(t, 0x1110, "", "data in text");
	CHECK_NAME(t, 0x1150, "", "undefined");
	CHECK_NAME(t, 0x1190, "", "absolute");
	CHECK_NAME(t, 0x11d0, "", "markers");
	CHECK_NAME(t, 0x3000, "", "data");
	CHECK_NAME(t, 0x2000, "", "the end of a section");
	CHECK_NAME(t, 0x5000, "", "not where it says");
	CHECK_NAME(t, 0x1204, "", "no name");
	CHECK_NAME(t, 0x1214, "write", "default version");
	CHECK_NAME(t, 0x1224, "old", "older version");
	CHECK_NAME(t, 0x1234, "-[Foo a@b:]", "no version");
	CHECK_NAME(t, 0x1244, "?f@@YAXXZ", "Microsoft's mangling");
	CHECK_NAME(t, 0x1254, "@at", "not a version alone");
	CHECK_NAME(t, 0x1264, "evil\xef\xbf\xbd[2J\xef\xbf\xbd", "clean");
	sym_table_free(t);
}

static void test_damage_costs_no_more_than_its_part(void)
{
	struct builder b;
	struct sym_table *t = NULL;

	start(&b);
	func(&b, 0x1000, 0x10, "good");
	func(&b, 0x1010, 0x10, "bad");
	b.file.symbols[2].st_name = 0x7fffffff;
	t = finish(&b);
	CHECK_NAME(t, 0x1000, "good", "one name beyond the strings");
	CHECK(t && sym_table_damage(t) == -EBADMSG, "is told");
	sym_table_free(t);

	start(&b);
	func(&b, 0x1000, 0x10, "good");
	b.file.sections[SYMTAB].sh_size = UINT64_MAX - 8;
	t = finish(&b);
	CHECK(t && sym_table_size(t) == 0 && sym_table_damage(t) == -EBADMSG, "a size beyond all");
	sym_table_free(t);

	start(&b);
	func(&b, 0x1000, 0x10, "good");
	b.file.sections[SYMTAB].sh_link = 1000;
	t = finish(&b);
	CHECK(t && sym_table_size(t) == 0 && sym_table_damage(t) == -EBADMSG, "no such strings");
	sym_table_free(t);

	start(&b);
	func(&b, 0x1000, 0x10, "good");
	b.file.sections[STRTAB].sh_size -= 3; /* "go" is the end of the strings */
	t = finish(&b);
	CHECK_NAME(t, 0x1000, "go", "strings without their last NUL");
	sym_table_free(t);

	start(&b);
	func(&b, 0x1000, UINT64_MAX, "huge");
	func(&b, 0x1800, 0x10, "good");
	t = finish(&b);
	CHECK_NAME(t, 0x1fff, "huge", "a size that would wrap ends with the section");
	CHECK_NAME(t, 0x2000, "", "there");
	sym_table_free(t);
}

static void test_what_is_not_elf_is_refused(void)
{
	struct builder b;
	struct sym_table *t = NULL;
	int fds[2];

	start(&b);
	CHECK(sym_table_open_image(NULL, 0, &t) == -EBADMSG, "nothing");
	CHECK(sym_table_open_image("\x7f"
				   "EL",
				   3, &t) == -EBADMSG,
	      "three bytes");
	CHECK(sym_table_open_image("#!/bin/sh\nexit 0\n", 17, &t) == -EBADMSG, "a script");
	CHECK(sym_table_open_image(&b.file, sizeof(Elf64_Ehdr), &t) == -EBADMSG, "a head alone");
	b.file.head.e_ident[EI_DATA] = ELFDATA2MSB;
	CHECK(sym_table_open_image(&b.file, sizeof(b.file), &t) == -ENOTSUP, "big-endian");
	b.file.head.e_ident[EI_DATA] = ELFDATA2LSB;
	b.file.head.e_shentsize = 8;
	CHECK(sym_table_open_image(&b.file, sizeof(b.file), &t) == -EBADMSG, "tiny headers");
	CHECK(sym_table_open(-1, 0, &t) == -EINVAL, "no descriptor");
	CHECK(pipe(fds) == 0, "pipe");
	CHECK(sym_table_open(fds[0], 0, &t) == -ENOTSUP, "a pipe");
	(void)close(fds[0]);
	(void)close(fds[1]);
	CHECK(!t, "nothing was made");
	sym_table_free(t);
	sym_table_free(NULL);
}

static void test_an_image_may_lie_within_a_file(void)
{
	struct builder b;
	struct sym_table *t = NULL;
	int fd = memfd_create("archive", MFD_CLOEXEC);

	start(&b);
	func(&b, 0x1000, 0x10, "inside");
	CHECK(fd >= 0 && pwrite(fd, &b.file, sizeof(b.file), 4096) == (ssize_t)sizeof(b.file),
	      "file");
	CHECK(sym_table_open(fd, 4096, &t) == 0, "at its offset");
	CHECK(sym_table_open(fd, 0, &t) == -EBADMSG, "not at another");
	CHECK(sym_table_open(fd, UINT64_MAX, &t) == -EBADMSG, "nor beyond the end");
	(void)close(fd);
	CHECK_NAME(t, 0x1000, "inside", "the descriptor is not needed any more");
	sym_table_free(t);
}

/*
 * The file of this program with changed bytes in its headers and tables; sanitizers check the
 * reads.
 */
static void test_changed_bytes_do_no_harm(void)
{
	FILE *file = fopen("/proc/self/exe", "rb");
	static uint8_t original[8 << 20], copy[sizeof(original)];
	size_t n = file ? fread(original, 1, sizeof(original), file) : 0;
	Elf64_Ehdr head = { 0 };
	Elf64_Shdr sections[64];
	uint64_t seed = 20240611;
	int opened = 0;

	if (n > sizeof(head))
		memcpy(&head, original, sizeof(head));
	CHECK(head.e_shnum > 1 && head.e_shnum <= 64 &&
		      head.e_shoff + head.e_shnum * sizeof(*sections) <= n,
	      "our own file has sections");
	memcpy(sections, original + head.e_shoff, head.e_shnum * sizeof(*sections));
	for (int round = 0; round < 300; round++) {
		struct sym_table *t = NULL;
		struct sym_symbol s;

		memcpy(copy, original, n);
		for (int i = 0; i <= round % 8; i++) {
			const Elf64_Shdr *section;
			uint64_t at;

			seed = seed * 6364136223846793005 + 1442695040888963407;
			section = &sections[(seed >> 33) % head.e_shnum];
			at = (seed >> 20 & 0xff) < 128
				     ? /* a header, or the data that it points to */
				     head.e_shoff +
					     (seed >> 40) % (head.e_shnum * sizeof(*sections))
				     : section->sh_offset +
					       (section->sh_size ? (seed >> 40) % section->sh_size
								 : 0);
			if (at < n)
				copy[at] = (uint8_t)(seed >> 56);
		}
		if (sym_table_open_image(copy, n, &t) == 0) {
			opened++;
			for (size_t i = 0; sym_table_at(t, i, &s) == 0; i++)
				(void)sym_table_find(t, s.addr + s.size, &s);
		}
		sym_table_free(t);
	}
	CHECK(opened > 0, "most can still be read");
	if (file)
		(void)fclose(file);
}

/* Any prefix of a file is an error or a table with what could be read. */
static void test_every_truncation_ends_well(void)
{
	struct builder b;
	int opened = 0;

	start(&b);
	for (int i = 0; i < 30; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "f%d", i);
		func(&b, TEXT_ADDR + (uint64_t)i * 16, 16, name);
	}
	for (size_t n = 0; n < sizeof(b.file); n++) {
		struct sym_table *t = NULL;
		void *exact = malloc(n ? n : 1); /* so that a sanitizer sees one byte too many */

		memcpy(exact, &b.file, n);
		if (sym_table_open_image(exact, n, &t) == 0)
			opened++;
		free(exact);
		sym_table_free(t);
	}
	CHECK(opened > 0 && opened < (int)sizeof(b.file), "some open, some do not");
}

static void test_the_narrow_class_is_read_too(void)
{
	struct {
		Elf32_Ehdr head;
		Elf32_Shdr sections[4];
		Elf32_Sym symbols[3];
		char strings[32];
	} f = { .head = { .e_type = ET_EXEC,
			  .e_machine = EM_ARM,
			  .e_shentsize = sizeof(Elf32_Shdr),
			  .e_shnum = 4 },
		.strings = "\0arm\0thumb" };
	struct sym_table *t = NULL;

	memcpy(f.head.e_ident, ELFMAG, SELFMAG);
	f.head.e_ident[EI_CLASS] = ELFCLASS32;
	f.head.e_ident[EI_DATA] = ELFDATA2LSB;
	f.head.e_shoff = (uint32_t)((char *)f.sections - (char *)&f);
	f.sections[1] = (Elf32_Shdr){ .sh_type = SHT_NOBITS,
				      .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
				      .sh_addr = 0x8000,
				      .sh_size = 0x1000 };
	f.sections[2] = (Elf32_Shdr){ .sh_type = SHT_SYMTAB,
				      .sh_offset = (uint32_t)((char *)f.symbols - (char *)&f),
				      .sh_size = sizeof(f.symbols),
				      .sh_link = 3 };
	f.sections[3] = (Elf32_Shdr){ .sh_type = SHT_STRTAB,
				      .sh_offset = (uint32_t)(f.strings - (char *)&f),
				      .sh_size = sizeof(f.strings) };
	f.symbols[1] = (Elf32_Sym){ .st_name = 1,
				    .st_info = ELF32_ST_INFO(STB_GLOBAL, STT_FUNC),
				    .st_shndx = 1,
				    .st_value = 0x8000,
				    .st_size = 16 };
	f.symbols[2] = (Elf32_Sym){ .st_name = 5,
				    .st_info = ELF32_ST_INFO(STB_GLOBAL, STT_FUNC),
				    .st_shndx = 1,
				    .st_value = 0x8011, /* bit 0: Thumb (AAELF32 §5.5.3) */
				    .st_size = 16 };
	CHECK(sym_table_open_image(&f, sizeof(f), &t) == 0, "opens");
	CHECK_NAME(t, 0x800f, "arm", "ARM code");
	CHECK_NAME(t, 0x8010, "thumb", "Thumb code");
	sym_table_free(t);
}

int main(void)
{
	test_a_function_reaches_over_its_size();
	test_without_a_size_it_reaches_to_the_next();
	test_the_innermost_function_wins();
	test_one_name_of_several_is_chosen();
	test_what_counts_as_a_function();
	test_damage_costs_no_more_than_its_part();
	test_what_is_not_elf_is_refused();
	test_an_image_may_lie_within_a_file();
	test_every_truncation_ends_well();
	test_changed_bytes_do_no_harm();
	test_the_narrow_class_is_read_too();
	return check_done();
}
