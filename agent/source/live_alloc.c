#include "agent/source/live_alloc.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/opener/opener.h"
#include "agent/source/live_bpf.h"
#include "symbolizer/symbolizer.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FILES_MAX      65536u /* that are looked into */
#define ALLOCATORS_MAX 1024u  /* that are watched */
#define SEGMENTS_MAX   256u   /* of one file that are looked at */

struct known { /* a file that was looked into */
	uint32_t major, minor;
	uint64_t inode;
};

struct live_allocators {
	struct live_bpf *bpf;
	struct opener *opener;
	struct known *known;
	size_t n_known, room;
	struct hash_index by_inode;
	size_t n;
	int failed; /* the first failure to attach, and what it said */
	char error[LIVE_ERROR_SIZE];
};

/* Leading underscores and glibc's "__libc_" do not count. */
static const struct {
	const char *name;
	enum capture_alloc_function function;
} functions[] = {
	{ "malloc", CAPTURE_ALLOC_MALLOC },
	{ "valloc", CAPTURE_ALLOC_MALLOC },
	{ "pvalloc", CAPTURE_ALLOC_MALLOC },
	{ "calloc", CAPTURE_ALLOC_CALLOC },
	{ "realloc", CAPTURE_ALLOC_REALLOC },
	{ "memalign", CAPTURE_ALLOC_MEMALIGN },
	{ "aligned_alloc", CAPTURE_ALLOC_MEMALIGN },
	{ "posix_memalign", CAPTURE_ALLOC_POSIX_MEMALIGN },
	{ "free", CAPTURE_ALLOC_FREE },
	{ "cfree", CAPTURE_ALLOC_FREE },
	{ "mmap", CAPTURE_ALLOC_MMAP },
	{ "mmap64", CAPTURE_ALLOC_MMAP },
	{ "mremap", CAPTURE_ALLOC_MREMAP },
	{ "munmap", CAPTURE_ALLOC_MUNMAP },
	/* C++ operators of allocators that do not go by way of malloc. */
	{ "Znwm", CAPTURE_ALLOC_MALLOC },
	{ "Znam", CAPTURE_ALLOC_MALLOC },
	{ "ZdlPv", CAPTURE_ALLOC_FREE },
	{ "ZdaPv", CAPTURE_ALLOC_FREE },
	{ "ZdlPvm", CAPTURE_ALLOC_FREE },
	{ "ZdaPvm", CAPTURE_ALLOC_FREE },
};

#define N_FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static size_t function_of(const char *name)
{
	name += strspn(name, "_");
	if (!strncmp(name, "libc_", 5))
		name += 5;
	for (size_t i = 0; i < N_FUNCTIONS; i++)
		if (!strcmp(name, functions[i].name))
			return i;
	return N_FUNCTIONS;
}

int live_allocators_new(struct live_bpf *bpf, struct live_allocators **out)
{
	const struct opener_options options = { .live = true };
	struct live_allocators *a = calloc(1, sizeof(*a));
	int err = a ? opener_new(&options, &a->opener) : -ENOMEM;

	if (err) {
		free(a);
		return err;
	}
	a->bpf = bpf;
	*out = a;
	return 0;
}

void live_allocators_free(struct live_allocators *a)
{
	if (!a)
		return;
	opener_free(a->opener);
	hash_fini(&a->by_inode);
	free(a->known);
	free(a);
}

size_t live_allocators_n(const struct live_allocators *a)
{
	return a->n;
}

struct which {
	const struct live_allocators *a;
	const struct known *file;
};

static bool same_file(const void *ctx, uint32_t i)
{
	const struct which *want = ctx;
	const struct known *have = &want->a->known[i];

	return have->inode == want->file->inode && have->major == want->file->major &&
	       have->minor == want->file->minor;
}

/* -EEXIST: it is known; -ENOSPC: too many are. */
static int meet(struct live_allocators *a, const struct known *file)
{
	uint64_t hash = hash_u64((uint64_t)file->major << 32 | file->minor, file->inode);
	struct which want = { a, file };
	void *array = a->known;

	if (hash_find(&a->by_inode, hash, same_file, &want) != HASH_NONE)
		return -EEXIST;
	if (a->n_known == FILES_MAX)
		return -ENOSPC;
	if (array_make_room(&array, a->n_known, &a->room, sizeof(*a->known)))
		return -ENOMEM;
	a->known = array;
	a->known[a->n_known] = *file;
	if (hash_add(&a->by_inode, hash, (uint32_t)a->n_known))
		return -ENOMEM;
	a->n_known++;
	return 0;
}

/* Where in the file the byte at vaddr is; 0: nowhere. */
static uint64_t offset_of(int fd, uint64_t vaddr)
{
	Elf64_Ehdr head;
	Elf64_Phdr segment;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_machine != EM_X86_64 || head.e_phentsize != sizeof(segment) ||
	    head.e_phoff > INT64_MAX / 2)
		return 0;
	for (unsigned int i = 0; i < head.e_phnum && i < SEGMENTS_MAX; i++) {
		if (pread(fd, &segment, sizeof(segment),
			  (off_t)(head.e_phoff + i * sizeof(segment))) != sizeof(segment))
			return 0;
		if (segment.p_type == PT_LOAD && segment.p_flags & PF_X &&
		    vaddr >= segment.p_vaddr && vaddr - segment.p_vaddr < segment.p_filesz)
			return segment.p_offset + (vaddr - segment.p_vaddr);
	}
	return 0;
}

/* Watches the allocator in a file, if there is one. */
static void watch(struct live_allocators *a, int fd)
{
	struct live_alloc_place places[LIVE_PLACES_MAX];
	struct sym_table *table;
	struct sym_symbol symbol;
	bool mallocs = false, frees = false;
	size_t n = 0;
	char path[32], error[LIVE_ERROR_SIZE] = "";
	int err;

	if (sym_table_open(fd, 0, &table))
		return; /* not ELF, or torn: nothing that runs */
	for (size_t i = 0; n < LIVE_PLACES_MAX && !sym_table_at(table, i, &symbol); i++) {
		size_t f = function_of(symbol.name);
		uint64_t off = f < N_FUNCTIONS ? offset_of(fd, symbol.addr) : 0;

		if (!off)
			continue;
		mallocs |= functions[f].function == CAPTURE_ALLOC_MALLOC;
		frees |= functions[f].function == CAPTURE_ALLOC_FREE;
		places[n++] = (struct live_alloc_place){ functions[f].function, off };
	}
	sym_table_free(table);
	/* libstdc++ has operators, which call malloc. */
	if (!mallocs || !frees)
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = live_bpf_attach_allocator(a->bpf, path, places, n, error);
	a->n += !err;
	if (err && !a->failed) {
		a->failed = err;
		memcpy(a->error, error, sizeof(error));
	}
}

int live_allocators_failed(const struct live_allocators *a, char *error)
{
	if (a->n || !a->failed)
		return 0;
	memcpy(error, a->error, sizeof(a->error));
	return a->failed;
}

int live_allocators_file(struct live_allocators *a, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), err = 0;
	struct known file;
	struct stat st;

	if (fd < 0)
		return 0;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode)) {
		file = (struct known){ major(st.st_dev), minor(st.st_dev), st.st_ino };
		err = meet(a, &file);
		if (!err)
			watch(a, fd);
	}
	(void)close(fd);
	return err == -ENOMEM ? err : 0;
}

int live_allocators_mapping(struct live_allocators *a, uint32_t pid, const struct event_mapping *m)
{
	const struct opener_file file = { .pid = pid,
					  .start = m->start,
					  .end = m->end,
					  .path = m->path,
					  .major = m->major,
					  .minor = m->minor,
					  .inode = m->inode,
					  .inode_generation = m->inode_generation,
					  .deleted = m->deleted,
					  .build_id = m->build_id };
	const struct known known = { m->major, m->minor, m->inode };
	unsigned int next = 0;
	int fd, err;

	if (!(m->prot & PROT_EXEC) || !m->path || m->path[0] != '/' || !m->inode ||
	    a->n == ALLOCATORS_MAX || !live_bpf_wants(a->bpf, pid))
		return 0;
	err = meet(a, &known);
	if (err)
		return err == -ENOMEM ? err : 0;
	if (opener_open(a->opener, &file, &next, &fd))
		return 0;
	watch(a, fd);
	(void)close(fd);
	return 0;
}
