/*
 * tests/fuzz/fuzz_interpreters.c: fuzzes the readers of the stacks of PHP, Ruby and Perl. The input changes the
 * memory of a sound interpreter (tests/php_image.h and the others): byte 0 chooses which, and every three bytes
 * and more are a place in two bytes, a length, and the bytes that are written there. A length of 0 ends what
 * the first sample sees, and the next sample follows, with what was read for the first one still stored. Their frames
 * are put into a stack in which this program has two loops.
 */
#include "agent/runtime/interpreter.h"
#include "agent/runtime/perl.h"
#include "agent/runtime/php.h"
#include "agent/runtime/ruby.h"

#include "tests/perl_image.h"
#include "tests/php_image.h"
#include "tests/ruby_image.h"

#include <fcntl.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
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

/* What the input's frames are put between: the function of a loop, which is this program's, is called twice. */
extern const char __ehdr_start[];
int loop(int n);

__attribute__((noinline)) int loop(int n)
{
	return n > 1 ? loop(n / 2) + n % 3 : n;
}

static struct uw_object *object;
static uint64_t bias;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const struct uw_segment *segments;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	size_t n;

	(void)argc;
	(void)argv;
	if (fd < 0 || uw_object_open(fd, 0, &object))
		abort();
	(void)close(fd);
	segments = uw_object_segments(object, &n);
	bias = (uint64_t)(uintptr_t)__ehdr_start - segments[0].vaddr;
	return 0;
}

static void check(const struct raw_text *text)
{
	if (text->n >= sizeof(text->bytes) || text->bytes[text->n])
		abort();
	for (size_t i = 0; i < text->n; i++)
		sink += (unsigned char)text->bytes[i];
}

static int begin(struct interpreter *in, const struct runtime_file *file, struct plan *plan)
{
	(void)in;
	(void)file;
	(void)plan;
	return 0;
}

static uint64_t find_loop(const struct runtime_file *file)
{
	return file->exports[0];
}

static int find_php(struct interpreter *in, const struct runtime_stack *stack,
		    struct raw_stack *raw)
{
	(void)in;
	raw->max = FRAMES_MAX;
	return php_stack(stack->memory, php_layout_of(4, 2), php_globals, raw);
}

static int name_php(struct interpreter *in, struct raw_reader *r, const struct raw_frame *frame,
		    struct raw_name *out)
{
	int err = php_name(r, php_layout_of(4, 2), frame, out);

	(void)in;
	check(&out->function);
	check(&out->file);
	return err;
}

/* Ruby is there twice: its memory of two versions. */
static struct {
	uint64_t ec, symbols;
} rubies[2];

static void put_ruby_of(unsigned int minor, unsigned int i)
{
	ruby_minor = minor;
	put_ruby();
	rubies[i].ec = ruby_ec;
	rubies[i].symbols = ruby_symbol_table;
}

static void put_ruby_3_1(void)
{
	put_ruby_of(1, 0);
}

static void put_ruby_3_3(void)
{
	put_ruby_of(3, 1);
}

static int find_ruby_3_1(struct interpreter *in, const struct runtime_stack *stack,
			 struct raw_stack *raw)
{
	(void)in;
	raw->max = FRAMES_MAX;
	return ruby_stack(stack->memory, ruby_layout_of(3, 1), rubies[0].ec, raw);
}

static int find_ruby_3_3(struct interpreter *in, const struct runtime_stack *stack,
			 struct raw_stack *raw)
{
	(void)in;
	raw->max = FRAMES_MAX;
	return ruby_stack(stack->memory, ruby_layout_of(3, 3), rubies[1].ec, raw);
}

static int name_ruby(const struct ruby_layout *layout, uint64_t symbols, struct raw_reader *r,
		     const struct raw_frame *frame, struct raw_name *out)
{
	struct ruby_known known = { .symbols = symbols };
	int err;

	sink += ruby_symbols(r, layout, image.bytes + 0x1000, 128, BASE + 0x1000);
	err = ruby_name(r, layout, &known, frame, out);
	check(&out->function);
	check(&out->file);
	return err;
}

static int name_ruby_3_1(struct interpreter *in, struct raw_reader *r,
			 const struct raw_frame *frame, struct raw_name *out)
{
	(void)in;
	return name_ruby(ruby_layout_of(3, 1), rubies[0].symbols, r, frame, out);
}

static int name_ruby_3_3(struct interpreter *in, struct raw_reader *r,
			 const struct raw_frame *frame, struct raw_name *out)
{
	(void)in;
	return name_ruby(ruby_layout_of(3, 3), rubies[1].symbols, r, frame, out);
}

static int find_perl(struct interpreter *in, const struct runtime_stack *stack,
		     struct raw_stack *raw)
{
	(void)in;
	raw->max = FRAMES_MAX;
	return perl_stack(stack->memory, perl_layout_of(36, 3768), perl_interpreter, raw);
}

static int name_perl(struct interpreter *in, struct raw_reader *r, const struct raw_frame *frame,
		     struct raw_name *out)
{
	int err = perl_name(r, perl_layout_of(36, 3768), frame, out);

	(void)in;
	check(&out->function);
	check(&out->file);
	return err;
}

static const struct {
	void (*put)(void);
	struct interpreter_kind kind;
} kinds[] = {
	{ put_php,
	  { .module = "[php]",
	    .loop = find_loop,
	    .attach = begin,
	    .stack = find_php,
	    .name = name_php } },
	{ put_ruby_3_1,
	  { .module = "[ruby]",
	    .loop = find_loop,
	    .attach = begin,
	    .stack = find_ruby_3_1,
	    .name = name_ruby_3_1 } },
	{ put_perl,
	  { .module = "[perl]",
	    .loop = find_loop,
	    .attach = begin,
	    .stack = find_perl,
	    .name = name_perl } },
	{ put_ruby_3_3,
	  { .module = "[ruby]",
	    .loop = find_loop,
	    .attach = begin,
	    .stack = find_ruby_3_3,
	    .name = name_ruby_3_3 } },
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), NATIVE = 4 };

/* Decode a sample; a frame that is put is one of the stack, and has a name. */
static void take_sample(void *in, struct runtime_memory *m, struct runtime_frames *frames)
{
	static struct runtime_put put[2 * FRAMES_MAX];
	const uint64_t in_loop = (uint64_t)(uintptr_t)loop + 4;
	const struct uw_frame native[NATIVE] = { { .lookup = 16, .cfa = BASE + 0x1000 },
						 { .lookup = in_loop, .cfa = BASE + 0x1400 },
						 { .lookup = 16, .cfa = BASE + 0x1800 },
						 { .lookup = in_loop, .cfa = BASE + 0x1c00 } };
	const struct uw_frame *natives[NATIVE];
	const struct event event = { .type = EVENT_SAMPLE };
	struct runtime_stack stack = { .event = &event,
				       .memory = m,
				       .frames = frames,
				       .native = natives,
				       .n_native = NATIVE,
				       .put = put,
				       .max_put = 2 * FRAMES_MAX };

	for (size_t i = 0; i < NATIVE; i++)
		natives[i] = &native[i];
	interpreter_decode(in, &stack);
	if (stack.n_put > FRAMES_MAX)
		abort();
	for (size_t i = 0; i < stack.n_put; i++) {
		struct runtime_name name;
		char *text = runtime_frames_find(frames, put[i].address, &name);

		if (!text || put[i].at > NATIVE)
			abort();
		sink += strlen(name.function) + (name.file ? strlen(name.file) : 0);
		free(text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct made {
		uint8_t bytes[IMAGE_SIZE];
		size_t used;
	} made[KINDS];
	struct runtime_file file = { .object = object,
				     .bias = bias,
				     .exports = { (uint64_t)(uintptr_t)loop + 1 } };
	struct plan plan = { .n = 0 };
	struct runtime_frames *frames;
	struct runtime_memory *m;
	void *in = NULL;
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
	if (runtime_frames_new(&frames) || interpreter_attach(&kinds[kind].kind, &file, &in, &plan))
		abort();
	for (unsigned int i = 0; i < SAMPLES && (!i || size); i++) {
		size_t n = change(data, size);

		data += n;
		size -= n;
		take_sample(in, m, frames);
	}
	if (image.reads > READS_MAX)
		abort();
	interpreter_detach(in);
	runtime_frames_free(frames);
	runtime_memory_free(m);
	return 0;
}
