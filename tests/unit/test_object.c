/*
 * tests/unit/test_object.c: tests objects: contents, build-ids, rules, images, files that are not
 * ELF.
 */
#include "unwinder/rule/object.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/check.h"

extern const char __executable_start[];
extern void _start(void);

static uint64_t vaddr_of(const void *p)
{
	return (uint64_t)p - (uint64_t)__executable_start;
}

static struct uw_object *open_self(void)
{
	struct uw_object *object = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && uw_object_open(fd, 0, &object) == 0, "this program");
	close(fd);
	return object;
}

int main(int argc, char **argv);

static void test_contents_are_those_in_memory(void)
{
	struct uw_object *o = open_self();
	uint8_t bytes[256];
	uint64_t vaddr = 0;
	size_t n, code = 0;
	const struct uw_segment *s = uw_object_segments(o, &n);

	CHECK(uw_object_machine(o) == EM_X86_64 || uw_object_machine(o) == EM_AARCH64, "machine");
	CHECK(uw_object_read(o, vaddr_of((void *)main), bytes, sizeof(bytes)) == 0 &&
		      !memcmp(bytes, (void *)main, sizeof(bytes)),
	      "main's code");
	for (size_t i = 0; i < n; i++) {
		if (s[i].flags & PF_X)
			code = i;
		if (s[i].flags & PF_W)
			CHECK(uw_object_read(o, s[i].vaddr, bytes, 1) == -EFAULT,
			      "what is writable is not the file's");
	}
	CHECK(uw_object_read(o, s[code].vaddr + s[code].file_size - 1, bytes, 2) == -EFAULT,
	      "not beyond a segment");
	CHECK(uw_object_read(o, UINT64_MAX, bytes, 2) == -EFAULT, "nor at the end of all");
	CHECK(uw_object_vaddr(o, s[code].off + 5, &vaddr) == 0 && vaddr == s[code].vaddr + 5,
	      "vaddr");
	CHECK(uw_object_vaddr(o, UINT64_MAX / 2, &vaddr) == -ENOENT, "no segment there");
	uw_object_put(uw_object_get(o));
	uw_object_put(o);
	uw_object_put(NULL);
}

/* The note that the loader shows. */
static int compare_build_id(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct uw_build_id *id = arg;
	bool found = false;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum && !found; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const char *note = (const char *)info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_NOTE && p->p_memsz >= 16u + id->size)
			found = memmem(note, p->p_memsz, "GNU", 4) && id->size &&
				memmem(note, p->p_memsz, id->bytes, id->size);
	}
	CHECK(found, "the build-id is in the notes");
	return 1; /* the program itself comes first */
}

static void test_build_id(void)
{
	struct uw_object *o = open_self();
	const struct uw_build_id *id = uw_object_build_id(o);
	struct uw_build_id other = *id, padded;

	CHECK(id->size == 20, "SHA-1, as GNU ld makes it");
	(void)dl_iterate_phdr(compare_build_id, (void *)id);
	CHECK(uw_build_id_equal(id, &other), "equal");
	other.bytes[19] ^= 1;
	CHECK(!uw_build_id_equal(id, &other), "not");
	memset(other.bytes + 16, 0, 4);
	padded = other;
	other.size = 16;
	CHECK(uw_build_id_equal(&other, &padded) && uw_build_id_equal(&padded, &other), "padded");
	padded.bytes[18] = 1;
	CHECK(!uw_build_id_equal(&other, &padded), "longer");
	memset(padded.bytes, 0, sizeof(padded.bytes));
	other.size = 0;
	CHECK(!uw_build_id_equal(&other, &padded) && uw_build_id_equal(&other, &other), "none");
	uw_object_put(o);
}

static void test_rules(void)
{
	struct uw_object *o = open_self();
	struct uw_rule rule;
	const struct uw_reg_rule *ra;
	uint64_t at = vaddr_of((void *)main);

	CHECK(uw_object_rule(o, at, true, &rule) == 0 && rule.start == at && rule.end > at &&
		      rule.stepper == UW_STEPPER_CFI,
	      "main");
	CHECK(uw_object_rule(o, vaddr_of((void *)_start) + 4, true, &rule) == 0, "_start");
	ra = uw_rule_reg(&rule, rule.ra);
	CHECK(ra && ra->kind == UW_RULE_UNDEFINED, "is the outermost frame");
	CHECK(uw_object_rule(o, 0, true, &rule) == -ENOENT, "the ELF header is no code");
	CHECK(uw_object_rule(o, UINT64_MAX, false, &rule) == -ENOENT, "nor is the end of all");
	uw_object_put(o);
}

static void test_images(void)
{
	const uint8_t *vdso = (const void *)getauxval(AT_SYSINFO_EHDR);
	const Elf64_Ehdr *header = (const void *)vdso;
	static uint8_t copy[65536];
	struct uw_object *o = NULL, *again;
	size_t size;
	uint8_t byte;
	struct uw_rule rule;

#ifdef __x86_64__ /* qemu gives no vDSO to an aarch64 process */
	CHECK(vdso != NULL, "there is a vDSO");
#endif
	if (!vdso)
		return;
	/* The section headers are last in the file. */
	size = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
	CHECK(size <= sizeof(copy), "a small one");
	memcpy(copy, vdso, size);
	CHECK(uw_object_open_image(copy, size, &o) == 0, "the vDSO");
	CHECK(uw_object_open_copy(o, &again) == -ENOTSUP, "it has no file");
	memset(copy, 0, size);
	CHECK(uw_object_read(o, 1, &byte, 1) == 0 && byte == 'E', "its bytes are copied");
	CHECK(uw_object_frames(o, 0)->cfi.size > 0, "it has CFI");
	CHECK(uw_object_rule(o, 0x40, true, &rule) == -ENOENT, "not for its headers");
	uw_object_put(o);

	CHECK(uw_object_open_image("#!/bin/sh\n", 10, &o) == -ENOTSUP, "not ELF");
	CHECK(uw_object_open_image(NULL, 0, &o) == -ENOTSUP, "nothing");
	/*
	 * Cut off at any place: the result is an error at worst, and no rule reads beyond the end.
	 */
	for (size_t cut = 0; cut < size; cut += 11) {
		uint8_t *exact = malloc(cut ? cut : 1);

		memcpy(exact, vdso, cut);
		if (!uw_object_open_image(exact, cut, &o)) {
			for (uint64_t at = 0; at < size; at += 64)
				(void)uw_object_rule(o, at, at & 64, &rule);
			uw_object_put(o);
		}
		free(exact);
	}
	/* Change every byte of the headers. */
	for (size_t i = 0; i < 700; i++) {
		memcpy(copy, vdso, size);
		copy[i] ^= 0xff;
		if (!uw_object_open_image(copy, size, &o)) {
			(void)uw_object_rule(o, size / 2, true, &rule);
			uw_object_put(o);
		}
	}
}

/* ld -N joins code and data in one segment that is written to. */
static void test_code_that_may_be_written_to_is_shown(void)
{
	const uint8_t *vdso = (const void *)getauxval(AT_SYSINFO_EHDR);
	const Elf64_Ehdr *header = (const void *)vdso;
	uint8_t copy[65536], buffer[UW_CODE_BEFORE + UW_CODE_AFTER], byte;
	Elf64_Phdr *p = (void *)(copy + sizeof(*header));
	struct uw_object *o = NULL;
	struct uw_code code;

	if (!vdso || header->e_phoff != sizeof(*header))
		return;
	memcpy(copy, vdso, header->e_shoff);
	((Elf64_Ehdr *)(void *)copy)->e_shoff = 0;
	for (unsigned int i = 0; i < header->e_phnum; i++)
		p[i].p_flags |= PF_W;
	CHECK(uw_object_open_image(copy, header->e_shoff, &o) == 0, "all of it writable");
	CHECK(uw_object_code(o, header->e_entry, buffer, &code) == 0 && code.after &&
		      !memcmp(code.at, vdso + header->e_entry, code.after),
	      "its code is looked at all the same");
	CHECK(uw_object_read(o, header->e_entry, &byte, 1) == -EFAULT,
	      "and what memory holds by now nobody knows");
	uw_object_put(o);
}

static void test_files_that_are_none(void)
{
	struct uw_object *o = NULL, *unread = NULL;
	int fds[2];
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	CHECK(uw_object_open(fd, 0, &o) == -ENOTSUP, "a device");
	close(fd);
	CHECK(uw_object_open(fd, 0, &o) == -EBADF, "a closed descriptor");
	CHECK(pipe(fds) == 0 && uw_object_open(fds[0], 0, &o) == -ENOTSUP, "a pipe");
	close(fds[0]);
	close(fds[1]);
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	CHECK(uw_object_open(fd, UINT64_MAX, &o) == -ENOTSUP, "beyond its end");
	CHECK(uw_object_open(fd, 64, &o) == -ENOTSUP, "no ELF image there");
	close(fd);

	/* Cut short while it is open: there is an answer, not a signal. */
	fd = memfd_create("shrinks", MFD_CLOEXEC);
	if (fd >= 0) {
		int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		struct uw_identity identity;
		uint8_t bytes[16];
		struct uw_rule rule;
		char buffer[65536];
		ssize_t n;

		while ((n = read(self, buffer, sizeof(buffer))) > 0)
			CHECK(write(fd, buffer, (size_t)n) == n, "copy");
		close(self);
		CHECK(uw_object_open(fd, 0, &o) == 0, "the copy");
		CHECK(uw_object_open(fd, 0, &unread) == 0, "once more");
		CHECK(uw_object_rule(o, vaddr_of((void *)main), true, &rule) == 0, "its CFI");
		/* The first rules are looked up one by one; this needs the section. */
		CHECK(uw_object_identify(o, &identity) == 0, "all of it");
		CHECK(ftruncate(fd, 100) == 0, "cut");
		close(fd);
		CHECK(uw_object_rule(unread, vaddr_of((void *)main), true, &rule) == -ENOENT,
		      "CFI that nobody asked for in time");
		uw_object_put(unread);
		CHECK(uw_object_read(o, vaddr_of((void *)main), bytes, 16) == -EFAULT,
		      "its code is gone");
		CHECK(uw_object_rule(o, vaddr_of((void *)main), true, &rule) == 0,
		      "its CFI was read");
		uw_object_put(o);
	}
}

static void test_no_descriptors_left(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct rlimit old, few;
	struct uw_object *o = NULL;
	struct uw_rule rule;
	uint8_t byte;

	CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0, "limit");
	few = old;
	few.rlim_cur = (rlim_t)fd + 1;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0, "none but these");
	CHECK(uw_object_open(fd, 0, &o) == 0, "opens all the same");
	CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0, "limit");
	close(fd);
	CHECK(uw_object_rule(o, vaddr_of((void *)main), true, &rule) == 0, "and has its rules");
	CHECK(uw_object_read(o, vaddr_of((void *)main), &byte, 1) == -EFAULT, "but not its code");
	uw_object_put(o);
}

/* An ELF image within a larger file, as in an archive. */
static void test_images_at_an_offset(void)
{
	struct uw_object *o = open_self(), *in = NULL;
	int fd = memfd_create("archive", MFD_CLOEXEC),
	    self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	static char page[4096];
	uint64_t plain = 0, moved = 0;
	uint8_t a[32], b[32];
	ssize_t n = write(fd, page, sizeof(page));

	CHECK(n == sizeof(page), "a page before");
	while ((n = read(self, page, sizeof(page))) > 0)
		CHECK(write(fd, page, (size_t)n) == n, "copy");
	close(self);
	CHECK(uw_object_open(fd, 4096, &in) == 0, "at 4096");
	close(fd);
	CHECK(uw_object_vaddr(o, 0x1100, &plain) == 0 && uw_object_vaddr(in, 0x2100, &moved) == 0 &&
		      plain == moved,
	      "offsets count in the file");
	CHECK(uw_object_vaddr(in, 0x100, &moved) == -ENOENT, "before the image there is nothing");
	CHECK(!uw_object_read(o, vaddr_of((void *)main), a, 32) &&
		      !uw_object_read(in, vaddr_of((void *)main), b, 32) && !memcmp(a, b, 32),
	      "its contents");
	uw_object_put(in);
	uw_object_put(o);
}

int main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	test_contents_are_those_in_memory();
	test_build_id();
	test_rules();
	test_images();
	test_code_that_may_be_written_to_is_shown();
	test_files_that_are_none();
	test_no_descriptors_left();
	test_images_at_an_offset();
	return check_done();
}
