/*
 * tests/live/contexts/work.c: a program whose two threads say what they work for, as OpenTelemetry enhancement
 * proposal 4947 says it. The name of a function tells which labels its samples have: work_a and work_b those of its
 * thread's records a and b (b is written anew each time), work_none none, work_invalid none because the record is
 * marked as being written.
 * The program writes what it knows (compare.py reads it).
 *   usage: work [LIBRARY]      LIBRARY: it has otel_thread_ctx_v1, and is loaded when the threads run
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
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

enum { THREADS = 2, HEAD = 28 };

/* ---- the process context (proposal 4719) ------------------------------------------------------ */

struct message {
	unsigned char bytes[1024];
	size_t n;
};

/* Append a field with bytes. */
static void put(struct message *m, int number, const void *bytes, size_t size)
{
	m->bytes[m->n++] = (unsigned char)(number << 3 | 2);
	if (size >= 128)
		m->bytes[m->n++] = (unsigned char)(size | 128);
	m->bytes[m->n++] = (unsigned char)(size >= 128 ? size >> 7 : size);
	memcpy(m->bytes + m->n, bytes, size);
	m->n += size;
}

static void put_attribute(struct message *to, int number, const char *key,
			  const struct message *any)
{
	struct message pair = { .n = 0 };

	put(&pair, 1, key, strlen(key));
	put(&pair, 2, any->bytes, any->n);
	put(to, number, pair.bytes, pair.n);
}

static void put_text(struct message *to, int number, const char *key, const char *value)
{
	struct message any = { .n = 0 };

	put(&any, 1, value, strlen(value));
	put_attribute(to, number, key, &any);
}

static void encode(struct message *out)
{
	static const char *const keys[] = { "http_route", "user.id", "region", "never" };
	struct message resource = { .n = 0 }, array = { .n = 0 }, any = { .n = 0 };

	put_text(&resource, 1, "service.name", "contexts");
	put(out, 1, resource.bytes, resource.n);
	put_text(out, 2, "threadlocal.schema_version", "tlsdesc_v1_dev");
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		struct message value = { .n = 0 };

		put(&value, 1, keys[i], strlen(keys[i]));
		put(&array, 1, value.bytes, value.n);
	}
	put(&any, 5, array.bytes, array.n);
	put_attribute(out, 2, "threadlocal.attribute_key_map", &any);
}

static void publish_process(void)
{
	struct context {
		char signature[8];
		uint32_t version, payload_size;
		volatile uint64_t published_ns;
		const void *payload;
	} * context;
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
	static struct message payload;
	struct timespec now;

	if (fd < 0 || ftruncate(fd, 4096))
		_exit(1);
	context = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (context == MAP_FAILED || madvise(context, 4096, MADV_DONTFORK))
		_exit(1);
	encode(&payload);
	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	*context = (struct context){ .version = 2,
				     .payload_size = (uint32_t)payload.n,
				     .payload = payload.bytes };
	__sync_synchronize();
	context->published_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	__sync_synchronize();
	memcpy(context->signature, "OTEL_CTX", 8);
	(void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, context, 4096, "OTEL_CTX");
}

/* ---- the threads ------------------------------------------------------------------------------- */

static void (*publish)(void *record);
#ifndef LOADED
void library_publish(void *record);
#endif
static volatile unsigned long sums[THREADS];

/* Each time takes another time, so that the program is not in step with the samples. */
static void compute(int thread)
{
	static _Thread_local unsigned int n;
	const int turns = 1400000 + (int)(n++ * 7919 % 13) * 100000;

	for (int i = 0; i < turns; i++)
		sums[thread] += (unsigned long)i * i;
}

/* Each has a frame of its own, and code of its own behind the call. */
__attribute__((noinline)) void work_a(int thread)
{
	compute(thread);
	sums[thread] += 1;
}

__attribute__((noinline)) void work_b(int thread)
{
	compute(thread);
	sums[thread] += 2;
}

__attribute__((noinline)) void work_none(int thread)
{
	compute(thread);
	sums[thread] += 3;
}

__attribute__((noinline)) void work_invalid(int thread)
{
	compute(thread);
	sums[thread] += 4;
}

static unsigned char *put_value(unsigned char *at, int key, const char *value)
{
	*at++ = (unsigned char)key;
	*at++ = (unsigned char)strlen(value);
	memcpy(at, value, strlen(value));
	return at + strlen(value);
}

/* Write a record: trace 01 01 …, span 02 02 … of the thread and the letter. */
static void write_record(unsigned char *record, int thread, char letter)
{
	unsigned char *at = record + HEAD;
	uint16_t size;

	memset(record, 16 * thread + letter - 'a' + 1, 16);
	memset(record + 16, 16 * thread + letter - 'a' + 0x81, 8);
	if (letter == 'a') {
		at = put_value(at, 0, "/no");
		at = put_value(at, 1, thread ? "eve" : "adam");
		at = put_value(at, 200, "no such key");
		at = put_value(at, 0, "/cart/{id}"); /* the last one counts */
	} else {
		at = put_value(at, 2, "north");
	}
	size = (uint16_t)(at - record - HEAD);
	memcpy(record + 26, &size, 2);
	record[25] = 1;
	__sync_synchronize();
	record[24] = 1;
}

static void *run(void *arg)
{
	int thread = (int)(intptr_t)arg;
	/* One at an odd place for words, which ends where its page ends. */
	unsigned char *pages =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *b = pages + 4096 - (HEAD + 2 + 5), *a = pages + 6;

	if (pages == MAP_FAILED || mprotect(pages + 4096, 4096, PROT_NONE))
		_exit(1);
	b -= (uintptr_t)b % 2;
	(void)prctl(PR_SET_NAME, thread ? "second" : "first");
	write_record(a, thread, 'a');
	for (;;) {
		void (*to)(void *) = __atomic_load_n(&publish, __ATOMIC_ACQUIRE);

		if (!to) { /* the library is not there yet */
			usleep(1000);
			continue;
		}
		to(a);
		work_a(thread);
		to(NULL);
		work_none(thread);
		write_record(b, thread, 'b');
		to(b);
		work_b(thread);
		b[24] = 0;
		work_invalid(thread);
	}
}

/* Write the labels of a function's samples. */
static void tell(const char *function, int thread, char letter, const char *attributes)
{
	(void)printf("%s\t%s", function, thread ? "second" : "first");
	for (int i = 0; letter && i < 24; i++)
		(void)printf("%s%02x",
			     !i	       ? "\ttrace_id="
			     : i == 16 ? "\tspan_id="
				       : "",
			     16 * thread + letter - 'a' + (i < 16 ? 1 : 0x81));
	(void)printf("%s\n", attributes);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	alarm(300);
#ifndef LOADED
	publish = library_publish;
	(void)argc;
	(void)argv;
#endif
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i))
			return 1;
#ifdef LOADED
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	void (*found)(void *) = NULL;

	if (library)
		*(void **)&found = dlsym(library, "library_publish");
	if (!found) {
		(void)fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	__atomic_store_n(&publish, found, __ATOMIC_RELEASE);
#endif
	publish_process();
	for (int i = 0; i < THREADS; i++) {
		tell("work_a", i, 'a',
		     i ? "\thttp_route=/cart/{id}\tuser.id=eve"
		       : "\thttp_route=/cart/{id}\tuser.id=adam");
		tell("work_b", i, 'b', "\tregion=north");
		tell("work_none", i, 0, "");
		tell("work_invalid", i, 0, "");
	}
	(void)puts("begun");
	(void)fflush(stdout);
	for (;;)
		(void)pause();
}
