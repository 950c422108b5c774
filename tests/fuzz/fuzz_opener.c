/*
 * tests/fuzz/fuzz_opener.c: fuzzes the opener's process with what a worker that was taken over could
 * send. The input is one message or several, each after its length (two bytes, little-endian).
 * Whatever is asked for, only files that can be code, jitdump files, perf maps and the kernel's
 * symbols are given out.
 */
#include "agent/opener/request.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MESSAGES_MAX 4

static struct message request, reply;
static char secret[] = "/tmp/fuzz_opener.XXXXXX";
static struct stat secret_is;

static void remove_secret(void)
{
	(void)unlink(secret);
}

/* A file that must not be given out; the seeds ask for it and for others (tests/fuzz/roles.sh). */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	int fd = mkstemp(secret);

	(void)argc;
	(void)argv;
	if (fd < 0 || write(fd, "secret", 6) != 6 || fstat(fd, &secret_is))
		abort();
	(void)close(fd);
	(void)atexit(remove_secret);
	/* Copies of the kernel's symbols would be stored there. */
	(void)setenv("HOME", "/nonexistent", 1);
	(void)unsetenv("XDG_CACHE_HOME");
	(void)unsetenv("DEBUGINFOD_URLS");
	return 0;
}

/* The name in a seed is replaced by the secret's, which has the same length. */
static void name_secret(uint8_t *bytes, size_t size)
{
	static const char name[] = "/tmp/fuzz_opener.secret";
	uint8_t *at = memmem(bytes, size, name, sizeof(name) - 1);

	_Static_assert(sizeof(name) == sizeof(secret), "the same length");
	if (at)
		memcpy(at, secret, sizeof(name) - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct request_server *server;

	if (request_server_new(&server))
		return 0;
	for (int i = 0; i < MESSAGES_MAX && size >= 2; i++) {
		size_t n = (size_t)data[0] | (size_t)data[1] << 8;

		data += 2;
		size -= 2;
		n = n < size ? n : size;
		message_init(&request);
		message_bytes(&request, data, n);
		name_secret(request.bytes, request.size);
		message_init(&reply);
		request_answer(server, &request, &reply);
		if (reply.err)
			abort();
		for (size_t k = 0; k < reply.n_fds; k++) {
			struct stat st;

			if (fstat(reply.fds[k], &st) ||
			    (st.st_dev == secret_is.st_dev && st.st_ino == secret_is.st_ino))
				abort();
		}
		message_fini(&reply);
		data += n;
		size -= n;
	}
	request_server_free(server);
	return 0;
}
