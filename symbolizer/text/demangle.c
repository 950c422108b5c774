/* symbolizer/text/demangle.c: demangles C++ and Rust names with libiberty, within limits. */
#include "symbolizer/symbolizer.h"

#include "base/text.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Limits. libiberty itself refuses C++ names of more than 1,024 bytes, as protection against deep
 * recursion. The length of the result must be limited here, because substitutions can double it
 * with every few characters.
 */
#define OUT_MAX	  ((size_t)64 << 10)
#define INPUT_MAX ((size_t)16 << 10)

struct sink {
	jmp_buf full;
	bool is_full;
	size_t n;
	char bytes[OUT_MAX];
};

/*
 * Collect demangled bytes; a callback of libiberty. A callback cannot refuse, so a full sink ends
 * the demangler by longjmp. The demanglers only use the stack, except for heap memory that holds
 * one Punycode identifier while it is passed here. Such a piece, which is not plain ASCII, is dropped without
 * longjmp, and the next piece, at least the "::" or "," after it, ends the demangler.
 */
static void take(const char *bytes, size_t n, void *ctx)
{
	struct sink *sink = ctx;

	if (sink->is_full || n > OUT_MAX - sink->n) {
		sink->is_full = true;
		if (uw_text_is_plain(bytes, n))
			longjmp(sink->full, 1);
		return;
	}
	if (n) /* an empty identifier is passed as NULL */
		memcpy(sink->bytes + sink->n, bytes, n);
	sink->n += n;
}

typedef int (*demangle_fn)(const char *mangled, int options, demangle_callbackref callback,
			   void *ctx);

/* Run one demangler. Return whether it understood the name and the result fits. */
static bool run(demangle_fn demangle, const char *mangled, struct sink *sink)
{
	sink->n = 0;
	sink->is_full = false;
	if (setjmp(sink->full))
		return false;
	return demangle(mangled, DMGL_PARAMS | DMGL_ANSI, take, sink) && sink->n && !sink->is_full;
}

/* Return where the suffix of a Rust name (`.llvm.123`) begins, which the Rust demangler drops. */
static size_t rust_suffix(const char *mangled, size_t n)
{
	size_t at = n;

	if (mangled[1] == 'R') { /* in v0 mangling, '.' only begins a suffix */
		const char *dot = strchr(mangled, '.');

		return dot ? (size_t)(dot - mangled) : n;
	}
	while (at && !(mangled[at - 1] == 'E' && (at == n || mangled[at] == '.')))
		at--;
	return at ? at : n;
}

/*
 * Return whether a name may be Rust. Legacy Rust names are C++ names that end in a hash,
 * `_ZN…17h<hash>E`.
 */
static bool may_be_rust(const char *mangled)
{
	return mangled[1] == 'R' || strstr(mangled, "17h");
}

/*
 * Demangle into sink and return whether the name was understood. *suffix is the part of mangled
 * that must be added as a clone's mark, or "". Modifies mangled.
 */
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
	/* Try without a suffix that libiberty does not know as a clone's. */
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

/* Demangle the part before '@', and show a suffix of the compiler as libiberty does. */
char *sym_demangle(const char *name)
{
	size_t n = strnlen(name, INPUT_MAX + 1);
	const char *at = strchr(name, '@'); /* "@plt" or a version; mangled names have no '@' */
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
