#include "symbolizer/symbolizer.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * libiberty itself refuses C++ names of more than 1,024 bytes, its guard
 * against deep recursion.  What a short one expands to is bounded here, because
 * substitutions can double it with every few characters.
 */
#define OUT_MAX	  ((size_t)64 << 10)
#define INPUT_MAX ((size_t)16 << 10)

struct sink {
	jmp_buf full;
	bool is_full;
	size_t n;
	char bytes[OUT_MAX];
};

static bool is_ascii(const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)bytes[i] >= 0x80)
			return false;
	}
	return true;
}

/*
 * A callback cannot refuse, so a full sink leaves by longjmp.  The demanglers
 * work on their stack alone, but for the heap that holds one Punycode
 * identifier while it is handed out: such a piece is let pass, and the next
 * one, which is at least the "::" or "," behind it, ends the matter.
 */
static void take(const char *bytes, size_t n, void *ctx)
{
	struct sink *sink = ctx;

	if (sink->is_full || n > OUT_MAX - sink->n) {
		sink->is_full = true;
		if (is_ascii(bytes, n))
			longjmp(sink->full, 1);
		return;
	}
	if (n) /* an empty identifier comes as NULL */
		memcpy(sink->bytes + sink->n, bytes, n);
	sink->n += n;
}

typedef int (*demangle_fn)(const char *mangled, int options, demangle_callbackref callback,
			   void *ctx);

static bool run(demangle_fn demangle, const char *mangled, struct sink *sink)
{
	sink->n = 0;
	sink->is_full = false;
	if (setjmp(sink->full))
		return false;
	return demangle(mangled, DMGL_PARAMS | DMGL_ANSI, take, sink) && sink->n && !sink->is_full;
}

/* Where the suffix of a Rust name begins, which its demangler drops: `.llvm.123`. */
static size_t rust_suffix(const char *mangled, size_t n)
{
	size_t at = n;

	if (mangled[1] == 'R') { /* v0 has no '.' of its own */
		const char *dot = strchr(mangled, '.');

		return dot ? (size_t)(dot - mangled) : n;
	}
	while (at && !(mangled[at - 1] == 'E' && (at == n || mangled[at] == '.')))
		at--;
	return at ? at : n;
}

/* Legacy Rust names are C++ names that end in a hash, `_ZN…17h<hash>E`. */
static bool may_be_rust(const char *mangled)
{
	return mangled[1] == 'R' || strstr(mangled, "17h");
}

/* Into sink; true if understood.  *suffix: what of mangled is left to add as a mark, or "". */
static bool demangle_any(char *mangled, size_t n, struct sink *sink, const char **suffix)
{
	char *dot;

	*suffix = "";
	if (may_be_rust(mangled) && run(rust_demangle_callback, mangled, sink)) {
		*suffix = mangled + rust_suffix(mangled, n);
		return true;
	}
	if (run(cplus_demangle_v3_callback, mangled, sink))
		return true;
	/* A suffix that libiberty does not take for a clone's. */
	dot = strchr(mangled, '.');
	if (!dot)
		return false;
	*dot = '\0';
	*suffix = dot + 1;
	return run(cplus_demangle_v3_callback, mangled, sink);
}

static bool looks_mangled(const char *name)
{
	return strncmp(name, "_Z", 2) == 0 || strncmp(name, "_R", 2) == 0 ||
	       strncmp(name, "_GLOBAL_", 8) == 0;
}

char *sym_demangle(const char *name)
{
	size_t n = strnlen(name, INPUT_MAX + 1);
	const char *at = strchr(name, '@'); /* "@plt", or a version; no mangling has it */
	char mangled[INPUT_MAX + 1], *text, *out;
	const char *suffix, *mark;
	struct sink sink;
	int size;

	if (n > INPUT_MAX || !looks_mangled(name))
		return sym_sanitize(name, strlen(name), 0);
	n = at ? (size_t)(at - name) : n;
	memcpy(mangled, name, n);
	mangled[n] = '\0';
	if (!demangle_any(mangled, n, &sink, &suffix))
		return sym_sanitize(name, strlen(name), 0);
	if (!*suffix && !at)
		return sym_sanitize(sink.bytes, sink.n, 0);
	mark = !*suffix ? "" : *suffix == '.' ? " [clone " : " [clone .";
	size = asprintf(&text, "%.*s%s%s%s%s", (int)sink.n, sink.bytes, mark, suffix,
			*suffix ? "]" : "", at ? at : "");
	if (size < 0)
		return NULL;
	out = sym_sanitize(text, (size_t)size, 0);
	free(text);
	return out;
}
