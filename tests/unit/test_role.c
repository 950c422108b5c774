/*
 * tests/unit/test_role.c: tests the messages between offwind's processes, and the opener's process:
 * what it gives out, and that nothing in a request can harm it.
 */
#include "agent/errand.h"
#include "agent/io.h"
#include "agent/opener/request.h"
#include "agent/role/channel.h"
#include "agent/role/message.h"
#include "agent/role/reading.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/asan.h"
#include "tests/check.h"

static struct message one, two; /* too large for the stack */

static void test_fields_come_back_in_order(void)
{
	int ends[2];

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "socketpair");
	message_init(&one);
	message_number(&one, UINT64_MAX);
	message_text(&one, "text");
	message_text(&one, NULL);
	message_text(&one, "");
	message_bytes(&one, "abc", 3);
	message_fd(&one, ends[0]);
	CHECK(!message_send(ends[0], &one) && !message_receive(ends[1], &two), "sent and received");
	CHECK(message_take_number(&two) == UINT64_MAX, "a number");
	CHECK(!strcmp(message_take_text(&two), "text"), "a text");
	CHECK(!message_take_text(&two) && !two.err, "NULL");
	CHECK(!strcmp(message_take_text(&two), ""), "an empty text");
	{
		char bytes[3];
		struct stat was, is;
		int fd = message_take_fd(&two);

		message_take_bytes(&two, bytes, 3);
		CHECK(!memcmp(bytes, "abc", 3) && !two.err, "bytes");
		CHECK(fd >= 0 && !fstat(ends[0], &was) && !fstat(fd, &is) &&
			      was.st_ino == is.st_ino,
		      "an open file");
		CHECK(message_take_fd(&two) == -1, "no more files");
		(void)close(fd);
	}
	message_take_number(&two);
	CHECK(two.err == -EBADMSG, "reading beyond the end is an error");
	message_fini(&two);
	(void)close(ends[0]);
	CHECK(message_receive(ends[1], &two) == -EPIPE, "the other end is closed");
	(void)close(ends[1]);
}

/* A text must end with its only zero byte, and lie inside the message. */
static void test_texts_are_checked(void)
{
	message_init(&one);
	message_number(&one, 3);
	message_bytes(&one, "abc", 3);
	CHECK(!message_take_text(&one) && one.err == -EBADMSG, "a text without its end");
	message_init(&one);
	message_number(&one, UINT64_MAX - 1);
	message_bytes(&one, "abc", 4);
	CHECK(!message_take_text(&one) && one.err == -EBADMSG, "a text beyond the message");
	message_init(&one);
	message_number(&one, 0);
	CHECK(!message_take_text(&one) && one.err == -EBADMSG, "a text of no bytes");
}

static void test_too_much_is_refused(void)
{
	static char large[MESSAGE_MAX + 1];

	message_init(&one);
	message_bytes(&one, large, sizeof(large));
	CHECK(one.err == -E2BIG && !one.size, "too many bytes");
	CHECK(message_send(-1, &one) == -E2BIG, "not sent");
	message_init(&one);
	for (int i = 0; i <= MESSAGE_FDS; i++)
		message_fd(&one, 0);
	CHECK(one.err == -E2BIG && one.n_fds == MESSAGE_FDS, "too many files");
}

/* Allow this process to open no more files, or as many as before. */
static void allow_files(bool allow)
{
	static struct rlimit before;
	struct rlimit none;

	if (!allow) {
		CHECK(!getrlimit(RLIMIT_NOFILE, &before), "getrlimit");
		none = before;
		none.rlim_cur = 0;
	}
	CHECK(!setrlimit(RLIMIT_NOFILE, allow ? &before : &none), "setrlimit");
}

static void test_a_file_too_many_is_an_error_of_one_message(void)
{
	int ends[2], fd;

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "socketpair");
	message_init(&one);
	message_number(&one, 7);
	message_fd(&one, ends[0]);
	message_fd(&one, ends[1]);
	for (int i = 0; i < 3; i++)
		CHECK(!message_send(ends[0], &one), "sent");
	allow_files(false);
	CHECK(!message_receive(ends[1], &two) && message_take_number(&two) == 7 && !two.err,
	      "the message arrives");
	CHECK(message_take_fd(&two) == -1 && two.err == -EMFILE, "without its files");
	message_fini(&two);
	CHECK(!message_receive(ends[1], &two), "the next one");
	message_take_bytes(&two, &fd, sizeof(fd));
	CHECK(!two.err, "who needs no file has no error");
	message_fini(&two);
	allow_files(true);
	CHECK(!message_receive(ends[1], &two), "a message");
	fd = message_take_fd(&two);
	CHECK(fd >= 0 && !two.err && !close(fd), "with its files");
	message_fini(&two);
	(void)close(ends[0]);
	(void)close(ends[1]);
}

/* ---- channels ----------------------------------------------------------------------- */

/* Give back the number, doubled; end the process at 0. */
static void twice(void *ctx, struct message *request, struct message *reply)
{
	uint64_t number = message_take_number(request);

	(void)ctx;
	if (!number)
		_exit(0);
	message_number(reply, number * 2);
}

static void *ask(void *ctx)
{
	struct channels *channels = ctx;
	struct message *m = malloc(sizeof(*m));
	uintptr_t wrong = 0;

	for (uint64_t i = 1; m && i <= 200; i++) {
		message_init(m);
		message_number(m, i);
		wrong += channels_call(channels, m, m) || message_take_number(m) != i * 2;
		message_fini(m);
	}
	free(m);
	return (void *)(wrong + !m);
}

/* More threads than channels; then the answering process ends. */
static void test_threads_share_channels(void)
{
	struct channels *channels;
	pthread_t threads[8];
	void *wrong;
	pid_t pid;

	CHECK(!channels_new(3, &channels), "channels_new");
	pid = fork();
	if (!pid) {
		channels_answer(channels, twice, NULL);
		_exit(0);
	}
	channels_ask(channels);
	for (int i = 0; i < 8; i++)
		CHECK(!pthread_create(&threads[i], NULL, ask, channels), "pthread_create");
	for (int i = 0; i < 8; i++) {
		CHECK(!pthread_join(threads[i], &wrong), "pthread_join");
		CHECK(!wrong, "every reply belongs to its request");
	}
	for (int i = 0; i < 4; i++) {
		message_init(&one);
		message_number(&one, 0);
		CHECK(channels_call(channels, &one, &one) == -EPIPE, "nobody answers any more");
	}
	CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
	channels_free(channels);
}

/* Reply with the number of this process's threads. */
static void count_threads(void *ctx, struct message *request, struct message *reply)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *entry;
	uint64_t n = 0;

	(void)ctx;
	(void)request;
	while (tasks && (entry = readdir(tasks)))
		n += entry->d_name[0] != '.';
	if (tasks)
		(void)closedir(tasks);
	message_number(reply, n);
}

static void test_threads_begin_when_channels_are_used(void)
{
	struct channels *channels;
	pid_t pid;

	CHECK(!channels_new(20, &channels), "channels_new");
	pid = fork();
	if (!pid) {
		channels_answer(channels, count_threads, NULL);
		_exit(0);
	}
	channels_ask(channels);
	for (int i = 0; i < 3; i++) {
		message_init(&one);
		CHECK(!channels_call(channels, &one, &one), "call");
		CHECK(message_take_number(&one) == 2, "one at a time takes one, and a next one");
		message_fini(&one);
	}
	for (int i = 0; i < 10; i++) {
		message_init(&one);
		message_fd(&one, 1 << 20);
		CHECK(channels_call(channels, &one, &one) == -EBADF, "it cannot be sent");
	}
	message_init(&one);
	CHECK(!channels_call(channels, &one, &one), "the channel after those that failed");
	message_fini(&one);
	channels_free(channels);
	CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
}

static int gate[2]; /* a pipe, from which a handler reads before it answers */

/* Give back the number; 1 only when there is something in the pipe. */
static void through_gate(void *ctx, struct message *request, struct message *reply)
{
	uint64_t number = message_take_number(request);
	char byte;

	(void)ctx;
	if (number == 1)
		(void)!read(gate[0], &byte, 1);
	message_number(reply, number);
}

static uint64_t number_back(struct channels *channels, uint64_t number)
{
	uint64_t back;

	message_init(&one);
	message_number(&one, number);
	if (channels_call(channels, &one, &one))
		return 0;
	back = message_take_number(&one);
	message_fini(&one);
	return back;
}

static void test_a_late_reply_is_nobodys(void)
{
	struct channels *channels;
	size_t late = 99, later = 99, none = 99;
	pid_t pid;

	CHECK(!pipe(gate) && !channels_new(2, &channels), "channels_new");
	pid = fork();
	if (!pid) {
		channels_answer(channels, through_gate, NULL);
		_exit(0);
	}
	channels_ask(channels);
	message_init(&one);
	message_number(&one, 1);
	CHECK(channels_call_within(channels, &one, &one, 1, &late) == -ETIMEDOUT, "no reply");
	CHECK(late < 2 && channels_is_late(channels, late), "the reply is late");
	CHECK(number_back(channels, 2) == 2, "the other channel can be used");
	message_init(&one);
	message_number(&one, 1);
	CHECK(channels_call_within(channels, &one, &one, 1, &later) == -ETIMEDOUT, "nor there");
	message_init(&one);
	message_number(&one, 3);
	CHECK(channels_call_within(channels, &one, &one, 1, &none) == -EBUSY && none == 99,
	      "no channel is free");
	CHECK(write(gate[1], "xx", 2) == 2, "write");
	while (channels_is_late(channels, late))
		(void)sched_yield();
	while (channels_is_late(channels, later))
		(void)sched_yield();
	message_init(&one);
	message_number(&one, 3);
	CHECK(!channels_call_within(channels, &one, &one, 100000, &late) &&
		      message_take_number(&one) == 3,
	      "its channel is used again, and gives its own reply");
	CHECK(write(gate[1], "x", 1) == 1 && number_back(channels, 1) == 1, "in time");
	channels_free(channels);
	CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
}

static void *ask_slowly(void *ctx)
{
	struct message *m = malloc(sizeof(*m));
	uintptr_t wrong = !m;

	if (m) {
		message_init(m);
		message_number(m, 1);
		wrong = channels_call_within(ctx, m, m, CHANNEL_SLOW, NULL) ||
			message_take_number(m) != 1;
	}
	free(m);
	return (void *)wrong;
}

static void test_slow_requests_leave_channels_to_others(void)
{
	struct channels *channels;
	pthread_t threads[2];
	size_t late;
	void *wrong;
	pid_t pid;

	CHECK(!pipe(gate) && !channels_new(2, &channels), "channels_new");
	pid = fork();
	if (!pid) {
		(void)close(gate[1]);
		channels_answer(channels, through_gate, NULL);
		_exit(0);
	}
	channels_ask(channels);
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, ask_slowly, channels), "pthread_create");
	for (int i = 0; i < 500; i++) {
		message_init(&one);
		message_number(&one, 2);
		if (channels_call_within(channels, &one, &one, 5000, &late)) {
			CHECK(false, "a channel is free while others wait for slow replies");
			break;
		}
		message_fini(&one);
		(void)sched_yield();
	}
	CHECK(write(gate[1], "ab", 2) == 2, "write");
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_join(threads[i], &wrong) && !wrong, "both get their reply");
	channels_free(channels);
	CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
	(void)close(gate[0]);
	(void)close(gate[1]);
}

/* ---- the opener's process -------------------------------------------------------------- */

static char dir[] = "/tmp/role.XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(in_dir(name), "w");

	CHECK(f && fputs(text, f) >= 0 && !fclose(f), "fixture");
}

static int open_first(struct opener *opener, const char *path, int *fd)
{
	struct opener_file file = { .path = path };
	unsigned int next = 0;

	return opener_open(opener, &file, &next, fd);
}

static void test_only_code_is_given_out(void)
{
	struct opener_options options = { .until_ns = 0 };
	struct opener *opener;
	char dump[256];
	int fd;

	put("elf", "\177ELF and more");
	put("secret", "root:secret");
	put("jit", "DTiJ and more");
	CHECK(!opener_new(&options, &opener), "opener_new");
	CHECK(!open_first(opener, in_dir("elf"), &fd) && !close(fd), "an ELF file");
	allow_files(false);
	CHECK(open_first(opener, in_dir("elf"), &fd) == -EMFILE, "a file too many");
	allow_files(true);
	CHECK(!open_first(opener, in_dir("elf"), &fd) && !close(fd), "the opener goes on");
	CHECK(open_first(opener, in_dir("secret"), &fd) == -ENOTSUP, "any other file");
	CHECK(open_first(opener, in_dir("none"), &fd) == -ENOENT, "no file");
	CHECK(open_first(opener, "", &fd) == -ENOENT, "no name");
	(void)snprintf(dump, sizeof(dump), "%s", in_dir("jit"));
	CHECK(!opener_open_jit(opener, 0, NULL, dump, &fd) && !close(fd), "a jitdump file");
	(void)snprintf(dump, sizeof(dump), "%s", in_dir("secret"));
	CHECK(opener_open_jit(opener, 0, NULL, dump, &fd) < 0, "what is called a jitdump file");
	opener_free(opener);
}

/* A program can map files that are no code one after the other: each is opened once. */
static void test_the_mapped_file_is_the_last_candidate(void)
{
	struct opener_options options = { .live = true };
	struct opener_file file = { .pid = (uint32_t)getpid(), .path = in_dir("secret") };
	unsigned int next = 0, next_of_another = 0;
	struct opener *opener;
	struct stat st;
	int fd;

	CHECK(!opener_new(&options, &opener), "opener_new");
	CHECK(!stat(file.path, &st), "stat");
	file.major = major(st.st_dev);
	file.minor = minor(st.st_dev);
	file.inode = st.st_ino + 1;
	CHECK(opener_open(opener, &file, &next_of_another, &fd) == -ENOTSUP, "another file");
	file.inode = st.st_ino;
	CHECK(opener_open(opener, &file, &next, &fd) == -ENOTSUP && next < next_of_another,
	      "the mapped file: no further candidate is tried");
	opener_free(opener);
}

/* What a worker that was taken over could send. */
static void test_bad_requests_are_refused(struct channels *channels)
{
	struct opener_part parts[REQUEST_PARTS_MAX + 1] = { { .addr = 1 } };
	struct request request = { .what = REQUEST_OPEN, .fd = -1, .parts = parts };
	struct reply reply;

	request.opener = 4711;
	CHECK(request_call(&request, &reply) == -EINVAL, "an opener that does not exist");
	request.opener = 1;
	request.what = 12345;
	CHECK(request_call(&request, &reply) == -EINVAL, "a request that does not exist");
	request.what = REQUEST_OPEN_NAMED;
	CHECK(request_call(&request, &reply) == -EINVAL, "without a name and a file");
	request.what = REQUEST_OPEN;
	request.file.build_id.size = 255;
	CHECK(request_call(&request, &reply) == -EBADMSG, "a build-id that is too long");
	request.file.build_id.size = 0;
	request.user.n_groups = 1u << 31;
	CHECK(request_call(&request, &reply) == -EBADMSG, "too many groups");
	request.user.n_groups = 0;
	request.what = REQUEST_READ_MEMORY;
	request.n_parts = REQUEST_PARTS_MAX + 1;
	CHECK(request_call(&request, &reply) == -EBADMSG, "too many parts of a memory");
	request.n_parts = 2;
	parts[0].size = REQUEST_BYTES_MAX;
	parts[1].size = 1;
	CHECK(request_call(&request, &reply) == -EINVAL, "more memory than a message can hold");
	parts[1].size = UINT64_MAX;
	CHECK(request_call(&request, &reply) == -EINVAL, "and much more");
	for (size_t size = 1; size < 400; size += 7) {
		static const uint8_t ones[400] = { [0 ... 399] = 0xff };

		message_init(&one);
		message_bytes(&one, ones, size);
		CHECK(!channels_call(channels, &one, &two), "still answering");
		CHECK((int64_t)message_take_number(&two) == -EBADMSG, "not a request");
		message_fini(&two);
	}
}

/* Memory is read whole, in several messages, or not at all. */
static void test_memory_is_read(void)
{
	struct opener_options options = { .live = true };
	static uint8_t memory[3 * REQUEST_BYTES_MAX], copy[3 * REQUEST_BYTES_MAX];
	int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	size_t size = sizeof(memory) - 5, same = 0;
	struct opener_part parts[200];
	struct opener_wait wait;
	struct opener *opener = NULL;

	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * 7 + i / 256);
	CHECK(fd >= 0 && !opener_new(&options, &opener), "opener_new");
	CHECK(!opener_read_memory(opener, fd, (uintptr_t)memory, copy, size, &wait), "read");
	CHECK(!memcmp(memory, copy, size) && !copy[size], "all of it, and no more");
	CHECK(opener_read_memory(opener, fd, 1, copy, 8, &wait) == -EFAULT, "nothing is there");
	CHECK(opener_read_memory(opener, fd, UINT64_MAX - 4, copy, 8, &wait) == -EFAULT,
	      "the end of all memory");
	CHECK(opener_read_memory(opener, -1, (uintptr_t)memory, copy, 8, &wait) == -EFAULT,
	      "no memory");
	/* Some pieces can be read and some cannot; 200 of 400 bytes need several messages. */
	memset(copy, 0, sizeof(copy));
	for (size_t i = 0; i < 200; i++)
		parts[i] = (struct opener_part){ .addr = i % 3 ? (uintptr_t)memory + 300 * i : i,
						 .out = copy + 400 * i,
						 .size = 400 };
	CHECK(!opener_read_parts(opener, fd, parts, 200, &wait), "parts");
	for (size_t i = 0; i < 200; i++)
		same += i % 3 ? !parts[i].err && !memcmp(copy + 400 * i, memory + 300 * i, 400)
			      : parts[i].err == -EFAULT && !copy[400 * i];
	CHECK(same == 200, "each has its own bytes or error");
	opener_free(opener);
	(void)close(fd);
}

static void test_opener_in_its_own_process(void)
{
	struct channels *channels;
	pid_t pid;

	CHECK(!channels_new(2, &channels), "channels_new");
	pid = fork();
	if (!pid) {
		request_serve(channels);
		_exit(0);
	}
	channels_ask(channels);
	request_use(channels);
	test_only_code_is_given_out();
	test_the_mapped_file_is_the_last_candidate();
	test_bad_requests_are_refused(channels);
	test_only_code_is_given_out();
	test_memory_is_read();
	request_use(NULL);
	channels_free(channels);
	CHECK(waitpid(pid, NULL, 0) == pid, "it ends when nobody asks any more");
}

static atomic_int n_fetch; /* requests to fetch */
static atomic_int
	*n_silent; /* requests that answer_first did not answer, in memory of all processes */

static enum request_what what_of(const struct message *request)
{
	uint64_t what;

	memcpy(&what, request->bytes, sizeof(what));
	return (enum request_what)what;
}

static void answer_always(void *ctx, struct message *request, struct message *reply)
{
	n_fetch += what_of(request) == REQUEST_FETCH;
	request_answer(ctx, request, reply);
}

/* A process that waits for ever, as for a file that does not answer, once its opener is made. */
static void answer_first(void *ctx, struct message *request, struct message *reply)
{
	if (what_of(request) == REQUEST_NEW || what_of(request) == REQUEST_FETCH) {
		request_answer(ctx, request, reply);
		return;
	}
	(*n_silent)++;
	for (;;)
		(void)pause();
}

/* An opener's process. Its exit status is the number of requests to fetch. */
static pid_t opener_process(struct channels *channels, channel_handle_fn handle)
{
	struct request_server *server;
	pid_t pid = fork();

	if (pid)
		return pid;
	if (!request_server_new(&server))
		channels_answer(channels, handle, server);
	_exit(n_fetch);
}

static pid_t replaced_by;

static void note_replaced(pid_t pid)
{
	replaced_by = pid;
}

static bool knows_user(struct opener *opener)
{
	struct opener_user user;

	opener_user_of(opener, (uint32_t)getpid(), &user);
	return user.known;
}

static void *ask_for_user(void *opener)
{
	return knows_user(opener) ? opener : NULL;
}

static void *ask_for_debug(void *opener)
{
	const struct uw_build_id id = { .size = 20 };
	int fd;

	return opener_fetched_debug(opener, &id, &fd) ? NULL : opener;
}

static void test_an_opener_that_hangs_is_replaced(void)
{
	const uint64_t hung_ns = 1000000000;
	struct opener_options options = { .live = true, .debug_dir = "/nonexistent" };
	struct channels *channels, *spare = NULL, *ended = NULL;
	static struct opener_context context;
	struct opener_wait wait = { .ns = 0 };
	struct opener *opener, *same;
	pthread_t waits, fetches;
	void *known, *fetched;
	pid_t hung, next;
	int status;

	n_silent = io_shared(sizeof(*n_silent));
	CHECK(n_silent, "memory");
	CHECK(!setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1", 1), "setenv");
	CHECK(!channels_new(4, &channels) && !channels_new(2, &spare), "channels_new");
	hung = opener_process(channels, answer_first);
	next = opener_process(spare, answer_always);
	CHECK(!channels_new(1, &ended), "channels_new");
	channels_ask(channels);
	channels_ask(spare);
	channels_ask(ended);
	request_use(channels);
	/* These take as long as they take. While there are spares, the next calls may take hung_ns. */
	CHECK(!opener_new(&options, &opener), "opener_new");
	opener_fetch(opener, NULL);
	request_spare(ended, hung_ns, note_replaced);
	request_spare(spare, hung_ns, note_replaced);
	(void)unsetenv("DEBUGINFOD_URLS");
	CHECK(opener_context(opener, (uint32_t)getpid(), 0, &context, &wait) == -ETIMEDOUT &&
		      opener_is_late(wait.late),
	      "a reply that is late");
	CHECK(!pthread_create(&fetches, NULL, ask_for_debug, opener), "pthread_create");
	while (opener_fetches(opener) && *n_silent < 2)
		(void)sched_yield();
	CHECK(!channels_hang(channels, 0), "one of three, while debuginfod may take long");
	CHECK(!pthread_create(&waits, NULL, ask_for_user, opener), "pthread_create");
	while (!channels_hang(channels, hung_ns))
		(void)sched_yield();
	CHECK(knows_user(opener), "the next one that can begin answers");
	CHECK(replaced_by == next, "its process is told");
	CHECK(!pthread_join(waits, &known) && !known, "who waited does not wait any more");
	CHECK(!pthread_join(fetches, &fetched) && !fetched, "nor does who waited for debuginfod");
	CHECK(!opener_is_late(wait.late), "no reply comes from the one that hung");
	CHECK(!opener_new(&options, &same), "opener_new");
	CHECK(knows_user(same), "it knows the openers that there were");
	request_use(NULL);
	channels_free(channels);
	channels_free(ended);
	channels_free(spare);
	CHECK(!kill(hung, SIGKILL) && waitpid(hung, NULL, 0) == hung, "waitpid");
	CHECK(waitpid(next, &status, 0) == next && WIFEXITED(status),
	      "it ends when nobody asks any more");
	CHECK(WEXITSTATUS(status) == opener_fetches(opener), "it fetches if the one before did");
	CHECK(!munmap(n_silent, sizeof(*n_silent)), "munmap");
	opener_free(same);
	opener_free(opener);
}

static void test_a_worker_without_an_opener_ends(void)
{
	struct opener_options options = { .live = true };
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		struct channels *silent, *ended;
		struct opener *opener;

		if (channels_new(1, &silent) || channels_new(1, &ended))
			_exit(1);
		channels_ask(ended);
		request_use(silent);
		request_spare(ended, 1000000, note_replaced);
		(void)opener_new(&options, &opener);
		_exit(1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
	      "for another worker to have an opener");
}

/* ---- notes ------------------------------------------------------------------------------ */

enum { FAILED = 3 }; /* the exit code of a process that did not die as it should */
enum { FAULT = -1, NOT_READING = -2 }; /* reasons to die beside signals */

static void *read_for_long(void *file)
{
	if (reading_note_known(file) < 0)
		abort();
	for (;;)
		(void)pause();
}

/* Read a file whose reading causes a real fault, on the thread of an errand. */
static void read_and_fault(void *file)
{
	volatile char *closed = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (closed == MAP_FAILED || reading_note_known(file) != 1)
		_exit(FAILED);
	*closed = 1;
}

static void nothing_to_free(void *ctx)
{
	(void)ctx;
}

/* Return whether what a process wrote before it died has ASan's report of its fault. */
static bool is_reported(int from)
{
	static char text[1 << 16];
	size_t n = 0;
	ssize_t got;

	while (n + 1 < sizeof(text) && (got = read(from, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	return strstr(text, "AddressSanitizer: SEGV");
}

/*
 * A process that reads two files at a time, and dies over one of them (FAULT), by a signal that it gets, or
 * because of a thread that reads none (NOT_READING).
 */
static void die_reading(struct reading_notes *notes, int number)
{
	static struct reading_file files[2] = { { .ino = 1 }, { .ino = 2 } };
	const struct errand errand = { .run = read_and_fault,
				       .drop = nothing_to_free,
				       .ctx = &files[1] };
	pthread_t other;
	int status, ends[2];
	bool reported;
	pid_t pid;

	memset(notes, 0, sizeof(*notes));
	CHECK(!pipe2(ends, O_CLOEXEC), "pipe2");
	pid = fork();
	if (!pid) {
		(void)dup2(ends[1], STDERR_FILENO);
		reading_use(notes);
		if (pthread_create(&other, NULL, read_for_long, &files[0]))
			_exit(FAILED);
		while (!atomic_load(&notes->now[0].thread))
			(void)sched_yield();
		if (number == FAULT)
			(void)errand_run(&errand, UINT64_C(60000000000));
		if (number == NOT_READING)
			(void)raise(SIGSEGV);
		if (number > 0 && reading_note_known(&files[1]) == 1)
			(void)raise(number);
		_exit(FAILED);
	}
	(void)close(ends[1]);
	reported = is_reported(ends[0]);
	(void)close(ends[0]);
	CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
	if (number < 0)
		number = SIGSEGV;
#ifdef WITH_ASAN
	if (number == SIGSEGV) {
		CHECK(reported && !(WIFEXITED(status) && WEXITSTATUS(status) == FAILED),
		      "ASan reports the fault");
		return;
	}
#endif
	CHECK(!reported && WIFSIGNALED(status) && WTERMSIG(status) == number,
	      "it died by that signal");
}

static void test_who_reads_beside_a_fault_is_innocent(void)
{
	struct reading_notes *notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE,
					   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(notes != MAP_FAILED, "mmap");
	die_reading(notes, FAULT);
	CHECK(reading_blame(notes, 0) == READING_INNOCENT &&
		      reading_blame(notes, 1) == READING_GUILTY,
	      "the errand's thread that faulted is known");
	notes->now[0].thread = 0;
	CHECK(reading_blame(notes, 0) == READING_SUSPECT, "a note that was not complete");
	die_reading(notes, NOT_READING);
	CHECK(reading_blame(notes, 0) == READING_SUSPECT &&
		      reading_blame(notes, 1) == READING_INNOCENT,
	      "a thread that reads nothing");
	die_reading(notes, SIGSEGV);
	CHECK(reading_blame(notes, 0) == READING_INNOCENT &&
		      reading_blame(notes, 1) == READING_GUILTY,
	      "the thread that faulted is known");
	CHECK(reading_blame(notes, 2) == READING_INNOCENT, "nothing was read there");
	die_reading(notes, SIGKILL);
	CHECK(reading_blame(notes, 0) == READING_SUSPECT &&
		      reading_blame(notes, 1) == READING_SUSPECT,
	      "which of them it was is not known");
	notes->now[0].taken = false;
	CHECK(reading_blame(notes, 1) == READING_GUILTY, "there is one only");
	CHECK(!munmap(notes, sizeof(*notes)), "munmap");
}

static void test_what_a_worker_died_over_is_refused(void)
{
	static struct reading_notes notes;
	int fd, number;

	put("file", "1");
	fd = open(in_dir("file"), O_RDWR | O_CLOEXEC);
	CHECK(reading_note(fd, 0, "file") == -1 && !reading_is_refused(fd) && reading_sample(1),
	      "without a supervisor nothing is noted");
	reading_use(&notes);
	number = reading_note(fd, 0, "file");
	CHECK(number >= 0 && notes.now[number].taken &&
		      !strcmp(notes.now[number].file.path, "file"),
	      "noted");
	notes.refused[0] = notes.now[number].file;
	notes.n_refused = 1;
	reading_noted(number);
	CHECK(!notes.now[number].taken && !notes.now[number].thread, "not any more");
	CHECK(reading_is_refused(fd), "refused");
	CHECK(write(fd, "12", 2) == 2 && !reading_is_refused(fd), "a changed file is another one");
	CHECK(reading_sample(7) && notes.sample == 7, "a sample is noted");
	notes.refused_samples[0] = 7;
	notes.n_refused_samples = 1;
	CHECK(!reading_sample(7) && reading_sample(8), "the refused sample only");
	for (int i = 0; i < READING_MAX; i++)
		CHECK(reading_note(fd, 0, "file") == i, "room");
	CHECK(reading_note(fd, 0, "file") == -1, "no more room");
	reading_use(NULL);
	(void)close(fd);
}

int main(void)
{
	CHECK(mkdtemp(dir), "mkdtemp");
	test_fields_come_back_in_order();
	test_texts_are_checked();
	test_too_much_is_refused();
	test_a_file_too_many_is_an_error_of_one_message();
	test_threads_share_channels();
	test_threads_begin_when_channels_are_used();
	test_a_late_reply_is_nobodys();
	test_slow_requests_leave_channels_to_others();
	test_opener_in_its_own_process();
	test_an_opener_that_hangs_is_replaced();
	test_a_worker_without_an_opener_ends();
	test_what_a_worker_died_over_is_refused();
	test_who_reads_beside_a_fault_is_innocent();
	(void)unlink(in_dir("elf"));
	(void)unlink(in_dir("secret"));
	(void)unlink(in_dir("jit"));
	(void)unlink(in_dir("file"));
	(void)rmdir(dir);
	return check_done();
}
