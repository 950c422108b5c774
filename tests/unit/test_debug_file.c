/*
 * tests/unit/test_debug_file.c: tests that what a capture file calls a debug file is used only if it has
 * the module's build-id.
 */
#include "agent/opener/opener.h"
#include "agent/process/debug_file.h"
#include "agent/process/module.h"
#include "agent/source/source.h"

#include "tests/check.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct uw_build_id its = { .size = 4, .bytes = { 0xab, 0xcd, 0xef, 0x01 } };
static const char its_path[] = "/usr/lib/debug/.build-id/ab/cdef01.debug";

/* Make an ELF file that has nothing but a build-id; size: how many of its bytes are there. */
static int elf_with(const struct uw_build_id *id, size_t size)
{
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr note;
		Elf64_Nhdr n;
		char name[4];
		uint8_t id[4];
	} elf = {
		.head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				       EV_CURRENT },
			  .e_type = ET_DYN,
			  .e_machine = EM_X86_64,
			  .e_version = EV_CURRENT,
			  .e_phoff = sizeof(Elf64_Ehdr),
			  .e_ehsize = sizeof(Elf64_Ehdr),
			  .e_phentsize = sizeof(Elf64_Phdr),
			  .e_phnum = 1 },
		.note = { .p_type = PT_NOTE, .p_align = 4 },
		.n = { .n_namesz = 4, .n_descsz = 4, .n_type = NT_GNU_BUILD_ID },
		.name = "GNU",
	};
	int fd = memfd_create("debug", MFD_CLOEXEC);

	elf.note.p_offset = offsetof(__typeof__(elf), n);
	elf.note.p_filesz = sizeof(elf.n) + sizeof(elf.name) + sizeof(elf.id);
	memcpy(elf.id, id->bytes, sizeof(elf.id));
	CHECK(fd >= 0 && write(fd, &elf, size ? size : sizeof(elf)) > 0, "a file");
	return fd;
}

static int stored; /* the capture's only file */
static unsigned int n_asked;

/* A source_info.embedded_file. */
static int embedded(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		    struct uw_build_id *build_id, int *fd)
{
	(void)ctx;
	n_asked++;
	CHECK(!major && !minor && !inode && !build_id->size, "it is known by its path alone");
	if (strcmp(path, its_path) != 0)
		return -ENOENT;
	*fd = dup(stored);
	return 0;
}

static const struct source_info info = { .embedded_file = embedded };

static int find(const struct source_info *from, const struct module *module)
{
	const struct debug_search search = { .opener = NULL };
	int fd = -1, err = debug_file_embedded(&search, from, module, &fd);

	CHECK(!err == (fd >= 0), "a descriptor if there is a file");
	if (fd >= 0)
		(void)close(fd);
	return err;
}

static void test_stored_file_must_have_the_build_id(void)
{
	const struct uw_build_id other = { .size = 4, .bytes = { 0xab, 0xcd, 0xef, 0x02 } };
	char path[] = "a";
	struct module module = { .kind = MODULE_FILE, .path = path, .build_id = its };

	stored = elf_with(&its, 0);
	CHECK(!find(&info, &module), "its own");
	(void)close(stored);
	stored = elf_with(&other, 0);
	CHECK(find(&info, &module) == -ENOENT, "another program's");
	(void)close(stored);
	stored = elf_with(&its, sizeof(Elf64_Ehdr));
	CHECK(find(&info, &module) == -ENOENT, "a damaged one");
	(void)close(stored);
	stored = memfd_create("empty", MFD_CLOEXEC);
	CHECK(find(&info, &module) == -ENOENT, "an empty one");
	(void)close(stored);
}

static void test_only_files_with_a_build_id_have_one(void)
{
	char path[] = "a";
	struct module module = { .kind = MODULE_FILE, .path = path };

	stored = elf_with(&its, 0);
	n_asked = 0;
	CHECK(find(&info, &module) == -ENOENT && !n_asked, "without a build-id nothing is known");
	module.build_id = its;
	module.kind = MODULE_VDSO;
	CHECK(find(&info, &module) == -ENOENT && !n_asked, "the vDSO has no debug file");
	module.kind = MODULE_FILE;
	CHECK(find(&(struct source_info){ .host = "" }, &module) == -ENOENT &&
		      find(NULL, &module) == -ENOENT,
	      "no capture");
	CHECK(!find(&info, &module) && n_asked == 1, "all is there");
	(void)close(stored);
}

static void test_the_path_is_that_of_the_build_id(void)
{
	const struct uw_build_id none = { .size = 0 };
	char path[sizeof(its_path)];

	CHECK(!opener_debug_path(&its, path, sizeof(path)) && !strcmp(path, its_path), "whole");
	CHECK(opener_debug_path(&its, path, sizeof(path) - 1) == -ENAMETOOLONG &&
		      opener_debug_path(&its, path, 3) == -ENAMETOOLONG,
	      "too little room");
	CHECK(opener_debug_path(&none, path, sizeof(path)) == -ENOENT, "no build-id");
}

int main(void)
{
	test_stored_file_must_have_the_build_id();
	test_only_files_with_a_build_id_have_one();
	test_the_path_is_that_of_the_build_id();
	return check_done();
}
