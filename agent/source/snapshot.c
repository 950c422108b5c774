/*
 * agent/source/snapshot.c: reads a thread from a directory of text and memory files, as the test
 * suites of other projects store them:
 *
 *   maps.txt   START-END PROT OFFSET DEVICE INODE [NAME] on each line, as /proc/PID/maps;
 *              some files have the address of the last byte as END
 *   regs.txt   "name: hex" on each line: rax ... rip, or x0 ... x29 lr sp pc; absent ones are 0
 *   *.data     u64 start address, little-endian, then memory to the end of the file
 *
 * Mapped files are in the same directory. The opener finds them by the part of NAME after its last
 * slash. If such a file is missing, memory may hold its image.
 */
#include "agent/role/files.h"
#include "agent/source/frozen.h"
#include "agent/source/machine.h"
#include "agent/source/memory_image.h"
#include "base/bytes.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX    ((uint64_t)16 << 20)
#define MEMORY_MAX  ((uint64_t)512 << 20) /* bytes of all memory files */
#define REGIONS_MAX 256
#define MAPS_MAX    (1u << 18)

struct memory_file {
	char *name;
	uint8_t *data;
	uint64_t addr, size; /* without the address at the start of the file */
};

struct snapshot {
	struct frozen frozen;
	int fd;
	const char *name; /* path of the directory, for messages; only while opening */
	char *error;	  /* for messages; only while opening */
	struct memory_file files[REGIONS_MAX];
	size_t n_files;
	struct uw_memory memory;
	struct uw_region regions[REGIONS_MAX];
};

/* Write a message to s->error (512 bytes) and return err. */
static int fail(const struct snapshot *s, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(const struct snapshot *s, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(s->error, 512, format, args);
	va_end(args);
	return err;
}

/*
 * Read a file of the directory, at most max bytes. The caller frees *out. A NUL follows the last
 * byte. On failure s->error says why.
 */
static int read_file(const struct snapshot *s, const char *name, uint64_t max, uint8_t **out,
		     uint64_t *size)
{
	int fd = -1, err = files_open_in(s->fd, name, true, &fd);
	struct stat st;
	uint8_t *data = NULL;
	uint64_t done = 0, want = 0;

	if (!err && fstat(fd, &st))
		err = -errno;
	if (err)
		;
	else if (!S_ISREG(st.st_mode))
		err = -EINVAL;
	else if ((want = (uint64_t)st.st_size) > max)
		err = -EFBIG;
	else if (!(data = malloc(want + 1)))
		err = -ENOMEM;
	while (!err && done < want) {
		ssize_t n = read(fd, data + done, want - done);

		if (n < 0 && errno != EINTR)
			err = -errno;
		else if (n == 0)
			break; /* the file became shorter */
		else if (n > 0)
			done += (uint64_t)n;
	}
	if (fd >= 0)
		(void)close(fd);
	if (err) {
		free(data);
		return fail(s, err, "%s/%s: cannot be read: %s", s->name, name, strerror(-err));
	}
	data[done] = '\0';
	*out = data;
	*size = done;
	return 0;
}

/* ---- memory -------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct memory_file *)a)->name, ((const struct memory_file *)b)->name);
}

/* List the *.data files, sorted by name. */
static int find_memory(struct snapshot *s)
{
	int fd, err = files_open_in(s->fd, ".", true, &fd);
	DIR *dir = err ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		err = err ? err : -errno;
		return fail(s, err, "%s: cannot be listed: %s", s->name, strerror(-err));
	}
	while (!err && (entry = readdir(dir))) {
		size_t length = strlen(entry->d_name);

		if (length < 6 || strcmp(entry->d_name + length - 5, ".data") != 0)
			continue;
		if (s->n_files == REGIONS_MAX)
			err = fail(s, -ENOTSUP, "%s: more than %d memory files", s->name,
				   REGIONS_MAX);
		else if (!(s->files[s->n_files].name = strdup(entry->d_name)))
			err = -ENOMEM;
		else
			s->n_files++;
	}
	(void)closedir(dir);
	qsort(s->files, s->n_files, sizeof(s->files[0]), by_name);
	return err;
}

/* Read all memory files and make the regions of s->memory from them. */
static int read_memory_files(struct snapshot *s)
{
	uint64_t left = MEMORY_MAX;
	int err = find_memory(s);

	for (size_t i = 0; !err && i < s->n_files; i++) {
		struct memory_file *f = &s->files[i];
		struct uw_region *r = &s->regions[s->memory.n_regions];
		uint64_t size;

		err = read_file(s, f->name, left, &f->data, &size);
		if (err)
			break;
		if (size < 8) {
			err = fail(s, -EBADMSG,
				   "%s/%s: offset %" PRIu64 ": torn: it ends in its start address",
				   s->name, f->name, size);
			break;
		}
		r->addr = uw_bytes_little8(f->data);
		left -= size;
		r->size = size - 8;
		r->bytes = f->data + 8;
		if (r->size > UINT64_MAX - r->addr)
			err = fail(s, -EBADMSG,
				   "%s/%s: offset 0: memory at %" PRIx64
				   " would end beyond the address space",
				   s->name, f->name, r->addr);
		s->memory.n_regions += r->size != 0;
	}
	s->memory.regions = s->regions;
	return err;
}

/* ---- registers ------------------------------------------------------------------- */

/*
 * Return the machine whose registers regs.txt lists, or NULL and its name in *name if it has 32
 * bits.
 */
static const struct machine *read_machine(const char *text, const char **name)
{
	/*
	 * 32-bit x86 has eip. 32-bit arm has pc like aarch64, but r0 to r15 instead of x0 to x29.
	 */
	*name = strstr(text, "eip:") ? "x86" : "arm";
	if (strstr(text, "rip:"))
		return machine_named("x86_64");
	return strcmp(*name, "arm") == 0 && strstr(text, "pc:") && strchr(text, 'x')
		       ? machine_named("aarch64")
		       : NULL;
}

/* Read regs.txt. Registers that it does not list are 0 and count as known. */
static int read_regs(struct snapshot *s, struct uw_regs *regs)
{
	const struct machine *machine;
	const char *narrow;
	uint8_t *text;
	uint64_t size;
	int err = read_file(s, "regs.txt", TEXT_MAX, &text, &size);
	char *line = (char *)text, *next;

	if (err)
		return err;
	machine = read_machine(line, &narrow);
	if (!machine) {
		err = fail(s, -ENOTSUP, "%s/regs.txt: 32-bit %s registers cannot be unwound yet",
			   s->name, narrow);
		goto out;
	}
	s->frozen.source.info.machine = machine->elf;
	*regs = (struct uw_regs){ .known = ((uint64_t)1 << machine->n_regs) - 1 };
	for (; *line; line = next) {
		char name[16], *end;
		size_t length = strcspn(line, "\r\n"), at;
		uint64_t value;
		int reg;

		next = line + length + strspn(line + length, "\r\n");
		line[length] = '\0';
		line += strspn(line, " \t");
		at = strcspn(line, ": \t");
		if (!*line)
			continue;
		end = line + at + strspn(line + at, " \t");
		if (at && at < sizeof(name) && *end == ':') {
			memcpy(name, line, at);
			name[at] = '\0';
			line = end + 1;
			errno = 0;
			value = strtoull(line, &end, 16);
			if (!errno && end != line && !end[strspn(end, " \t")]) {
				reg = machine_reg(machine, name);
				if (reg >= 0)
					regs->value[reg] = value;
				continue;
			}
		}
		err = fail(s, -EBADMSG, "%s/regs.txt: offset %td: not a register and its value",
			   s->name, (uint8_t *)line - text);
		break;
	}
out:
	free(text);
	return err;
}

/* ---- mappings -------------------------------------------------------------------- */

/* Read a hexadecimal number that stop follows, and move *at behind both. */
static bool take_hex(char **at, char stop, uint64_t *out)
{
	char *end;

	/* strtoull() would accept a sign and spaces, too. */
	if (!strchr("0123456789abcdefABCDEF", **at) || !**at)
		return false;
	errno = 0;
	*out = strtoull(*at, &end, 16);
	if (errno || *end != stop)
		return false;
	*at = end + 1;
	return true;
}

/* Return the next word of the line, NUL-terminated in place, and move *at behind it. */
static bool take_word(char **at, char **word)
{
	*at += strspn(*at, " \t");
	*word = *at;
	*at += strcspn(*at, " \t");
	if (*at == *word)
		return false;
	if (**at)
		*(*at)++ = '\0';
	return true;
}

/* Return whether the directory has a regular file with the base name of path. */
static bool has_file(const struct snapshot *s, const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	bool has = false;
	struct stat st;
	int fd;

	if (*base && !files_open_in(s->fd, base, false, &fd)) {
		has = !fstat(fd, &st) && S_ISREG(st.st_mode);
		(void)close(fd);
	}
	return has;
}

/*
 * Set the path of a mapping. The kernel appends " (deleted)" to the names of deleted files. Remove
 * that if the directory has the file under the name without it, and none under the name with it.
 */
static void name_file(const struct snapshot *s, char *path, struct event_mapping *m)
{
	static const char gone[] = " (deleted)";
	size_t length = strlen(path);

	m->path = path;
	m->file = *path && (*path != '[' || has_file(s, path));
	if (length <= sizeof(gone) - 1 || strcmp(path + length - (sizeof(gone) - 1), gone) != 0 ||
	    has_file(s, path))
		return;
	path[length - (sizeof(gone) - 1)] = '\0';
	if (!has_file(s, path))
		path[length - (sizeof(gone) - 1)] = gone[0];
}

/* Parse a line of maps.txt in place. m->path points into the line. */
static bool parse_mapping(const struct snapshot *s, char *line, struct event_mapping *m)
{
	char *at = line, *prot, *off, *word;

	*m = (struct event_mapping){ 0 };
	at += strspn(at, " \t");
	if (!take_hex(&at, '-', &m->start) || !take_hex(&at, ' ', &m->end) ||
	    !take_word(&at, &prot) || strlen(prot) != 4 || !take_word(&at, &off) ||
	    !take_hex(&off, '\0', &m->off) || !take_word(&at, &word) || !take_word(&at, &word))
		return false;
	if ((m->end & 0xfff) == 0xfff) /* END is the last byte, not the one behind it */
		m->end++;
	m->prot = (prot[0] == 'r' ? PROT_READ : 0u) | (prot[1] == 'w' ? PROT_WRITE : 0u) |
		  (prot[2] == 'x' ? PROT_EXEC : 0u);
	at += strspn(at, " \t");
	word = at + strlen(at);
	while (word > at && (word[-1] == ' ' || word[-1] == '\t'))
		*--word = '\0';
	name_file(s, at, m);
	return m->start < m->end;
}

/* Read maps.txt and add its mappings, sorted. */
static int read_maps(struct snapshot *s)
{
	uint8_t *text;
	uint64_t size;
	int err = read_file(s, "maps.txt", TEXT_MAX, &text, &size);
	char *line = (char *)text, *next;

	if (err)
		return err;
	for (; !err && *line; line = next) {
		size_t length = strcspn(line, "\r\n");
		struct event_mapping m;

		next = line + length + strspn(line + length, "\r\n");
		line[length] = '\0';
		if (!line[strspn(line, " \t")])
			continue;
		if (!parse_mapping(s, line, &m))
			err = fail(s, -EBADMSG, "%s/maps.txt: offset %td: not a mapping", s->name,
				   (uint8_t *)line - text);
		else if (s->frozen.n_mappings == MAPS_MAX)
			err = fail(s, -ENOTSUP, "%s/maps.txt: offset %td: more than %u mappings",
				   s->name, (uint8_t *)line - text, MAPS_MAX);
		else
			err = frozen_add_mapping(&s->frozen, &m);
	}
	free(text);
	frozen_sort(&s->frozen);
	return err;
}

/* Return whether memory has an ELF header at addr. */
static bool is_elf(const struct snapshot *s, uint64_t addr)
{
	uint8_t magic[SELFMAG];

	return !uw_memory_read((void *)(uintptr_t)&s->memory, addr, magic, sizeof(magic)) &&
	       !memcmp(magic, ELFMAG, SELFMAG);
}

/*
 * Set elf_off of each mapping: where its ELF image begins inside an archive.
 *
 * Adjacent mappings with the same name belong to one image. So do all mappings that follow one at
 * offset 0 with that name, even after holes. Memory without a name that begins with an ELF header
 * is a file, too, and gets a name.
 */
static int find_images(struct snapshot *s)
{
	const struct event_mapping *last = NULL;
	uint64_t end = 0; /* of the last file mapping and the holes behind it */

	for (size_t i = 0; i < s->frozen.n_mappings; i++) {
		struct event_mapping *m = &s->frozen.mappings[i];

		if (!*m->path && is_elf(s, m->start)) {
			char *path;

			if (asprintf(&path, "[elf@%" PRIx64 "]", m->start) < 0)
				return -ENOMEM;
			free((void *)(uintptr_t)m->path);
			m->path = path;
			m->file = true;
		}
		/*
		 * A loader may leave inaccessible holes between the segments of a file. They do
		 * not separate the segments.
		 */
		if (!*m->path && !m->prot && m->start == end)
			end = m->end;
		if (!m->file)
			continue;
		m->elf_off = m->off;
		if (last && !strcmp(last->path, m->path) && m->off > last->off &&
		    (last->elf_off == 0 || end == m->start))
			m->elf_off = last->elf_off;
		last = m;
		end = m->end;
	}
	return 0;
}

/* ---- the source ------------------------------------------------------------------ */

/* source_info.image: rebuild the ELF file that is mapped at start. */
static int get_image(void *ctx, uint32_t pid, uint64_t start, uint8_t **out, size_t *size)
{
	struct snapshot *s = ctx;

	(void)pid;
	return image_read(uw_memory_read, &s->memory, start, out, size);
}

static void snapshot_close(struct source *source)
{
	struct snapshot *s = (struct snapshot *)source;

	for (size_t i = 0; i < s->n_files; i++) {
		free(s->files[i].name);
		free(s->files[i].data);
	}
	frozen_fini(&s->frozen);
	if (s->fd >= 0)
		(void)close(s->fd);
	free(s);
}

static const struct source_ops ops = { .next = frozen_next, .close = snapshot_close };

/*
 * Return the last component of a path: "a/b/" gives "b". The caller frees it; NULL: out of memory.
 */
static char *base_name(const char *path)
{
	size_t end = strlen(path), start;

	while (end > 1 && path[end - 1] == '/')
		end--;
	for (start = end; start && path[start - 1] != '/'; start--)
		;
	return strndup(path + start, end - start);
}

/* Read everything. On failure s->error says why, unless it is a system error. */
static int read_snapshot(struct snapshot *s)
{
	struct frozen_thread thread = { .tid = 1 };
	int err = read_regs(s, &thread.regs);

	if (err)
		return err;
	err = read_maps(s);
	if (!err)
		err = read_memory_files(s);
	if (!err)
		err = find_images(s);
	if (err)
		return err;
	thread.name = base_name(s->name);
	if (!thread.name)
		return -ENOMEM;
	(void)snprintf(s->frozen.comm, sizeof(s->frozen.comm), "%s", thread.name);
	s->frozen.source.info.image = get_image;
	s->frozen.source.info.image_ctx = s;
	s->frozen.read = uw_memory_read;
	s->frozen.read_ctx = &s->memory;
	return frozen_add_thread(&s->frozen, &thread);
}

int source_snapshot_open(int fd, const char *name, struct source **out, char *error)
{
	struct snapshot *s = calloc(1, sizeof(*s));
	int err = -ENOMEM;

	if (s) {
		frozen_init(&s->frozen, &ops, "snapshot", 0);
		s->fd = fd;
		s->name = name;
		s->error = error;
		err = read_snapshot(s);
	} else {
		(void)close(fd);
	}
	if (!err) {
		s->name = s->error = NULL;
		*out = &s->frozen.source;
		return 0;
	}
	if (!error[0])
		(void)snprintf(error, 512, "%s: cannot be read: %s", name, strerror(-err));
	if (s)
		snapshot_close(&s->frozen.source);
	return err;
}
