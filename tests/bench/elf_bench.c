/*
 * tests/bench/elf_bench.c: what opening an ELF file costs with our reader and with libelf.
 *   usage: elf_bench FILE…
 *
 * Both read what opening an object needs: the headers, the segments, the sections with their names,
 * where .eh_frame is, and the build-id. libelf reads by descriptor (ELF_C_READ), as our reader does.
 * Each FILE gets one line if the two disagree; the last line is the sum, with the medians of the
 * rounds. With one FILE, the peak memory of each reader is printed too.
 */
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/elf.h"

#define ROUNDS 15

struct answer {
	uint64_t entry, frames_off, frames_size;
	size_t n_phdrs, n_sections;
	struct uw_build_id build_id;
};

static double now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Read the answer with our reader. Return whether the file could be read. */
static bool ask_ours(int fd, uint64_t size, struct answer *out)
{
	struct uw_source source = { .fd = fd, .size = size };
	const Elf64_Shdr *frames;
	struct uw_elf elf;

	if (uw_elf_init_64(&elf, &source))
		return false;
	frames = uw_elf_section(&elf, ".eh_frame");
	*out = (struct answer){ .entry = elf.entry,
				.frames_off = frames ? frames->sh_offset : 0,
				.frames_size = frames ? frames->sh_size : 0,
				.n_phdrs = elf.n_segments,
				.n_sections = elf.n_sections };
	uw_elf_build_id(&elf, &out->build_id);
	uw_elf_fini(&elf);
	return true;
}

/* Look for the build-id in the notes of a segment. */
static void read_notes(Elf *elf, const GElf_Phdr *phdr, struct uw_build_id *out)
{
	Elf_Data *data = elf_getdata_rawchunk(elf, (int64_t)phdr->p_offset, phdr->p_filesz,
					      phdr->p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
	size_t off = 0, name, desc;
	GElf_Nhdr note;

	while (data && (off = gelf_getnote(data, off, &note, &name, &desc)) > 0)
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    !memcmp((const char *)data->d_buf + name, "GNU", 4) &&
		    note.n_descsz <= sizeof(out->bytes)) {
			out->size = (uint8_t)note.n_descsz;
			memcpy(out->bytes, (const char *)data->d_buf + desc, out->size);
			return;
		}
}

/* Read the answer with libelf. */
static bool ask_libelf(int fd, uint64_t size, struct answer *out)
{
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	size_t n_phdrs, names;
	Elf_Scn *section = NULL;
	GElf_Ehdr ehdr;

	(void)size;
	*out = (struct answer){ .n_sections = 1 };
	if (!elf || elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &ehdr) ||
	    elf_getphdrnum(elf, &n_phdrs)) {
		(void)elf_end(elf);
		return false;
	}
	out->entry = ehdr.e_entry;
	out->n_phdrs = n_phdrs;
	for (size_t i = 0; i < n_phdrs; i++) {
		GElf_Phdr phdr;

		if (gelf_getphdr(elf, (int)i, &phdr) && phdr.p_type == PT_NOTE &&
		    !out->build_id.size)
			read_notes(elf, &phdr, &out->build_id);
	}
	if (elf_getshdrstrndx(elf, &names))
		names = 0;
	while ((section = elf_nextscn(elf, section))) {
		GElf_Shdr shdr;
		const char *name;

		out->n_sections++;
		if (!gelf_getshdr(section, &shdr))
			continue;
		name = elf_strptr(elf, names, shdr.sh_name);
		if (name && !out->frames_size && !strcmp(name, ".eh_frame") &&
		    shdr.sh_type != SHT_NOBITS) {
			out->frames_off = shdr.sh_offset;
			out->frames_size = shdr.sh_size;
		}
	}
	if (out->n_sections == 1)
		out->n_sections = 0;
	(void)elf_end(elf);
	return true;
}

static bool ask(bool ours, const char *file, struct answer *out)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	struct stat st;
	bool done = fd >= 0 && !fstat(fd, &st) &&
		    (ours ? ask_ours : ask_libelf)(fd, (uint64_t)st.st_size, out);

	if (fd >= 0)
		(void)close(fd);
	return done;
}

/* Print the time and the memory that one reader takes for a file, in a process of its own. */
static void print_peak(bool ours, const char *file)
{
	struct rusage usage;
	struct answer answer;
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(ask(ours, file, &answer) ? 0 : 1);
	if (pid < 0 || wait4(pid, &status, 0, &usage) < 0)
		return;
	printf("  %-8s %s, %.1f ms of CPU, %ld KiB at most\n", ours ? "ours" : "libelf",
	       WIFEXITED(status) && !WEXITSTATUS(status) ? "read" : "refused",
	       (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
		       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3,
	       usage.ru_maxrss);
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

int main(int argc, char **argv)
{
	double times[2][ROUNDS];
	unsigned int n = 0, differ = 0;

	(void)elf_version(EV_CURRENT);
	if (argc == 2) {
		printf("%s\n", argv[1]);
		print_peak(true, argv[1]);
		print_peak(false, argv[1]);
		return 0;
	}
	for (int i = 1; i < argc; i++) {
		struct answer a = { .entry = 0 }, b = { .entry = 0 };
		bool ours = ask(true, argv[i], &a);

		if (!ours) {
			argv[i] = NULL; /* not an ELF file of 64 bits */
			continue;
		}
		n++;
		if (!ask(false, argv[i], &b) || a.entry != b.entry || a.n_phdrs != b.n_phdrs ||
		    a.n_sections != b.n_sections || a.frames_off != b.frames_off ||
		    a.frames_size != b.frames_size || a.build_id.size != b.build_id.size ||
		    memcmp(a.build_id.bytes, b.build_id.bytes, a.build_id.size) != 0) {
			printf("differ: %s (%zu/%zu sections)\n", argv[i], a.n_sections,
			       b.n_sections);
			differ++;
		}
	}
	for (int round = 0; round < ROUNDS; round++)
		for (int ours = 0; ours < 2; ours++) {
			double start = now();
			struct answer answer;

			for (int i = 1; i < argc; i++)
				if (argv[i])
					(void)ask(ours, argv[i], &answer);
			times[ours][round] = (now() - start) / (n ? n : 1);
		}
	qsort(times[0], ROUNDS, sizeof(times[0][0]), compare);
	qsort(times[1], ROUNDS, sizeof(times[1][0]), compare);
	printf("%u files, %u answers differ: ours %.1f us a file, libelf %.1f us, libelf/ours "
	       "%.2f\n",
	       n, differ, times[1][ROUNDS / 2] / 1e3, times[0][ROUNDS / 2] / 1e3,
	       times[0][ROUNDS / 2] / times[1][ROUNDS / 2]);
	return differ != 0;
}
