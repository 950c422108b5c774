/*
 * agent/cli/advice.c: finds the packages with debug symbols for files without names, on Debian's
 * systems.
 */
#include "agent/cli/advice.h"

#include "agent/clock.h"
#include "agent/ending.h"
#include "agent/log.h"
#include "agent/role/files.h"
#include "agent/role/message.h"
#include "agent/textbuf.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	SHARE_LEAST = 5,     /* percent without names from which on advice is given */
	FILE_LEAST = 1,	     /* percent from which on a file is mentioned */
	FILES = 3,	     /* mentioned files, at most */
	LIST_MAX = 16 << 20, /* bytes of one list; the kernel's sources have 6 MB */
	PACKAGE = 128,
};

/*
 * The limit for reading the lists. 1,300 lists with 11 MB take 30 ms once the kernel has cached
 * them.
 */
#define LISTS_NS UINT64_C(300000000)

struct search {
	const struct unnamed_file *files[FILES]; /* the largest shares first */
	char packages[FILES][PACKAGE]; /* of the package to install for each file; "": not found */
	bool done[FILES]; /* its package was found, and so was whether it needs to be installed */
	size_t n;
};

static double percent(uint64_t part, uint64_t whole)
{
	return 100 * (double)part / (double)whole;
}

/* ---- packages --------------------------------------------------------------------- */

/*
 * Return path without a leading "/usr". /bin, /lib and /sbin may be links into /usr, and the lists
 * name files in either place.
 */
static const char *without_usr(const char *path)
{
	return strncmp(path, "/usr/", 5) ? path : path + 4;
}

/* Return true if the list has a line that is path, with or without "/usr" before it. */
static bool lists(const char *list, size_t size, const char *path)
{
	const char *end = list + size, *bare = without_usr(path);
	size_t n = strlen(bare);

	/* A worker may ask for a file without a name. */
	if (!n)
		return false;
	for (const char *at = list; (at = memmem(at, (size_t)(end - at), bare, n)); at++) {
		const char *line = at;

		if (at + n < end && at[n] != '\n')
			continue;
		if (line - list >= 4 && !memcmp(line - 4, "/usr", 4))
			line -= 4;
		if (line == list || line[-1] == '\n')
			return true;
	}
	return false;
}

/*
 * Return the contents of a list in the directory, or NULL; the caller frees them. The contents are
 * not terminated.
 */
static char *read_list(int directory, const char *name, size_t *size)
{
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	char *text = NULL;
	ssize_t n;

	*size = 0;
	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= LIST_MAX)
		text = malloc((size_t)st.st_size + 1);
	while (text && *size < (size_t)st.st_size &&
	       (n = read(fd, text + *size, (size_t)st.st_size - *size)) > 0)
		*size += (size_t)n;
	if (fd >= 0)
		(void)close(fd);
	return text;
}

static const char *const native[] = { ":amd64", ":arm64" };

/*
 * Set out to the package with the debug symbols of package (such as "zlib1g:amd64"); to "" if that
 * package is installed already, because then it did not help. libc6's package ends in -dbg, all
 * others' in -dbgsym.
 */
static void found(int directory, const char *package, char out[PACKAGE])
{
	const char *arch = strchr(package, ':');
	int n = (int)(arch ? arch - package : (ssize_t)strlen(package));
	const char *suffix = n == 5 && !strncmp(package, "libc6", 5) ? "-dbg" : "-dbgsym";
	char list[PACKAGE + 8];

	/* apt needs no architecture for this machine's own packages. */
	for (size_t i = 0; arch && i < sizeof(native) / sizeof(native[0]); i++)
		if (!strcmp(arch, native[i]))
			arch = NULL;
	(void)snprintf(out, PACKAGE, "%.*s%s%s", n, package, suffix, arch ? arch : "");
	(void)snprintf(list, sizeof(list), "%s.list", out);
	if (!faccessat(directory, list, F_OK, 0))
		*out = '\0';
	(void)snprintf(list, sizeof(list), "%.*s%s%s.list", n < PACKAGE - 40 ? n : 0, package,
		       suffix, strchr(package, ':') ? strchr(package, ':') : "");
	if (!faccessat(directory, list, F_OK, 0))
		*out = '\0';
}

/* Look for all files in the list called name, and note the package of each that is found. */
static void search_list(struct search *s, int directory, const char *name)
{
	char package[PACKAGE], *list;
	size_t size;

	list = read_list(directory, name, &size);
	(void)snprintf(package, sizeof(package), "%.*s", (int)(strlen(name) - strlen(".list")),
		       name);
	for (size_t i = 0; list && i < s->n; i++)
		if (s->files[i]->own && !s->done[i] && lists(list, size, s->files[i]->path)) {
			found(directory, package, s->packages[i]);
			s->done[i] = true;
		}
	free(list);
}

/*
 * Return true if the packages of all files are known. Files that only their process sees, such as
 * a container's, are not looked up.
 */
static bool is_done(const struct search *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->files[i]->own && !s->done[i])
			return false;
	return true;
}

/* Search the lists of the packages with that name, with and without an architecture. */
static void search_named(struct search *s, int directory, const char *package)
{
	char name[PACKAGE];

	(void)snprintf(name, sizeof(name), "%s.list", package);
	search_list(s, directory, name);
	for (size_t i = 0; i < sizeof(native) / sizeof(native[0]); i++) {
		(void)snprintf(name, sizeof(name), "%s%s.list", package, native[i]);
		search_list(s, directory, name);
	}
}

/*
 * Search the lists of packages whose names are likely for the file: git is in git; libz.so.1 is in
 * libz1 by Debian's policy (§8.1: soname without ".so."); libLLVM-14.so.1 is in libllvm14.
 */
static void search_likely(struct search *s, int directory, const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	const char *so = strstr(base, ".so."), *version = so ? so + 4 : "";
	size_t n = so ? (size_t)(so - base) : strlen(base), digits = 0;
	char name[PACKAGE / 2];

	if (!n || n >= sizeof(name) / 2)
		return;
	(void)snprintf(name, sizeof(name), "%.*s%s%.*s", (int)n, base,
		       *version && isdigit((unsigned char)base[n - 1]) ? "-" : "",
		       (int)strcspn(version, "."), version);
	for (char *c = name; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	search_named(s, directory, name);
	while (digits < n && isdigit((unsigned char)base[n - 1 - digits]))
		digits++;
	if (!so || !digits || digits + 1 >= n || base[n - 1 - digits] != '-' || is_done(s))
		return;
	memmove(name + n - digits - 1, name + n - digits, digits);
	name[n - 1] = '\0';
	search_named(s, directory, name);
}

/* Find the package of each file, if it has one. */
static void find_packages(struct search *s, const struct advice_places *places)
{
	uint64_t end = now_ns() + places->limit_ns;
	DIR *directory = opendir(places->packages);
	const struct dirent *entry;

	/* Try likely packages first: that is mostly enough, and reading all lists takes long. */
	for (size_t i = 0; directory && i < s->n; i++)
		if (s->files[i]->own)
			search_likely(s, dirfd(directory), s->files[i]->path);
	while (directory && !is_done(s) && (entry = readdir(directory)) && now_ns() < end) {
		size_t n = strlen(entry->d_name);

		if (n > 5 && n < PACKAGE - 16 && !strcmp(entry->d_name + n - 5, ".list"))
			search_list(s, dirfd(directory), entry->d_name);
	}
	if (directory)
		(void)closedir(directory);
	/*
	 * The sampled file may be another one at the same path, as in a container: compare the
	 * inodes.
	 */
	for (size_t i = 0; i < s->n; i++) {
		const struct unnamed_file *f = s->files[i];
		struct stat st;

		if (*s->packages[i] && f->inode && !stat(f->path, &st) && st.st_ino != f->inode)
			*s->packages[i] = '\0';
	}
}

/* ---- the sentence ------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
	const struct unnamed_file *const *x = a, *const *y = b;

	return ((*x)->value < (*y)->value) - ((*x)->value > (*y)->value);
}

/*
 * Choose the files to mention: the one with the largest share, and the next ones that have at
 * least FILE_LEAST percent. Return 0 or -ENOMEM.
 */
static int take_largest(struct search *s, const struct unnamed *u)
{
	const struct unnamed_file **all = calloc(u->n_files + 1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < u->n_files; i++)
		all[i] = &u->files[i];
	qsort(all, u->n_files, sizeof(*all), by_value);
	for (size_t i = 0; i < u->n_files && s->n < FILES; i++)
		if (!s->n || percent(all[i]->value, u->whole) >= FILE_LEAST)
			s->files[s->n++] = all[i];
	free(all);
	return 0;
}

/* Append the packages to install, each once. Return their number. */
static size_t put_packages(const struct search *s, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		bool again = !*s->packages[i];

		for (size_t j = 0; j < i; j++)
			again = again || !strcmp(s->packages[i], s->packages[j]);
		if (!again)
			textbuf_add(out, size, "%s%s", n++ ? " " : "install ", s->packages[i]);
	}
	return n;
}

/*
 * Search for packages only if a sentence will be written: reading the lists of packages takes time.
 */
void advice_text(const struct unnamed *u, const struct advice_places *places, char *out,
		 size_t size)
{
	struct search s = { .n = 0 };
	size_t n;

	*out = '\0';
	if (u->unsure || !u->whole || percent(u->value, u->whole) < SHARE_LEAST ||
	    take_largest(&s, u) || !s.n)
		return;
	find_packages(&s, places);
	textbuf_add(out, size, "%.0f %% of %s is in functions without names (",
		    percent(u->value, u->whole), *u->what ? u->what : "the time");
	for (size_t i = 0; i < s.n; i++) {
		const char *slash = strrchr(s.files[i]->path, '/');

		textbuf_add(out, size, "%s%.100s %.0f %%", i ? ", " : "",
			    slash ? slash + 1 : s.files[i]->path,
			    percent(s.files[i]->value, u->whole));
	}
	textbuf_add(out, size, "): ");
	n = put_packages(&s, out, size);
	if (!places->fetches)
		textbuf_add(out, size, "%sset DEBUGINFOD_URLS", n ? ", or " : "");
	if (!n)
		textbuf_add(out, size, "%sbuild with symbols (-g, not stripped)",
			    places->fetches ? "" : ", or ");
}

/* Find the sentence for this system and print it. */
static void say(const struct unnamed *u)
{
	const char *urls = getenv("DEBUGINFOD_URLS");
	struct advice_places places = { .packages = "/var/lib/dpkg/info",
					.fetches = urls && *urls,
					.limit_ns = ending_left() };
	char text[1024];

	if (places.limit_ns > LISTS_NS)
		places.limit_ns = LISTS_NS;

	advice_text(u, &places, text, sizeof(text));
	if (*text)
		log_info("%s", text);
}

/* ---- from a worker to its supervisor -------------------------------------------------- */

/* Write the files with the largest shares; the sentence names no others (files_put_fn). */
static void put(void *ctx, struct message *m)
{
	const struct unnamed *u = ctx;
	struct search s = { .n = 0 };

	(void)take_largest(&s, u);
	message_text(m, u->what);
	message_number(m, u->whole);
	message_number(m, u->value);
	message_number(m, u->unsure);
	message_number(m, s.n);
	for (size_t i = 0; i < s.n; i++) {
		message_text(m, s.files[i]->path);
		message_number(m, s.files[i]->own);
		message_number(m, s.files[i]->inode);
		message_number(m, s.files[i]->value);
	}
}

void advice_serve(struct message *m)
{
	struct unnamed_file files[FILES] = { { 0 } };
	struct unnamed u = { .files = files };
	const char *what = message_take_text(m);
	size_t n;

	(void)snprintf(u.what, sizeof(u.what), "%s", what ? what : "");
	u.whole = message_take_number(m);
	u.value = message_take_number(m);
	u.unsure = message_take_number(m);
	n = message_take_number(m);
	for (; !m->err && u.n_files < n && u.n_files < FILES; u.n_files++) {
		struct unnamed_file *f = &files[u.n_files];

		f->path = (char *)(uintptr_t)message_take_text(m);
		f->own = message_take_number(m);
		f->inode = message_take_number(m);
		f->value = message_take_number(m);
		if (!f->path)
			return;
	}
	if (!m->err)
		say(&u);
}

void advice_say(const struct unnamed *u)
{
	if (log_is_quiet())
		return;
	if (files_are_asked_for())
		files_tell(FILES_ADVISE, put, (void *)(uintptr_t)u);
	else
		say(u);
}
