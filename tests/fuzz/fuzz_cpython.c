/*
 * tests/fuzz/fuzz_cpython.c: fuzzes the decoder of Python frames. The input changes the memory of a sound
 * process (tests/cpython_image.h): byte 0 chooses its version, and every three bytes and more are a place in
 * two bytes, a length, and the bytes that are written there. Versions that say their offsets themselves say
 * them in this memory. Whatever is read: the plan and the decoder end, and names are texts.
 */
#include <stdlib.h>

#include "tests/cpython_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile size_t sink;

static void change(struct image *image, const uint8_t *data, size_t size)
{
	while (size >= 3) {
		size_t at = (size_t)data[0] | (size_t)data[1] << 8, n = data[2];

		data += 3;
		size -= 3;
		if (n > size)
			n = size;
		if (n > IMAGE_SIZE - at)
			n = IMAGE_SIZE - at;
		memcpy(image->bytes + at, data, n);
		data += n;
		size -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint16_t versions[] = {
		0x308, 0x309, 0x30a, 0x30b, 0x30c, 0x30d, 0x30e, 0x30f
	};
	static struct image image;
	static struct image_slices slices;
	static struct runtime_put put[RUNTIME_PUT_MAX];
	uint8_t how = size ? data[0] : 0;
	uint16_t version = versions[(how & 0x3f) % 8];
	char path[] = "python3.xx";
	struct module module = { .kind = MODULE_FILE, .path = path };
	struct runtime_file file = { .module = &module, .exports = { IMAGE_BASE } };
	const struct uw_frame frame = { .sp = IMAGE_BASE + IMAGE_STACK,
					.cfa = IMAGE_BASE + IMAGE_STACK + 0x180 };
	const struct uw_frame *native[] = { &frame };
	struct event event = { .type = EVENT_SAMPLE };
	struct runtime_stack stack = { .event = &event,
				       .native = native,
				       .n_native = 1,
				       .put = put,
				       .max_put = RUNTIME_PUT_MAX };
	struct plan plan = { .n = 0 };
	uint8_t offsets[CPYTHON_OFFSETS_MAX];
	struct cpython_layout layout;
	void *state = NULL;
	int err;

	(void)snprintf(path, sizeof(path), "python3.%d", version & 0xff);
	if (image_layout(version, offsets, &layout))
		abort();
	image_make(&image, &layout, how & 0x80);
	if (cpython_has_offsets(version))
		memcpy(image.bytes + IMAGE_RUNTIME, offsets, sizeof(offsets));
	if (size)
		change(&image, data + 1, size - 1);
	event.sample.read = image_read;
	event.sample.read_ctx = &image;
	if (runtime_memory_new(&stack.memory) || runtime_frames_new(&stack.frames))
		abort();
	/* There is a process, or what a capture file has of it. */
	runtime_memory_begin(stack.memory, &event.sample, how & 0x40 ? image_live : NULL, &image);
	file.memory = stack.memory;
	err = runtime_cpython.attach(&file, &state, &plan);
	if (err && !cpython_has_offsets(version))
		abort();
	if (err)
		goto out;
	image_plan(&image, &plan, 0, PLAN_BYTES_MAX, &slices);
	event.sample.slices = slices.regions;
	event.sample.n_slices = slices.n;
	event.sample.slices_end = (uint8_t)slices.end;
	/* Twice: the second time from what is cached. */
	for (int i = 0; i < 2; i++) {
		stack.n_put = 0;
		runtime_cpython.decode(state, &stack);
	}
	for (size_t i = 0; i < stack.n_put; i++) {
		struct runtime_name name;
		char *text = runtime_frames_find(stack.frames, put[i].address, &name);

		if (!text || put[i].at > 1)
			abort();
		sink = strlen(name.function) + (name.file ? strlen(name.file) : 0);
		free(text);
	}
	runtime_cpython.detach(state);
out:
	runtime_memory_free(stack.memory);
	runtime_frames_free(stack.frames);
	return 0;
}
