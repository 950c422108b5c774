/*
 * tests/live/context.c: a program that publishes a process context as OpenTelemetry enhancement proposal
 * 4719 says, and computes. SIGUSR1: it publishes another one.
 *   usage: context SERVICE SERVICE      the first and the second service.name
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA	     0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

static struct context {
	char signature[8];
	uint32_t version, payload_size;
	volatile uint64_t published_ns;
	const void *payload;
} * context;

static volatile sig_atomic_t again;

static void on_signal(int signal)
{
	(void)signal;
	again = 1;
}

/* Append a field with bytes to a message. All are shorter than 128. */
static size_t put(unsigned char *to, size_t n, int number, const void *bytes, size_t size)
{
	to[n] = (unsigned char)(number << 3 | 2);
	to[n + 1] = (unsigned char)size;
	memcpy(to + n + 2, bytes, size);
	return n + 2 + size;
}

/* Make a ProcessContext with one attribute. Return its size. */
static size_t encode(const char *service, unsigned char out[256])
{
	unsigned char any[128], pair[128], resource[128];
	size_t n_any = put(any, 0, 1, service, strlen(service));
	size_t n_pair = put(pair, 0, 1, "service.name", 12);

	n_pair = put(pair, n_pair, 2, any, n_any);
	return put(out, 0, 1, resource, put(resource, 0, 1, pair, n_pair));
}

static void publish(const char *service)
{
	static unsigned char payloads[2][256];
	static int which;
	struct timespec now;

	which = !which;
	context->published_ns = 0;
	__sync_synchronize();
	context->payload_size = (uint32_t)encode(service, payloads[which]);
	context->payload = payloads[which];
	context->version = 2;
	__sync_synchronize();
	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	context->published_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	__sync_synchronize();
	memcpy(context->signature, "OTEL_CTX", 8);
	(void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, context, 4096, "OTEL_CTX");
}

static volatile unsigned long sum; /* what it computes */

int main(int argc, char **argv)
{
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);

	if (argc != 3 || fd < 0 || ftruncate(fd, 4096))
		return 1;
	alarm(900);
	context = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (context == MAP_FAILED || madvise(context, 4096, MADV_DONTFORK))
		return 1;
	(void)close(fd);
	(void)signal(SIGUSR1, on_signal);
	publish(argv[1]);
	for (;;) {
		for (unsigned long i = 0; i < 1000000; i++)
			sum += i;
		if (again) {
			again = 0;
			publish(argv[2]);
		}
	}
}
