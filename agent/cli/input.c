/*
 * agent/cli/input.c: recognizes input files by their first bytes, and parses numbers of options.
 */
#include "agent/cli/input.h"

#include "agent/array.h"
#include "agent/log.h"
#include "agent/role/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Copy the first size bytes of fd to head, without consuming them. Return their number, which may
 * be less, or -1 with errno. tee(2) copies bytes of a pipe without consuming them.
 */
static ssize_t peek(int fd, char *head, size_t size)
{
	bool hung_up = false;
	size_t n = 0;
	int ends[2];

	if (lseek(fd, 0, SEEK_CUR) >= 0)
		return pread(fd, head, size, 0);
	while (n < size) {
		ssize_t got;

		if (pipe2(ends, O_CLOEXEC))
			return -1;
		got = tee(fd, ends[1], size, 0);
		if (got > 0 && read(ends[0], head, (size_t)got) != got)
			got = -1;
		(void)close(ends[0]);
		(void)close(ends[1]);
		if (got < 0)
			return -1;
		if (!got)
			break;
		if ((size_t)got == n) {
			/* No more bytes than before: the pipe has ended, or its writer is slow. */
			struct pollfd other = { .fd = fd };

			if (hung_up)
				break;
			/* After a hang-up look once more, for what was written just before it. */
			hung_up = poll(&other, 1, 10) > 0;
		}
		n = (size_t)got;
	}
	return (ssize_t)n;
}

/* Return true if an open directory is a snapshot: it has a maps.txt. */
static bool is_snapshot(int dir)
{
	int maps;

	if (files_open_in(dir, "maps.txt", true, &maps))
		return false;
	(void)close(maps);
	return true;
}

/*
 * Return the program that unpacks a file with these first bytes; NULL if the file is not
 * compressed.
 */
static const char *unpacker(const char *head, size_t size)
{
	static const struct {
		const char *magic, *program;
		size_t size;
	} kinds[] = { { "\x1f\x8b", "gunzip", 2 },
		      { "\x28\xb5\x2f\xfd", "unzstd", 4 },
		      { "\xfd"
			"7zXZ",
			"unxz", 5 } };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (size >= kinds[i].size && !memcmp(head, kinds[i].magic, kinds[i].size))
			return kinds[i].program;
	return NULL;
}

/*
 * Detect the kind of the recording by its first bytes. peek does not consume them, in a pipe
 * neither, so that the source reads from the start.
 */
int input_open(const char *path, struct source **out)
{
	bool standard = !strcmp(path, "-");
	const char *name = standard ? "standard input" : path;
	char head[SOURCE_HEAD], error[512] = "";
	struct stat st;
	int fd = -1, err = files_open(path, &fd);
	ssize_t n;

	if (!err && fstat(fd, &st))
		err = -errno;
	if (err) {
		log_error("%s: %s", name, strerror(-err));
		goto out;
	}
	if (S_ISDIR(st.st_mode)) {
		err = source_snapshot_open(fd, name, out, error);
		if (err)
			log_error("%s", error);
		return err;
	}
	n = peek(fd, head, sizeof(head));
	if (n < 0) {
		err = -errno;
		log_error("%s: offset 0: cannot be read: %s", name, strerror(-err));
		goto out;
	}
	switch (source_detect(head, (size_t)n)) {
	case SOURCE_PERFDATA:
		err = source_perfdata_open(fd, name, out, error);
		break;
	case SOURCE_OWC:
		err = source_owc_open(fd, name, out, error);
		break;
	case SOURCE_CORE:
		err = source_core_open(fd, name, out, error);
		break;
	case SOURCE_UNKNOWN:
	default:
		err = -EBADMSG;
		if (unpacker(head, (size_t)n))
			log_error("%s: offset 0: the file is compressed, or a profile; unpack a "
				  "recording first (%s)",
				  name, unpacker(head, (size_t)n));
		else
			log_error("%s: offset 0: %s", name,
				  n ? "neither a perf.data nor an .owc nor a core file"
				    : "the file is empty");
		goto out;
	}
	if (err)
		log_error("%s", error);
	return err;
out:
	if (fd >= 0)
		(void)close(fd);
	return err;
}

bool input_is_recording(const char *path)
{
	bool recording = false;
	char head[SOURCE_HEAD];
	struct stat st;
	int fd = -1;

	if (!files_open(path, &fd) && !fstat(fd, &st)) {
		/*
		 * Other kinds of files, such as terminals, cannot be examined without consuming
		 * their input.
		 */
		ssize_t n = S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode)
				    ? peek(fd, head, sizeof(head))
				    : 0;

		recording = S_ISDIR(st.st_mode)
				    ? is_snapshot(fd)
				    : n > 0 && source_detect(head, (size_t)n) != SOURCE_UNKNOWN;
	}
	if (fd >= 0)
		(void)close(fd);
	return recording;
}

/* ---- directories ------------------------------------------------------------------- */

/*
 * Append path, which then belongs to the list; NULL: out of memory. Return 0, or -ENOMEM after
 * reporting it. path is freed on failure.
 */
static int append(struct input_list *list, char *path)
{
	if (!path || array_grow(list->paths, list->n, list->room)) {
		free(path);
		log_error("%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	list->paths[list->n++] = path;
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Append the snapshots in an open directory, which this closes. */
static int append_snapshots(struct input_list *list, const char *path, int fd)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	int err = 0;

	if (!dir) {
		err = -errno;
		log_error("%s: %s", path, strerror(-err));
		(void)close(fd);
		return err;
	}
	while (!err && (entry = readdir(dir))) {
		char *whole;
		int one;

		if (entry->d_name[0] == '.' || files_open_in(dirfd(dir), entry->d_name, true, &one))
			continue;
		if (is_snapshot(one)) {
			if (asprintf(&whole, "%s/%s", path, entry->d_name) < 0)
				whole = NULL;
			err = append(list, whole);
		}
		(void)close(one);
	}
	(void)closedir(dir);
	return err;
}

/* Sort the snapshots of each directory on their own: the order of the arguments stays. */
int input_list_add(struct input_list *list, const char *path)
{
	size_t before = list->n;
	struct files_facts facts;
	int fd, err;

	/* If something is wrong with path, input_open reports it. */
	if (!strcmp(path, "-") || files_stat(path, &facts) || !S_ISDIR(facts.mode))
		return append(list, strdup(path));
	err = files_open(path, &fd);
	if (err) {
		log_error("%s: %s", path, strerror(-err));
		return err;
	}
	if (is_snapshot(fd)) {
		(void)close(fd);
		return append(list, strdup(path));
	}
	err = append_snapshots(list, path, fd);
	if (!err && list->n == before) {
		log_error("%s: is a directory without maps.txt, and none of its subdirectories has "
			  "one",
			  path);
		return -ENOENT;
	}
	qsort(list->paths + before, list->n - before, sizeof(*list->paths), by_text);
	return err;
}

void input_list_free(struct input_list *list)
{
	while (list->n)
		free(list->paths[--list->n]);
	free(list->paths);
}

const char *input_beside(const struct source *source, const char *path)
{
	return strcmp(source->info.kind, "snapshot") ? NULL : path;
}

int input_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || value < min || value > max) {
		log_error("%s takes a number from %" PRIu64 " to %" PRIu64 ", not '%s'", option,
			  min, max, text);
		return -EINVAL;
	}
	*out = value;
	return 0;
}

/* Test the upper bits of the value before the shift: a number with K, M or G can exceed 64 bits. */
int input_size(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	static const char units[] = "KMG";
	const char *unit;
	uint64_t value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	unit = *end && !end[1] ? strchr(units, *end) : NULL;
	if (unit && value >> (54 - 10 * (unit - units)))
		errno = ERANGE;
	else if (unit)
		value <<= 10 * (unit - units + 1);
	if (errno || end == text || (*end && !unit) || text[0] == '-' || value < min ||
	    value > max) {
		log_error("%s takes a size from %" PRIu64 " to %" PRIu64
			  " bytes (suffixes K, M and G), not '%s'",
			  option, min, max, text);
		return -EINVAL;
	}
	*out = value;
	return 0;
}

int input_pages(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t pages;

	if (!*text || text[strspn(text, "0123456789")])
		return input_size(option, text, min, max, out);
	if (input_number(option, text, 1, max >> 12, &pages))
		return -EINVAL;
	*out = pages << 12 < min ? min : pages << 12;
	return 0;
}

int input_time(const char *option, const char *text, uint64_t max_ns, uint64_t *out)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
		{ "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "", 1000000 }, { "s", 1000000000 }
	};
	uint64_t value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	for (size_t i = 0;
	     !errno && end != text && text[0] != '-' && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].name) != 0 || value > max_ns / units[i].ns)
			continue;
		*out = value * units[i].ns;
		return 0;
	}
	log_error("%s takes a time such as 500us, 10ms or 1s, not '%s'", option, text);
	return -EINVAL;
}

int input_duration(const char *option, const char *text, uint64_t max_ns, uint64_t *out)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = { { "", 1e9 },   { "s", 1e9 },    { "ms", 1e6 },   { "us", 1e3 },
		      { "m", 60e9 }, { "min", 60e9 }, { "h", 3600e9 }, { "d", 86400e9 } };
	size_t n = strspn(text, "0123456789.");
	char *end;
	double value;

	/*
	 * Accept only digits and one point. strtod alone would also take "inf", "0x1p3" and signs.
	 */
	errno = 0;
	value = strtod(text, &end);
	for (size_t i = 0; !errno && n && end == text + n && i < sizeof(units) / sizeof(units[0]);
	     i++) {
		double ns = value * units[i].ns;

		if (strcmp(end, units[i].name) != 0 || ns < 1 || ns > (double)max_ns)
			continue;
		*out = (uint64_t)(ns + 0.5) < max_ns ? (uint64_t)(ns + 0.5) : max_ns;
		return 0;
	}
	log_error("%s takes seconds, or a time such as 500ms, 10s, 5m, 1h or 2d, not '%s'", option,
		  text);
	return -EINVAL;
}
