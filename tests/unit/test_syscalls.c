/* tests/unit/test_syscalls.c: tests which pages of a file may contain a syscall instruction. */
#include "unwinder/rule/syscalls.h"

#include <elf.h>
#include <string.h>

#include "tests/check.h"

#define CODE 0x400000u
#define SIZE 0x5010u

static uint8_t image[SIZE + 0x1000];

static const struct uw_segment data = { .vaddr = 0x10000, .file_size = 0x1000, .flags = PF_R };

static bool near(const struct uw_segment *segments, size_t n, uint64_t size, uint64_t pc)
{
	struct uw_source source = { .image = image, .fd = -1, .size = size };
	struct uw_code_source code = { .arch = uw_arch_of(EM_X86_64),
				       .source = &source,
				       .segments = segments,
				       .n_segments = n };
	struct uw_syscalls s;
	bool first;

	uw_syscalls_init(&s, &code);
	first = uw_syscalls_near(&s, &code, pc);
	CHECK(uw_syscalls_near(&s, &code, pc) == first, "the same when it is remembered");
	uw_syscalls_fini(&s);
	return first;
}

static struct uw_segment text_at(uint64_t vaddr)
{
	return (struct uw_segment){
		.vaddr = vaddr, .file_size = SIZE, .mem_size = SIZE, .flags = PF_R | PF_X
	};
}

static void put(size_t off)
{
	memset(image, 0x90, sizeof(image));
	memcpy(image + off, "\x0f\x05", 2); /* syscall */
}

static void test_a_page_with_a_syscall_and_what_reaches_into_it(void)
{
	struct uw_segment text = text_at(CODE);

	put(0x2800);
	CHECK(!near(&text, 1, sizeof(image), CODE + 0x1fef), "the page before");
	CHECK(near(&text, 1, sizeof(image), CODE + 0x2000), "its first byte");
	CHECK(near(&text, 1, sizeof(image), CODE + 0x2fff), "its last");
	CHECK(!near(&text, 1, sizeof(image), CODE + 0x3000), "the page behind");
	put(0x2fff);
	CHECK(near(&text, 1, sizeof(image), CODE + 0x2ff8), "over the border: begins here");
	CHECK(near(&text, 1, sizeof(image), CODE + 0x3001), "and ends here");
	put(0x3000);
	CHECK(near(&text, 1, sizeof(image), CODE + 0x2ff9), "its mov is in the page before");
	put(0x2ffe);
	CHECK(near(&text, 1, sizeof(image), CODE + 0x3000), "pc past it, in the next page");
}

static void test_ends_of_a_segment(void)
{
	struct uw_segment text = text_at(CODE + 0xff0);

	put(0);
	CHECK(near(&text, 1, sizeof(image), CODE + 0xff0), "its first byte");
	put(SIZE - 2);
	CHECK(near(&text, 1, sizeof(image), CODE + 0xff0 + SIZE), "right behind its last byte");
	put(SIZE);
	CHECK(!near(&text, 1, sizeof(image), CODE + 0xff0 + SIZE), "what follows in the file");
}

static void test_when_in_doubt_there_may_be_one(void)
{
	struct uw_segment both[] = { text_at(CODE), text_at(CODE + SIZE - 8) };
	struct uw_segment far[] = { text_at(CODE), text_at((uint64_t)1 << 46) };
	struct uw_segment high = text_at(UINT64_MAX - SIZE - 1), apart[] = { data, text_at(CODE) };

	memset(image, 0x90, sizeof(image));
	CHECK(near(both, 2, sizeof(image), CODE + SIZE - 4), "two segments there");
	CHECK(!near(both, 2, sizeof(image), CODE), "one of them alone");
	CHECK(near(far, 2, sizeof(image), CODE), "too far apart to remember");
	CHECK(near(both, 1, 0x1800, CODE + 0x1000), "the file is shorter");
	CHECK(!near(both, 1, 0x1800, CODE + 0x10), "but not here");
	CHECK(near(apart, 2, sizeof(image), 0x10000), "not code at all");
	CHECK(!near(apart, 2, sizeof(image), CODE + 0x1000), "data elsewhere");
	CHECK(!near(&high, 1, sizeof(image), UINT64_MAX - 8), "at the end of all addresses");
}

int main(void)
{
	test_a_page_with_a_syscall_and_what_reaches_into_it();
	test_ends_of_a_segment();
	test_when_in_doubt_there_may_be_one();
	return check_done();
}
