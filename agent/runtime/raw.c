/* agent/runtime/raw.c: what the readers of PHP's, Ruby's and Perl's stacks share. */
#include "agent/runtime/raw.h"

#include "base/bytes.h"

#include <string.h>

#define STRING_STEP \
	128u /* divides the size of a page, so no read goes needlessly into the next one */

bool raw_add(struct raw_stack *stack, const struct raw_frame *frame)
{
	if (stack->n == stack->max)
		return false;
	stack->frames[stack->n++] = *frame;
	return true;
}

bool raw_chain_goes_on(struct raw_chain *chain, uint64_t addr)
{
	if (chain->next && addr == chain->mark)
		return false;
	if (chain->steps == chain->next) {
		chain->mark = addr;
		chain->next = chain->next ? 2 * chain->next : 1;
		chain->steps = 0;
	}
	chain->steps++;
	return true;
}

void raw_plan(struct plan *plan, const struct plan_op *ops, size_t n)
{
	*plan = (struct plan){ .n = (uint32_t)n };
	memcpy(plan->ops, ops, n * sizeof(*ops));
}

void raw_reader_begin(struct raw_reader *r, struct runtime_memory *memory)
{
	r->memory = memory;
	r->n = 0;
	r->is_full = false;
}

/* Return the block at an address, NULL if it cannot be read. It is valid until the next one is read. */
static const uint8_t *find_block(struct raw_reader *r, uint64_t addr)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->blocks[i] == addr)
			return runtime_piece(r->memory, addr, RAW_BLOCK);
	r->is_full |= r->n == RAW_BLOCKS_MAX;
	if (r->is_full)
		return NULL;
	r->blocks[r->n++] = addr;
	runtime_forget(r->memory, addr);
	return runtime_piece(r->memory, addr, RAW_BLOCK);
}

bool raw_get(struct raw_reader *r, uint64_t addr, void *out, size_t size)
{
	uint8_t bytes[RAW_PART_MAX];
	size_t n = 0;

	if (size > sizeof(bytes) || size > UINT64_MAX - addr)
		return false;
	while (n < size) {
		size_t off = (size_t)((addr + n) % RAW_BLOCK), part = RAW_BLOCK - off;
		const uint8_t *block = find_block(r, addr + n - off);

		if (!block)
			return false;
		if (part > size - n)
			part = size - n;
		memcpy(bytes + n, block + off, part);
		n += part;
	}
	memcpy(out, bytes, size);
	return true;
}

bool raw_get_number(struct raw_reader *r, uint64_t addr, unsigned int size, uint64_t *out)
{
	uint8_t bytes[8];

	if (!raw_get(r, addr, bytes, size))
		return false;
	*out = uw_bytes_little_n(bytes, size);
	return true;
}

void raw_text_clear(struct raw_text *text)
{
	text->n = 0;
	text->bytes[0] = '\0';
}

void raw_text_add(struct raw_text *text, const void *bytes, size_t size)
{
	size_t room = sizeof(text->bytes) - 1 - text->n;

	if (size > room)
		size = room;
	memcpy(text->bytes + text->n, bytes, size);
	text->n += size;
	text->bytes[text->n] = '\0';
}

void raw_text_word(struct raw_text *text, const char *word)
{
	raw_text_add(text, word, strlen(word));
}

bool raw_text_get(struct raw_text *text, struct raw_reader *r, uint64_t addr, uint64_t size)
{
	char bytes[RAW_PART_MAX];

	if (size > sizeof(bytes))
		size = sizeof(bytes);
	if (!raw_get(r, addr, bytes, (size_t)size))
		return false;
	raw_text_add(text, bytes, (size_t)size);
	return true;
}

bool raw_text_string(struct raw_text *text, struct raw_reader *r, uint64_t addr)
{
	char bytes[STRING_STEP];
	size_t size = STRING_STEP - (size_t)(addr % STRING_STEP);

	for (size_t n = 0; n < RAW_PART_MAX; n += size, size = STRING_STEP) {
		const char *end;

		if (!raw_get(r, addr + n, bytes, size))
			return n;
		end = memchr(bytes, '\0', size);
		raw_text_add(text, bytes, end ? (size_t)(end - bytes) : size);
		if (end)
			break;
	}
	return true;
}
