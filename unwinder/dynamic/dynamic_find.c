/*
 * unwinder/dynamic/dynamic_find.c: finds by name where an object has the lists of generated code,
 * and other exported data.
 *
 * GDB's descriptor and our own list are exported data. libunwind's list is hidden in its
 * library; an exported function returns its address, which is read from the function's code.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/elf.h"
#include "unwinder/arch/arch.h"
#include "unwinder/rule/object.h"

/* Maximum size of a symbol or string table: enough for the largest browsers and compilers. */
#define SYMBOLS_MAX ((uint64_t)256 << 20)

enum { DYN_LIST, DYN_GETTER, JIT, N_WANTED };

static const char *const wanted[N_WANTED] = {
	[DYN_LIST] = "_U_dyn_info_list",
	[DYN_GETTER] = "_U_dyn_info_list_addr",
	[JIT] = "__jit_debug_descriptor",
};

/*
 * Look up n names in a symbol table of the file. found[i] is set to the value of the first
 * defined symbol with that name, unless it was set before.
 */
static void look(const struct uw_elf *elf, const char *symbols_name, const char *strings_name,
		 const char *const *names, size_t n, uint64_t *found)
{
	const Elf64_Shdr *symbols = uw_elf_section(elf, symbols_name);
	const Elf64_Shdr *strings = uw_elf_section(elf, strings_name);
	uint8_t *table = NULL, *text = NULL;
	size_t size = 0, text_size = 0;

	if (!symbols || !strings || uw_elf_section_read(elf, symbols, SYMBOLS_MAX, &table, &size) ||
	    uw_elf_section_read(elf, strings, SYMBOLS_MAX, &text, &text_size))
		goto out;
	for (size_t at = 0; size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
		Elf64_Sym s;

		memcpy(&s, table + at, sizeof(s));
		if (s.st_shndx == SHN_UNDEF || s.st_name >= text_size)
			continue;
		for (size_t i = 0; i < n; i++) {
			size_t length;

			if (found[i] || text[s.st_name] != (uint8_t)names[i][0])
				continue;
			length = strlen(names[i]) + 1;
			if (length <= text_size - s.st_name &&
			    !memcmp(text + s.st_name, names[i], length))
				found[i] = s.st_value;
		}
	}
out:
	free(table);
	free(text);
}

void uw_object_exports(const struct uw_object *object, const char *const *names, size_t n,
		       uint64_t *vaddrs)
{
	memset(vaddrs, 0, n * sizeof(*vaddrs));
	look(uw_object_elf(object), ".dynsym", ".dynstr", names, n, vaddrs);
}

void uw_object_lists(const struct uw_object *object, struct uw_dynamic_list out[2])
{
	const struct uw_elf *elf = uw_object_elf(object);
	uint64_t found[N_WANTED] = { 0 };
	uint8_t code[16];

	look(elf, ".dynsym", ".dynstr", wanted, N_WANTED, found);
	if (!found[DYN_LIST] && !found[JIT])
		look(elf, ".symtab", ".strtab", wanted, N_WANTED, found);
	if (!found[DYN_LIST] && found[DYN_GETTER] &&
	    !uw_object_read(object, found[DYN_GETTER], code, sizeof(code)))
		found[DYN_LIST] =
			uw_arch_of(uw_object_machine(object))->returned(code, found[DYN_GETTER]);
	out[0] = (struct uw_dynamic_list){ .kind = UW_DYNAMIC_LIST, .addr = found[DYN_LIST] };
	out[1] = (struct uw_dynamic_list){ .kind = UW_DYNAMIC_JIT, .addr = found[JIT] };
}
