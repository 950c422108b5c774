/* agent/live/bpf/symbol.c: looks up kernel symbols by a BPF program that formats "%pS". */
#include "agent/live/bpf/symbol.h"

#include "agent/live/system/feature.h"
#include "schema/capture.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "bpf/symbol.skel.h"
#pragma GCC diagnostic pop

#define TAG_DIGITS 16 /* hexadecimal digits of a BPF program's tag, in its symbol */

struct live_symbols {
	struct symbol *skeleton;
	char text[CAPTURE_SYMBOL_TEXT]; /* a copy of the program's */
};

int live_symbols_new(struct live_symbols **out)
{
	struct live_symbols *symbols =
		live_bpf_without("snprintf") ? NULL : calloc(1, sizeof(*symbols));

	if (!symbols)
		return -ENOTSUP;
	symbols->skeleton = symbol__open_and_load();
	if (!symbols->skeleton) {
		free(symbols);
		return -ENOTSUP;
	}
	*out = symbols;
	return 0;
}

void live_symbols_free(struct live_symbols *symbols)
{
	if (!symbols)
		return;
	symbol__destroy(symbols->skeleton);
	free(symbols);
}

/*
 * Return whether a symbol is that of a BPF program or trampoline. kallsyms marks these with
 * "[bpf]", but "%pS" does not.
 */
static bool is_of_bpf(const char *name)
{
	if (!strncmp(name, "bpf_trampoline_", 15))
		return name[15] >= '0' && name[15] <= '9';
	return !strncmp(name, "bpf_prog_", 9) &&
	       strspn(name + 9, "0123456789abcdef") == TAG_DIGITS &&
	       (name[9 + TAG_DIGITS] == '_' || !name[9 + TAG_DIGITS]);
}

/*
 * Take the last '+' as the beginning of the offset. The kernel names no module for BPF programs, so
 * they are recognised by their names.
 */
int live_symbol_parse(char *text, uint64_t addr, struct source_kernel_symbol *out)
{
	char *plus = strrchr(text, '+'), *module, *end;
	uint64_t off, size;
	int at = 0;

	if (!plus || plus == text ||
	    sscanf(plus, "+0x%" SCNx64 "/0x%" SCNx64 "%n", &off, &size, &at) != 2 || !at ||
	    off > addr)
		return -ENOENT;
	*plus = '\0';
	module = plus + at;
	if (*module == ' ' && module[1] == '[') {
		module++;
		end = strchr(module, ']');
		if (!end)
			return -ENOENT;
		end[1] = '\0';
	} else {
		module = is_of_bpf(text) ? "[bpf]" : "";
	}
	*out = (struct source_kernel_symbol){ addr - off, size, text, module };
	return 0;
}

int live_symbols_find(struct live_symbols *symbols, uint64_t addr, struct source_kernel_symbol *out)
{
	uint64_t args[1] = { addr };
	LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = args, .ctx_size_in = sizeof(args));
	int fd = bpf_program__fd(symbols->skeleton->progs.name_address);
	const uint32_t zero = 0;

	if (bpf_prog_test_run_opts(fd, &options) ||
	    bpf_map_lookup_elem(bpf_map__fd(symbols->skeleton->maps.texts), &zero, symbols->text))
		return -ENOTSUP;
	symbols->text[sizeof(symbols->text) - 1] = '\0';
	return live_symbol_parse(symbols->text, addr, out);
}
