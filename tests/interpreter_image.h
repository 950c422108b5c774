/*
 * tests/interpreter_image.h: the memory of a process with an interpreter, which tests/php_image.h,
 * tests/perl_image.h and tests/ruby_image.h fill. One file of a program includes these headers.
 */
#ifndef TESTS_INTERPRETER_IMAGE_H
#define TESTS_INTERPRETER_IMAGE_H

#include "agent/runtime/plan_execute.h"
#include "agent/runtime/raw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The memory of the process: addresses are BASE + offset in bytes. */
#define BASE	   0x7f0000000000u
#define IMAGE_SIZE 0x8000u

static struct {
	uint8_t bytes[IMAGE_SIZE];
	size_t used;
	unsigned int reads;
} image;

static int read_image(void *ctx, uint64_t addr, void *out, size_t size)
{
	(void)ctx;
	image.reads++;
	if (addr < BASE || size > IMAGE_SIZE || addr - BASE > IMAGE_SIZE - size)
		return -EFAULT;
	memcpy(out, image.bytes + (addr - BASE), size);
	return 0;
}

/* A runtime_live_fn. */
static int live_image(void *ctx, struct opener_part *parts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		parts[i].err = read_image(ctx, parts[i].addr, parts[i].out, parts[i].size);
	return 0;
}

static void put(uint64_t addr, uint64_t value, unsigned int size)
{
	memcpy(image.bytes + (addr - BASE), &value, size);
}

static void put_word(uint64_t addr, uint64_t value)
{
	put(addr, value, 8);
}

static uint64_t take(size_t size)
{
	uint64_t at = BASE + image.used;

	image.used += (size + 15) & ~(size_t)15;
	if (image.used > IMAGE_SIZE)
		abort();
	return at;
}

static void put_text(uint64_t addr, const char *text)
{
	memcpy(image.bytes + (addr - BASE), text, strlen(text) + 1);
}

static void clear_image(void)
{
	memset(&image, 0, sizeof(image));
	image.used = 0x1000; /* what addresses near 0 would be is not in use */
}

/* Return a reader for one name. */
static inline struct raw_reader *reading(struct runtime_memory *m)
{
	static struct raw_reader reader;

	raw_reader_begin(&reader, m);
	return &reader;
}

/* Let only what a plan copies be captured; m has the registers that it begins with. */
static inline struct runtime_memory *planned_memory(struct plan_execution *model,
						    const struct plan *plan, enum plan_end *end)
{
	static struct event_sample sample;
	struct runtime_memory *m;

	*end = plan_execute(model, plan, read_image, NULL);
	sample = (struct event_sample){ .slices = model->slices, .n_slices = model->n };
	if (runtime_memory_new(&m))
		abort();
	runtime_memory_begin(m, &sample, live_image, NULL);
	return m;
}

/* Let the whole image be captured with a sample, and be readable later. */
static struct runtime_memory *image_memory(void)
{
	static const struct uw_region whole = { .addr = BASE,
						.size = IMAGE_SIZE,
						.bytes = image.bytes };
	static const struct event_sample sample = { .slices = &whole, .n_slices = 1 };
	struct runtime_memory *m;

	if (runtime_memory_new(&m))
		abort();
	runtime_memory_begin(m, &sample, live_image, NULL);
	return m;
}

#endif
