/*
 * tests/cases/step_cases.c: runs the single steps of framehop.tsv: registers and memory words go
 * in, registers come out.
 *   usage: step_cases EXPECTED.tsv DIRECTORY
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/step.h"

struct words { /* "0=1 8=2": address=value, hexadecimal */
	const char *text;
	bool zero; /* addresses without a value read as 0 */
};

static int read_words(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct words *words = ctx;
	const char *p = words->text;
	uint64_t value = 0;
	bool found = words->zero;

	while (*p) {
		char *end;
		uint64_t at = strtoull(p, &end, 16);

		if (*end != '=')
			break;
		p = end + 1;
		if (at == addr) {
			value = strtoull(p, &end, 16);
			found = true;
		}
		p += strspn(p, "0123456789abcdef");
		p += strspn(p, " ");
	}
	if (!found || size > 8)
		return -EFAULT;
	memcpy(out, &value, size);
	return 0;
}

static uint64_t hex(const char *text)
{
	return strtoull(text, NULL, 16);
}

static void run(char **f, const char *folder)
{
	struct words words = { .text = f[9], .zero = !strcmp(f[10], "zero") };
	struct uw_machine m = { .read = read_words, .ctx = &words };
	struct uw_object *object;
	struct uw_rule rule;
	uint64_t pc = hex(f[5]), cfa = 0;
	bool exact = !strcmp(f[4], "ip");
	char path[4096];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, f[2]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || uw_object_open(fd, 0, &object)) {
		CHECK(0, path);
		return;
	}
	close(fd);
	m.arch = uw_arch_of(uw_object_machine(object));
	m.regs.value[m.arch->pc] = pc;
	m.regs.value[m.arch->sp] = hex(f[6]);
	m.regs.value[m.arch->fp] = hex(f[7]);
	m.regs.known =
		(uint64_t)1 << m.arch->pc | (uint64_t)1 << m.arch->sp | (uint64_t)1 << m.arch->fp;
	if (f[8][0] != '-') {
		m.regs.value[m.arch->lr] = hex(f[8]);
		m.regs.known |= (uint64_t)1 << m.arch->lr;
	}
	CHECK(uw_object_rule(object, exact ? pc : pc - 1, exact, &rule) == 0, f[0]);
	/* PLT expressions use the pc, which is a register like any other. */
	CHECK(uw_step(&m, &rule, &cfa) == 1, f[0]);
	CHECK(m.regs.value[m.arch->pc] == hex(f[11]), f[0]);
	CHECK(m.regs.value[m.arch->sp] == hex(f[12]), f[0]);
	CHECK(m.regs.value[m.arch->fp] == hex(f[13]), f[0]);
	uw_object_put(object);
}

int main(int argc, char **argv)
{
	FILE *file = argc == 3 ? fopen(argv[1], "re") : NULL;
	char line[4096];

	while (file && fgets(line, sizeof(line), file)) {
		char *fields[16], *rest = line;
		int n = 0;

		while (n < 16 && (fields[n] = strsep(&rest, "\t\n")))
			n++;
		if (n >= 14 && strcmp(fields[0], "case"))
			run(fields, argv[2]);
	}
	if (file)
		(void)fclose(file);
	return check_done();
}
