/* tests/unit/test_flame.c: tests the tree behind the flame graph page. */
#include "agent/export/profile/flame.h"

#include "tests/check.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static struct stacks *fresh(void)
{
	struct stacks *s = NULL;

	CHECK(!stacks_new(&s) &&
		      !stacks_add_type(s, stacks_text(s, "samples"), stacks_text(s, "count")),
	      "a profile");
	return s;
}

/* Make a location of functions, the innermost inlined call first, up to NULL. */
static uint32_t location(struct stacks *s, bool kernel, const char *name, ...)
{
	struct stacks_line lines[8];
	uint32_t n = 0, module;
	static uint64_t address;
	va_list names;

	module = stacks_module(s, &(struct stacks_module){ .path = stacks_text(s, "/bin/x"),
							   .name = stacks_text(s, "x"),
							   .build_id = stacks_text(s, ""),
							   .kernel = kernel });
	va_start(names, name);
	for (; name; name = va_arg(names, const char *)) {
		const char *text = stacks_text(s, name);

		lines[n++].function = stacks_function(
			s, &(struct stacks_function){
				   .name = text, .system_name = text, .file = stacks_text(s, "") });
		lines[n - 1].line = 0;
	}
	va_end(names);
	return stacks_location(
		s,
		&(struct stacks_location){ .module = module, .address = ++address, .n_lines = n },
		lines);
}

static void add(struct stacks *s, bool base, int64_t value, const char *key, const char *text,
		const uint32_t *ids, uint32_t n)
{
	uint32_t label = 0;

	if (key)
		label = stacks_keep_label(s, &(struct stacks_label){ .key = stacks_text(s, key),
								     .text = stacks_text(s, text),
								     .unit = stacks_text(s, "") });
	CHECK(!stacks_add(s,
			  &(struct stacks_sample){
				  .n_locations = n, .n_labels = key != NULL, .base = base },
			  ids, &label, &value),
	      "a sample");
}

/*
 * Print the tree as "all(main:3(work:1))": sorted by name, with the values that ended there and,
 * after ~, the guessed part.
 */
static const char *shape(const struct flame *f)
{
	static char text[4096];
	uint32_t depth = 0;
	size_t used = 0;

	for (size_t i = 0; i < f->n_nodes; i++) {
		const struct flame_node *n = &f->nodes[i];
		const struct flame_value v = flame_value(f, i, 0);

		while (i && depth >= n->depth) {
			text[used++] = ')';
			depth--;
		}
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
					 i && text[used - 1] == ')' ? " " : "",
					 f->frames[n->frame].name);
		if (f->frames[n->frame].kind & FLAME_INLINED)
			text[used++] = '*';
		if (v.now)
			used += (size_t)snprintf(text + used, sizeof(text) - used, ":%d",
						 (int)v.now);
		if (v.base)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "/%d",
						 (int)v.base);
		if (v.guessed)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "~%d",
						 (int)v.guessed);
		text[used++] = '(';
		depth = n->depth;
	}
	for (uint32_t i = 0; i <= depth; i++)
		text[used++] = ')';
	text[used] = '\0';
	return text;
}

static void check_shape(const struct stacks *s, const char *by, const char *want)
{
	struct flame *f = NULL;

	CHECK(!flame_new(s, 0, by, &f), want);
	if (f)
		CHECK(!strcmp(shape(f), want), shape(f));
	flame_free(f);
}

static void test_stacks_are_merged_from_the_root(void)
{
	struct stacks *s = fresh();
	uint32_t main_ = location(s, false, "main", NULL), b = location(s, false, "b", NULL);
	uint32_t a = location(s, false, "inner", "a", NULL), again = location(s, false, "b", NULL);

	add(s, false, 2, NULL, NULL, (uint32_t[]){ b, main_ }, 2);
	add(s, false, 3, NULL, NULL, (uint32_t[]){ a, main_ }, 2);
	add(s, false, 4, NULL, NULL, (uint32_t[]){ again, main_ }, 2);
	add(s, false, 1, NULL, NULL, (uint32_t[]){ main_ }, 1);
	add(s, true, 7, NULL, NULL, (uint32_t[]){ b, main_ }, 2);
	/* Children are sorted by name; two addresses of one function are one node. */
	check_shape(s, NULL, "all(main:1(a(inner*:3()) b:6/7()))");
	stacks_free(s);
}

static void test_values_below_zero_are_left_out(void)
{
	struct stacks *s = fresh();
	uint32_t main_ = location(s, false, "main", NULL), b = location(s, false, "b", NULL);
	struct flame *f = NULL;

	add(s, false, -2, NULL, NULL, (uint32_t[]){ b, main_ }, 2);
	add(s, false, INT64_MAX, NULL, NULL, (uint32_t[]){ main_ }, 1);
	add(s, false, 5, "comm", "x", (uint32_t[]){ main_ }, 1);
	CHECK(!flame_new(s, 0, NULL, &f), "tree");
	CHECK(f && f->n_negative == 1 && f->n_nodes == 2, "b is not in it");
	CHECK(f && flame_value(f, 1, 0).now == INT64_MAX, "sums end at the largest number");
	flame_free(f);
	stacks_free(s);
}

static void test_stops_and_labels_stand_before_functions(void)
{
	struct stacks *s = fresh();
	uint32_t a = location(s, false, "a", NULL), z = location(s, true, "z", NULL);

	add(s, false, 2, "stop", "truncated", (uint32_t[]){ a }, 1);
	add(s, false, 3, "comm", "sh", (uint32_t[]){ z }, 1);
	check_shape(s, NULL, "all(z:3() truncated(a:2()))");
	check_shape(s, "comm", "all((none)(truncated(a:2())) sh(z:3()))");
	stacks_free(s);
}

/*
 * "guessed" can be any text: if it is not an ascending list of places inside the stack, it marks
 * nothing more.
 */
static void test_guesses_are_marked(void)
{
	static const struct {
		const char *label, *want;
	} cases[] = {
		{ "0", "all(d(c(b(a:1~1())))) " },
		{ "1-2", "all(d(c~1(b~1(a:1())))) " },
		{ "0,3", "all(d~1(c(b(a:1~1())))) " },
		{ "2-99", "all(d~1(c~1(b(a:1())))) " },
		{ "0-4294967295",
		  "all(d(c(b(a:1~1())))) " }, /* no valid number: its start counts */
		{ "4294967294", "all(d(c(b(a:1())))) " },
		{ "1,0", "all(d(c(b~1(a:1())))) " },
		{ "1,1,1", "all(d(c(b~1(a:1())))) " },
		{ "2-1,3", "all(d~1(c(b(a:1())))) " },
		{ "-1", "all(d(c(b(a:1())))) " },
		{ "1;2", "all(d(c(b~1(a:1())))) " },
		{ "99999999999999999999", "all(d(c(b(a:1())))) " },
		{ "x", "all(d(c(b(a:1())))) " },
		{ ",0", "all(d(c(b(a:1())))) " },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct stacks *s = fresh();
		uint32_t ids[4];
		struct flame *f = NULL;

		ids[0] = location(s, false, "a", NULL);
		ids[1] = location(s, false, "b", NULL);
		ids[2] = location(s, false, "c", NULL);
		ids[3] = location(s, false, "d", NULL);
		add(s, false, 1, "guessed", cases[i].label, ids, 4);
		CHECK(!flame_new(s, 0, NULL, &f), cases[i].label);
		if (f)
			CHECK(!strncmp(shape(f), cases[i].want, strlen(cases[i].want) - 1),
			      cases[i].label);
		flame_free(f);
		stacks_free(s);
	}
}

static void test_depth_is_bounded(void)
{
	enum { DEEP = 3 * FLAME_DEPTH };
	uint32_t *ids = malloc(DEEP * sizeof(*ids));
	struct stacks *s = fresh();
	struct flame *f = NULL;
	uint32_t a = location(s, false, "a", "b", NULL);

	for (uint32_t i = 0; ids && i < DEEP; i++)
		ids[i] = a;
	add(s, false, 5, NULL, NULL, ids, DEEP);
	CHECK(!flame_new(s, 0, NULL, &f), "tree");
	CHECK(f && f->n_nodes == FLAME_DEPTH + 2 && flame_value(f, f->n_nodes - 1, 0).now == 5 &&
		      !strcmp(f->frames[f->nodes[f->n_nodes - 1].frame].name, FLAME_DEEP),
	      "the rest is one frame");
	flame_free(f);
	stacks_free(s);
	free(ids);
}

static void test_nothing_is_a_tree_too(void)
{
	struct stacks *s = fresh();
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	struct flame *f = NULL;

	check_shape(s, "comm", "all()");
	CHECK(!flame_new(s, 0, NULL, &f) && out &&
		      !flame_write(f, &(struct flame_page){ .title = "nothing" }, out),
	      "a page");
	CHECK(text && strstr(text, "\"now\":[0]"), "of nothing");
	if (out)
		(void)fclose(out);
	free(text);
	flame_free(f);
	stacks_free(s);
}

int main(void)
{
	test_stacks_are_merged_from_the_root();
	test_values_below_zero_are_left_out();
	test_stops_and_labels_stand_before_functions();
	test_guesses_are_marked();
	test_depth_is_bounded();
	test_nothing_is_a_tree_too();
	return check_done();
}
