/* agent/source/core_notes.c: reads the notes of a core file: threads, process, list of files. */
#include "agent/source/core_file.h"

#include "agent/source/machine.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NT_FILE_MAX (16u << 20) /* bytes; the kernel writes at most 4 MiB */
#define AUXV_MAX    4096

/*
 * Offsets and sizes in struct elf_prstatus and struct elf_prpsinfo of 64-bit machines
 * (include/linux/elfcore.h).
 */
#define PRSTATUS_PID  32
#define PRSTATUS_REGS 112
#define PRPSINFO_PID  24
#define PRPSINFO_COMM 40
#define PRPSINFO_SIZE 136
#define PRSTATUS_MAX  512

/* Add a thread from its NT_PRSTATUS note at file offset off. */
static int on_prstatus(struct core *c, uint64_t off, uint32_t size)
{
	const struct machine *machine = machine_of(c->frozen.source.info.machine);
	uint8_t bytes[PRSTATUS_MAX];
	struct frozen_thread thread = { 0 };
	int err;

	if (size > sizeof(bytes) || size < PRSTATUS_REGS + 8 * machine->n_words) {
		frozen_damage(&c->frozen, -EBADMSG,
			      "%s: offset %" PRIu64 ": the registers of a thread take %" PRIu32
			      " bytes, which is wrong for this machine",
			      c->name, off, size);
		c->frozen.n_lost++;
		return 0;
	}
	err = core_read_at(c, off, bytes, size);
	if (err)
		return err;
	thread.tid = uw_bytes_little(bytes + PRSTATUS_PID);
	machine_read_regset(machine, bytes + PRSTATUS_REGS, &thread.regs);
	thread.thread_pointer = machine_thread_pointer(machine, bytes + PRSTATUS_REGS);
	if (asprintf(&thread.name, "%s:%" PRIu32, c->base, thread.tid) < 0)
		return -ENOMEM;
	/* The first thread's id serves as process id until NT_PRPSINFO is read. */
	if (!c->frozen.n_threads && c->frozen.pid == 1)
		c->frozen.pid = thread.tid;
	return frozen_add_thread(&c->frozen, &thread);
}

/*
 * Read struct user_pac_mask (data mask, then code mask). It belongs to the thread of the
 * NT_PRSTATUS note before it.
 */
static int on_pac_mask(struct core *c, uint64_t off, uint32_t size)
{
	uint8_t bytes[16];
	int err;

	if (size != sizeof(bytes) || !c->frozen.n_threads)
		return 0;
	err = core_read_at(c, off, bytes, size);
	if (!err)
		c->frozen.threads[c->frozen.n_threads - 1].code_mask = uw_bytes_little8(bytes + 8);
	return err;
}

/* Read the process's id and name. */
static int on_prpsinfo(struct core *c, uint64_t off, uint32_t size)
{
	uint8_t bytes[PRPSINFO_SIZE];
	int err;

	if (size != sizeof(bytes))
		return 0;
	err = core_read_at(c, off, bytes, size);
	if (err)
		return err;
	if (uw_bytes_little(bytes + PRPSINFO_PID))
		c->frozen.pid = uw_bytes_little(bytes + PRPSINFO_PID);
	memcpy(c->frozen.comm, bytes + PRPSINFO_COMM, 16);
	c->frozen.comm[16] = '\0';
	return 0;
}

/* Read the auxiliary vector, at most AUXV_MAX bytes of it. */
static int on_auxv(struct core *c, uint64_t off, uint32_t size)
{
	uint8_t bytes[AUXV_MAX];
	int err;

	if (size > sizeof(bytes))
		size = sizeof(bytes);
	err = core_read_at(c, off, bytes, size);
	if (err)
		return err;
	for (uint32_t i = 0; i + 16 <= size; i += 16) {
		if (uw_bytes_little8(bytes + i) == AT_PHDR)
			c->phdr = uw_bytes_little8(bytes + i + 8);
		else if (uw_bytes_little8(bytes + i) == AT_PHNUM)
			c->n_phdrs = uw_bytes_little8(bytes + i + 8);
		else if (uw_bytes_little8(bytes + i) == AT_EXECFN)
			c->program = uw_bytes_little8(bytes + i + 8);
		else if (uw_bytes_little8(bytes + i) == AT_SYSINFO_EHDR)
			c->vdso = uw_bytes_little8(bytes + i + 8);
	}
	return 0;
}

/* Store the list of mapped files for add_files(). Only the first such note is used. */
static int on_file(struct core *c, uint64_t off, uint32_t size)
{
	int err;

	if (c->files)
		return 0;
	if (size > NT_FILE_MAX) {
		frozen_damage(&c->frozen, -EBADMSG,
			      "%s: offset %" PRIu64
			      ": the list of mapped files cannot have %" PRIu32 " bytes",
			      c->name, off, size);
		return 0;
	}
	c->files = malloc(size ? size : 1);
	if (!c->files)
		return -ENOMEM;
	err = core_read_at(c, off, c->files, size);
	if (err)
		return err;
	c->files_size = size;
	c->files_off = off;
	return 0;
}

/* Linux pads names and contents to 4 bytes in cores of 64-bit programs, too (fs/binfmt_elf.c). */
int core_read_notes(struct core *c, uint64_t off, uint64_t size)
{
	uint64_t end;

	if (off > c->file_size || size > c->file_size - off) {
		frozen_damage(&c->frozen, -EBADMSG,
			      "%s: offset %" PRIu64 ": torn: the file ends before its notes do",
			      c->name, c->file_size);
		size = off > c->file_size ? 0 : c->file_size - off;
	}
	end = off + size;
	while (end - off >= 12) {
		uint8_t head[12 + 8];
		uint32_t name_size, desc_size, type;
		uint64_t desc, have = end - off < sizeof(head) ? end - off : sizeof(head);
		int err = core_read_cached(c, off, head, have);

		if (err)
			return err;
		name_size = uw_bytes_little(head);
		desc_size = uw_bytes_little(head + 4);
		type = uw_bytes_little(head + 8);
		desc = off + 12 + (((uint64_t)name_size + 3) & ~(uint64_t)3);
		if (desc > end || desc_size > end - desc) {
			frozen_damage(&c->frozen, -EBADMSG,
				      "%s: offset %" PRIu64 ": a note reaches beyond the notes",
				      c->name, off);
			return 0;
		}
		if (name_size == 5 && have >= 17 && !memcmp(head + 12, "CORE", 5)) {
			if (type == NT_PRSTATUS)
				err = on_prstatus(c, desc, desc_size);
			else if (type == NT_PRPSINFO)
				err = on_prpsinfo(c, desc, desc_size);
			else if (type == NT_AUXV)
				err = on_auxv(c, desc, desc_size);
			else if (type == NT_FILE)
				err = on_file(c, desc, desc_size);
			if (err)
				return err;
		}
		if (name_size == 6 && have >= 18 && !memcmp(head + 12, "LINUX", 6) &&
		    type == NT_ARM_PAC_MASK &&
		    machine_of(c->frozen.source.info.machine)->signs_code) {
			err = on_pac_mask(c, desc, desc_size);
			if (err)
				return err;
		}
		desc += ((uint64_t)desc_size + 3) & ~(uint64_t)3;
		if (desc >= end)
			break;
		off = desc;
	}
	return 0;
}
