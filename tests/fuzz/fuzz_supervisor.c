/*
 * tests/fuzz/fuzz_supervisor.c: fuzzes the supervisor with what a worker that was taken over could
 * send. The input is one message or several, each after its length (two bytes, little-endian); bit
 * 15 of the length: with a descriptor of the directory that is an input. Whatever is asked for, a
 * file that nobody named is not opened, and neither it nor others beside the results are changed.
 * Of packages there are two lists, on every machine.
 */
#include "agent/cli/supervisor.c"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LIST_ONE     "packages/libz1:amd64.list"
#define LIST_TWO     "packages/git.list"
#define MESSAGES_MAX 6 /* their replies must fit the socket: nobody reads them meanwhile */

static char folder[] = "/dev/shm/fuzz_supervisor.XXXXXX";
static int inside = -1, before = -1; /* that folder, and where libFuzzer has its files */
static int directory = -1;	     /* an input in it */
static DIR *windows;
static struct stat secret_is;
static struct message message;

/* In place of libc's. */
DIR *opendir(const char *path)
{
	int fd = strcmp(path, "/var/lib/dpkg/info") != 0
			 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
			 : openat(inside, "packages", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? NULL : fdopendir(fd);
}

static void make_file(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, name, strlen(name)) != (ssize_t)strlen(name) || close(fd))
		abort();
}

/* Remove the results, so that each input finds the same files. */
static void remove_results(void)
{
	struct dirent *entry;

	rewinddir(windows);
	while ((entry = readdir(windows)))
		if (strcmp(entry->d_name, "offwind-0-notes.txt") != 0)
			(void)unlinkat(dirfd(windows), entry->d_name, 0);
	(void)unlinkat(inside, "output", 0);
	(void)unlinkat(inside, "statistics", 0);
}

static void remove_all(void)
{
	static const char *const files[] = { "input",  "folder/file", "secret",
					     "output", "statistics",  "windows/offwind-0-notes.txt",
					     LIST_ONE, LIST_TWO };

	remove_results();
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		(void)unlinkat(inside, files[i], 0);
	(void)unlinkat(inside, "folder", AT_REMOVEDIR);
	(void)unlinkat(inside, "windows", AT_REMOVEDIR);
	(void)unlinkat(inside, "packages", AT_REMOVEDIR);
	(void)rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	before = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (before < 0 || !mkdtemp(folder))
		abort();
	inside = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (inside < 0 || fchdir(inside) || mkdir("folder", 0700) || mkdir("windows", 0700) ||
	    mkdir("packages", 0700))
		abort();
	directory = open("folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	windows = opendir("windows");
	if (directory < 0 || !windows)
		abort();
	(void)atexit(remove_all);
	make_file("input");
	make_file("folder/file");
	make_file("secret");
	make_file("windows/offwind-0-notes.txt");
	make_file(LIST_ONE);
	make_file(LIST_TWO);
	if (stat("secret", &secret_is))
		abort();
	stderr = fopen("/dev/null", "we"); /* libFuzzer has its own way to standard error */
	if (!stderr || fchdir(before))
		abort();
	return 0;
}

/* Send the messages of the input. */
static void send_all(int socket, const uint8_t *data, size_t size)
{
	for (int i = 0; i < MESSAGES_MAX && size >= 2; i++) {
		size_t n = ((size_t)data[0] | (size_t)data[1] << 8) & 0x7fff;
		bool with = data[1] & 0x80;

		data += 2;
		size -= 2;
		n = n < size ? n : size;
		message_init(&message);
		message_bytes(&message, data, n);
		if (with)
			message_fd(&message, directory);
		if (message_send(socket, &message))
			break;
		data += n;
		size -= n;
	}
	(void)shutdown(socket, SHUT_WR);
}

/* No reply has the file that nobody named. */
static void check_replies(int socket)
{
	while (!message_receive(socket, &message)) {
		for (size_t i = 0; i < message.n_fds; i++) {
			struct stat st;

			if (fstat(message.fds[i], &st) ||
			    (st.st_dev == secret_is.st_dev && st.st_ino == secret_is.st_ino))
				abort();
		}
		message_fini(&message);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char *inputs[] = { "input", "folder" };
	static const struct source_live_options live;
	static struct reading_notes reading;
	const struct supervision given = { .inputs = inputs,
					   .n_inputs = 2,
					   .output = "output",
					   .statistics = "statistics",
					   .windows = "windows",
					   .keep = 1,
					   .live = &live };
	static struct message received;
	struct supervisor s = { .given = &given, .reading = &reading, .standard = -1 };
	struct stat st;
	int ends[2];

	for (size_t i = 0; i < OUTPUTS_MAX; i++)
		s.outputs[i].fd = -1;
	if (fchdir(inside) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		abort();
	s.socket = ends[1];
	send_all(ends[0], data, size);
	attend(&s, &received);
	(void)close(ends[1]);
	check_replies(ends[0]);
	(void)close(ends[0]);
	supervisor_abort_outputs(&s);
	remove_results();
	if (stat("secret", &st) || st.st_size != secret_is.st_size || access("input", F_OK) ||
	    access("folder/file", F_OK) || access("windows/offwind-0-notes.txt", F_OK) ||
	    fchdir(before))
		abort();
	return 0;
}
