/*
 * tests/unit/test_v8_builtins.c: tests the names of functions that are built into V8: they are found in a library's tables, and
 * tables that do not fit together give none.
 */
#include "symbolizer/symbolizer.h"

#include "tests/check.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A library whose vaddrs are its file offsets. N functions of SIZE bytes begin every EACH bytes. */
enum { TEXT = 1, DYNSYM, DYNSTR, HASH, RELOCS, SHSTRTAB, SECTIONS };
enum { EXPORTS = 4, N = 100, SIZE = 50, EACH = 64, FUNCTION = 16 };

struct rela {
	Elf64_Rela block, parts, names[N];
};

/* V8 10 has 7 numbers for each function, and pointers to the block and the tables; V8 11 has 8, and no pointers. */
static unsigned int version = 10;

struct library {
	Elf64_Ehdr head;
	Elf64_Phdr load;
	Elf64_Shdr sections[SECTIONS];
	char section_names[64];
	Elf64_Sym symbols[1 + EXPORTS];
	char strings[256];
	struct {
		uint32_t buckets, first, blooms, shift;
		uint64_t bloom;
		uint32_t bucket, chain[EXPORTS];
	} hash;
	uint8_t functions[EXPORTS][FUNCTION];
	uint64_t block_at, parts_at;
	uint64_t size;
	uint64_t hashes[3];
	uint32_t parts[N * 8];
	uint64_t entries[N][3];
	char names[N][8];
	struct rela relocs;
	uint8_t block[N * EACH];
};

#define AT(member) offsetof(struct library, member)

static const char *const exports[EXPORTS] = {
	"_ZN2v88internal23DefaultEmbeddedBlobCodeEv",
	"_ZN2v88internal27DefaultEmbeddedBlobCodeSizeEv",
	"_ZN2v88internal23DefaultEmbeddedBlobDataEv",
	"_ZN2v88internal8Builtins4nameENS0_7BuiltinE",
};

/* Return the numbers of function number i: where its code is in the block, its size, and others. */
static uint32_t *part(struct library *l, size_t i)
{
	return &l->parts[i * (version == 10 ? 7 : 8)];
}

static Elf64_Shdr section(uint32_t name, uint32_t type, size_t off, size_t size)
{
	return (Elf64_Shdr){ .sh_name = name,
			     .sh_type = type,
			     .sh_flags = SHF_ALLOC,
			     .sh_addr = off,
			     .sh_offset = off,
			     .sh_size = size };
}

static Elf64_Rela relative(uint64_t at, uint64_t value)
{
	return (Elf64_Rela){ .r_offset = at,
			     .r_info = R_X86_64_RELATIVE,
			     .r_addend = (int64_t)value };
}

/* Export function number i, whose code loads the address to. */
static void export(struct library *l, size_t i, size_t *string, uint64_t to)
{
	const uint64_t at = AT(functions) + i * FUNCTION;
	const int32_t disp = (int32_t)(to - (at + 8)); /* behind nop and lea */
	uint32_t hash = 5381;

	memcpy(l->functions[i], "\x90\x48\x8d\x05", 4);
	memcpy(l->functions[i] + 4, &disp, sizeof(disp));
	l->functions[i][8] = 0xc3;
	l->symbols[1 + i] =
		(Elf64_Sym){ .st_name = (uint32_t)*string,
			     .st_info = (unsigned char)ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			     .st_shndx = TEXT,
			     .st_value = at,
			     .st_size = 9 };
	memcpy(l->strings + *string, exports[i], strlen(exports[i]) + 1);
	*string += strlen(exports[i]) + 1;
	for (const char *c = exports[i]; *c; c++)
		hash = hash * 33 + (uint8_t)*c;
	l->hash.chain[i] = i + 1 < EXPORTS ? hash & ~1u : hash | 1;
}

static void start(struct library *l)
{
	static const char names[] = "\0.text\0.dynsym\0.dynstr\0.gnu.hash\0.rela.dyn\0.shstrtab";
	const uint64_t to[EXPORTS] = { version == 10 ? AT(block_at) : AT(block), AT(size),
				       version == 10 ? AT(parts_at) : AT(hashes), AT(entries) };
	size_t string = 1;

	memset(l, 0, sizeof(*l));
	memcpy(l->head.e_ident, ELFMAG, SELFMAG);
	l->head.e_ident[EI_CLASS] = ELFCLASS64;
	l->head.e_ident[EI_DATA] = ELFDATA2LSB;
	l->head.e_ident[EI_VERSION] = EV_CURRENT;
	l->head.e_type = ET_DYN;
	l->head.e_machine = EM_X86_64;
	l->head.e_ehsize = sizeof(l->head);
	l->head.e_phoff = AT(load);
	l->head.e_phentsize = sizeof(Elf64_Phdr);
	l->head.e_phnum = 1;
	l->head.e_shoff = AT(sections);
	l->head.e_shentsize = sizeof(Elf64_Shdr);
	l->head.e_shnum = SECTIONS;
	l->head.e_shstrndx = SHSTRTAB;
	l->load = (Elf64_Phdr){ .p_type = PT_LOAD,
				.p_flags = PF_R | PF_X,
				.p_filesz = sizeof(*l),
				.p_memsz = sizeof(*l) };
	memcpy(l->section_names, names, sizeof(names));
	l->sections[TEXT] = section(1, SHT_PROGBITS, AT(functions), sizeof(*l) - AT(functions));
	l->sections[TEXT].sh_flags |= SHF_EXECINSTR;
	l->sections[DYNSYM] = section(7, SHT_DYNSYM, AT(symbols), sizeof(l->symbols));
	l->sections[DYNSYM].sh_link = DYNSTR;
	l->sections[DYNSTR] = section(15, SHT_STRTAB, AT(strings), sizeof(l->strings));
	l->sections[HASH] = section(23, SHT_GNU_HASH, AT(hash), sizeof(l->hash));
	l->sections[RELOCS] = section(33, SHT_RELA, AT(relocs), sizeof(l->relocs));
	l->sections[SHSTRTAB] =
		section(43, SHT_STRTAB, AT(section_names), sizeof(l->section_names));
	l->hash.buckets = l->hash.first = l->hash.blooms = l->hash.bucket = 1;
	for (size_t i = 0; i < EXPORTS; i++)
		export(l, i, &string, to[i]);
	l->size = sizeof(l->block);
	if (version == 10) {
		l->relocs.block = relative(AT(block_at), AT(block));
		l->relocs.parts = relative(AT(parts_at), AT(hashes));
	}
	for (uint32_t i = 0; i < N; i++) {
		part(l, i)[0] = i * EACH;
		part(l, i)[1] = SIZE;
		(void)snprintf(l->names[i], sizeof(l->names[i]), "Part%u", i);
		l->relocs.names[i] =
			relative(AT(entries) + i * sizeof(l->entries[0]), AT(names) + i * 8);
	}
}

/* "": no function is there */
static const char *name_at(const struct sym_table *table, uint64_t addr)
{
	struct sym_symbol s = { 0 };

	return table && !sym_table_find(table, addr, &s) ? s.name : "";
}

/* Return how many functions have names. */
static size_t n_named(const struct library *l)
{
	struct sym_table *table = NULL;
	size_t n = 0;

	CHECK(sym_table_open_image(l, sizeof(*l), &table) == 0, "opens");
	for (size_t i = 0; table && i < N; i++)
		n += !strncmp(name_at(table, AT(block) + i * EACH), "Builtins_", 9);
	sym_table_free(table);
	return n;
}

static void test_functions_have_their_names(void)
{
	struct library *l = malloc(sizeof(*l));
	struct sym_table *table = NULL;
	struct sym_symbol s;

	if (!l)
		return;
	start(l);
	CHECK(sym_table_open_image(l, sizeof(*l), &table) == 0 && sym_table_damage(table) == 0,
	      "opens");
	CHECK(!strcmp(name_at(table, AT(block)), "Builtins_Part0") &&
		      !strcmp(name_at(table, AT(block) + 7 * EACH + SIZE - 1), "Builtins_Part7") &&
		      !strcmp(name_at(table, AT(block) + (N - 1) * EACH), "Builtins_Part99"),
	      "names");
	CHECK(!*name_at(table, AT(block) + 7 * EACH + SIZE), "a gap");
	CHECK(table && !sym_table_find(table, AT(block) + 7 * EACH + 5, &s) &&
		      s.addr == AT(block) + 7 * EACH && s.size == SIZE,
	      "where it is");
	CHECK(!strcmp(name_at(table, AT(functions)), exports[0]), "other symbols");
	sym_table_free(table);
	free(l);
}

static void test_some_are_looked_up(void)
{
	const uint64_t wanted = AT(block) + 40 * EACH + 3;
	int fd = memfd_create("library", MFD_CLOEXEC);
	struct library *l = malloc(sizeof(*l));
	struct sym_table *table = NULL;

	if (!l)
		return;
	start(l);
	CHECK(fd >= 0 && write(fd, l, sizeof(*l)) == (ssize_t)sizeof(*l), "a file");
	CHECK(sym_table_open_partial(fd, NULL, 0, -1, &wanted, 1, &table) == 0, "opens");
	CHECK(!strcmp(name_at(table, wanted), "Builtins_Part40"), "a name");
	sym_table_free(table);
	(void)close(fd);
	free(l);
}

static void test_tables_must_fit_together(void)
{
	struct library *l = malloc(sizeof(*l));

	if (!l)
		return;
	start(l);
	CHECK(n_named(l) == N, "all");
	memcpy(l->names[5], "\x1b[2J", 5);
	l->relocs.names[6].r_addend = INT64_MAX;
	l->relocs.names[7].r_info = R_X86_64_64;
	CHECK(n_named(l) == N - 3, "what is no identifier is no name");
	start(l);
	part(l, 50)[0] = 49 * EACH;
	CHECK(n_named(l) == 0, "in another order");
	start(l);
	part(l, 50)[1] = UINT32_MAX;
	CHECK(n_named(l) == 0, "too long");
	start(l);
	part(l, 0)[1] = 0;
	CHECK(n_named(l) == 0, "empty");
	start(l);
	l->size = UINT32_MAX;
	CHECK(n_named(l) == 0, "a block of 4 GiB");
	start(l);
	l->size = 10 * EACH;
	CHECK(n_named(l) == 0, "few functions");
	start(l);
	l->relocs.block.r_addend = -16;
	CHECK(n_named(l) == (version == 10 ? 0 : N), "a block at the end of memory");
	start(l);
	l->hash.chain[EXPORTS - 1] &= ~1u;
	l->symbols[EXPORTS].st_name = UINT32_MAX;
	CHECK(n_named(l) == 0, "a chain without an end");
	start(l);
	l->functions[0][1] = 0x90;
	CHECK(n_named(l) == 0, "other code");
	free(l);
}

/* Change every byte of what is read. */
static void test_changed_bytes_do_no_harm(void)
{
	struct library *l = malloc(sizeof(*l)), *changed = malloc(sizeof(*changed));
	struct sym_table *table;

	if (!l || !changed)
		return;
	start(l);
	for (size_t i = 0; i < AT(parts) + 3 * 8 * sizeof(uint32_t); i++) {
		memcpy(changed, l, sizeof(*l));
		((uint8_t *)changed)[i] ^= (uint8_t)(1u << i % 8 | 0x80);
		table = NULL;
		if (!sym_table_open_image(changed, sizeof(*changed), &table))
			(void)name_at(table, AT(block) + EACH);
		sym_table_free(table);
	}
	CHECK(true, "every byte");
	free(l);
	free(changed);
}

int main(void)
{
	for (version = 10; version <= 11; version++) {
		test_functions_have_their_names();
		test_some_are_looked_up();
		test_tables_must_fit_together();
		test_changed_bytes_do_no_harm();
	}
	return check_done();
}
