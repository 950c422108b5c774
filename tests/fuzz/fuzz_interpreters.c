/*
 * tests/fuzz/fuzz_interpreters.c: fuzzes the readers of the stacks of PHP, Ruby and Perl. The input changes the
 * memory of a sound interpreter (tests/php_image.h and the others): byte 0 chooses which, and every three bytes
 * and more are a place in two bytes, a length, and the bytes that are written there. A length of 0 ends what
 * the first sample sees, and the next sample follows, with what was read for the first one still stored.
 */
#include "agent/runtime/perl.h"
#include "agent/runtime/php.h"
#include "agent/runtime/ruby.h"

#include "tests/perl_image.h"
#include "tests/php_image.h"
#include "tests/ruby_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SAMPLES	  3
#define READS_MAX (SAMPLES * FRAMES_MAX * RAW_BLOCKS_MAX)

enum { FRAMES_MAX = 24 };

static volatile uint64_t sink;

/* Make changes until one of no bytes. Return how many bytes of the input they took. */
static size_t change(const uint8_t *data, size_t size)
{
	size_t at = 0;

	while (at + 3 <= size) {
		size_t where = (size_t)data[at] | (size_t)data[at + 1] << 8, n = data[at + 2];

		at += 3;
		if (!n)
			break;
		n = n < size - at ? n : size - at;
		for (size_t i = 0; i < n; i++)
			image.bytes[(where + i) % IMAGE_SIZE] = data[at + i];
		at += n;
	}
	return at;
}

static int find_php(struct runtime_memory *m, struct raw_stack *stack)
{
	return php_stack(m, php_layout_of(4, 2), php_globals, stack);
}

static int name_php(struct raw_reader *r, const struct raw_frame *frame, struct raw_name *out)
{
	return php_name(r, php_layout_of(4, 2), frame, out);
}

static int find_ruby(struct runtime_memory *m, struct raw_stack *stack)
{
	return ruby_stack(m, ruby_layout_of(3, 1), ruby_ec, stack);
}

static int name_ruby(struct raw_reader *r, const struct raw_frame *frame, struct raw_name *out)
{
	struct ruby_known known = { .symbols = ruby_symbol_table };

	sink += ruby_symbols(r, ruby_layout_of(3, 1), image.bytes + 0x1000, 128, BASE + 0x1000);
	return ruby_name(r, ruby_layout_of(3, 1), &known, frame, out);
}

static int find_perl(struct runtime_memory *m, struct raw_stack *stack)
{
	return perl_stack(m, perl_layout_of(36, 3768), perl_interpreter, stack);
}

static int name_perl(struct raw_reader *r, const struct raw_frame *frame, struct raw_name *out)
{
	return perl_name(r, perl_layout_of(36, 3768), frame, out);
}

static const struct {
	void (*put)(void);
	int (*find)(struct runtime_memory *m, struct raw_stack *stack);
	int (*name)(struct raw_reader *r, const struct raw_frame *frame, struct raw_name *out);
} kinds[] = {
	{ put_php, find_php, name_php },
	{ put_ruby, find_ruby, name_ruby },
	{ put_perl, find_perl, name_perl },
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void check(const struct raw_text *text)
{
	if (text->n >= sizeof(text->bytes) || text->bytes[text->n])
		abort();
	for (size_t i = 0; i < text->n; i++)
		sink += (unsigned char)text->bytes[i];
}

static void take_sample(unsigned int kind, struct runtime_memory *m)
{
	struct raw_frame frames[FRAMES_MAX];
	struct raw_stack stack = { .frames = frames, .max = FRAMES_MAX };
	static struct raw_name name;

	(void)kinds[kind].find(m, &stack);
	if (stack.n > stack.max)
		abort();
	for (size_t i = 0; i < stack.n; i++) {
		(void)kinds[kind].name(reading(m), &frames[i], &name);
		check(&name.function);
		check(&name.file);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct made {
		uint8_t bytes[IMAGE_SIZE];
		size_t used;
	} made[KINDS];
	struct runtime_memory *m;
	unsigned int kind;

	if (!size)
		return 0;
	kind = *data++ % KINDS;
	size--;
	/* The addresses in an image are the same each time, so a copy of the first one is enough. */
	if (!made[kind].used) {
		kinds[kind].put();
		memcpy(made[kind].bytes, image.bytes, IMAGE_SIZE);
		made[kind].used = image.used;
	}
	memcpy(image.bytes, made[kind].bytes, IMAGE_SIZE);
	image.used = made[kind].used;
	m = image_memory();
	image.reads = 0;
	for (unsigned int i = 0; i < SAMPLES && (!i || size); i++) {
		size_t n = change(data, size);

		data += n;
		size -= n;
		take_sample(kind, m);
	}
	if (image.reads > READS_MAX)
		abort();
	runtime_memory_free(m);
	return 0;
}
