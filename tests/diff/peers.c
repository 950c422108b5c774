/*
 * tests/diff/peers.c: walks every sample of recordings with offwind, libunwind and libdwfl, and
 * compares the frames, pc by pc, where the latter two agree. README.md in this directory says what
 * the classes mean.
 *   usage: peers [-v] NAME[:PERCENT]=FILE…
 *          -v: show the differences; PERCENT: fail if fewer samples are complete. Recordings with a
 *          PERCENT have generated code; they come last and are reported separately.
 * Exit code 1: more than one in a thousand of the agreed samples differs and is in none of the
 * three classes in which the other two are known to be wrong.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/peers/peer.h"
#include "unwinder/rule/object.h"

enum class {
	EQUAL,
	FURTHER, /* both others stop early, at the same frame; ours continues to a root */
	LEAF,	 /* both others leave out the caller of code that has no rules and no frame yet */
	ASTRAY, /* what both others take for the caller is not an address of code, and they stop there */
	BEYOND,	 /* ours continues where the others stop, but not to a root */
	SHORTER, /* ours stops where they go on */
	OTHER,	 /* another pc */
	N_CLASSES
};

static const char *const class_names[N_CLASSES] = { "equal",
						    "peers stop before the root",
						    "peers leave out a leaf's caller",
						    "peers leave all code",
						    "ours goes on",
						    "ours stops before the peers",
						    "frames differ" };

struct counts {
	size_t samples, agreed, of[N_CLASSES], complete, peer_complete[2];
};

static bool verbose;

struct walk {
	uint64_t pcs[PEER_FRAMES];
	size_t n;
};

static bool same(const struct walk *a, const struct walk *b)
{
	return a->n == b->n && !memcmp(a->pcs, b->pcs, a->n * sizeof(*a->pcs));
}

static bool is_complete(const struct life *life, const struct walk *walk)
{
	uint64_t last = walk->n ? walk->pcs[walk->n - 1] : 0;

	return walk->n && life_is_root(life, walk->n > 1 ? last - 1 : last);
}

/*
 * Return whether a call instruction ends at pc: call rel32, or the forms of call r/m64 (SDM vol.
 * 2).
 */
static bool is_called_from(const struct life *life, uint64_t pc)
{
	static const uint8_t sizes[] = { 2, 3, 4, 6, 7 };
	const struct code *code = life_code(life, pc - 1);
	const uint8_t *before =
		code && code->image ? image_at(code->image, pc - code->bias - 7, 7) : NULL;

	if (!before)
		return false;
	if (before[2] == 0xe8)
		return true;
	for (size_t i = 0; i < sizeof(sizes); i++)
		if (before[7 - sizes[i]] == 0xff && (before[8 - sizes[i]] >> 3 & 7) == 2)
			return true;
	return false;
}

/*
 * There is no rule for the pc, and the word at sp follows a call: ours takes it as the return
 * address. The others follow the frame pointer, which is still the caller's, to the caller's
 * caller. All other frames are the same.
 */
static bool is_leaf_left_out(const struct life *life, const struct sample *sample,
			     const struct walk *ours, const struct walk *them)
{
	const struct uw_mapping *m = uw_space_find(life->space, ours->pcs[0]);
	struct uw_rule rule;
	uint64_t top;

	if (ours->n != them->n + 1 || ours->n < 3 || sample->stack.size < 8 || !m || !m->object ||
	    uw_object_interpret(m->object, ours->pcs[0] - m->bias, true, &rule) != -ENOENT)
		return false;
	memcpy(&top, sample->stack.bytes, 8);
	return top == ours->pcs[1] && ours->pcs[0] == them->pcs[0] && is_called_from(life, top) &&
	       !memcmp(ours->pcs + 2, them->pcs + 1, (them->n - 1) * sizeof(*them->pcs));
}

/*
 * All frames of the others but the last are ours, and their last one is in no executable mapping.
 */
static bool is_astray(const struct life *life, const struct walk *ours, const struct walk *them)
{
	size_t last = them->n ? them->n - 1 : 0;
	const struct uw_mapping *m = last ? uw_space_find(life->space, them->pcs[last] - 1) : NULL;

	return last && last <= ours->n && !(m && m->prot & PROT_EXEC) &&
	       !memcmp(ours->pcs, them->pcs, last * sizeof(*them->pcs));
}

/* them: the frames of both others. */
static enum class class_of(const struct life *life, const struct sample *sample,
			   const struct walk *ours, const struct walk *them) {
	size_t n = ours->n < them->n ? ours->n : them->n;

	if (same(ours, them)) return EQUAL;
	if (is_leaf_left_out(life, sample, ours, them)) return LEAF;
	if (is_astray(life, ours, them)) return ASTRAY;
	if (memcmp(ours->pcs, them->pcs, n * sizeof(*ours->pcs)) != 0) return OTHER;
	if (ours->n < them->n) return SHORTER;
	return is_complete(life, ours) ? FURTHER : BEYOND;
}

static void show_pc(const struct life *life, const struct walk *walk, size_t i)
{
	uint64_t pc = i < walk->n ? walk->pcs[i] : 0, lookup = i ? pc - 1 : pc;
	const struct code *code = life_code(life, lookup);
	const char *name = NULL;

	if (i >= walk->n) {
		(void)printf("  %-44s", "-");
		return;
	}
	if (!code || !code->image) {
		(void)printf("  %-44" PRIx64, pc);
		return;
	}
	name = image_symbol(code->image, lookup - code->bias);
	(void)printf("  %-24.24s %6" PRIx64 " %-12.12s",
		     strrchr(code->image->module->path, '/')
			     ? strrchr(code->image->module->path, '/') + 1
			     : code->image->module->path,
		     pc - code->bias, name ? name : "?");
}

static void show(const struct life *life, size_t number, const char *why, const struct walk *walks)
{
	size_t n = 0;

	for (size_t w = 0; w < 3; w++)
		n = walks[w].n > n ? walks[w].n : n;
	(void)printf("sample %zu: %s; ours %zu frames, libunwind %zu, libdwfl %zu\n", number, why,
		     walks[0].n, walks[1].n, walks[2].n);
	for (size_t i = 0; i < n; i++) {
		bool all = i < walks[0].n && i < walks[1].n && i < walks[2].n &&
			   walks[0].pcs[i] == walks[1].pcs[i] && walks[0].pcs[i] == walks[2].pcs[i];

		if (all && i + 1 < n && i + 1 < walks[0].n && i + 1 < walks[1].n &&
		    i + 1 < walks[2].n && walks[0].pcs[i + 1] == walks[1].pcs[i + 1] &&
		    walks[0].pcs[i + 1] == walks[2].pcs[i + 1])
			continue; /* the last agreed frame is shown, and what follows */
		(void)printf("  %3zu", i);
		for (size_t w = 0; w < 3; w++)
			show_pc(life, &walks[w], i);
		(void)printf("\n");
	}
}

static int compare(const char *name, const char *file, struct counts *total, double least)
{
	static const struct peer *const peers[3] = { &peer_file, &peer_libunwind, &peer_libdwfl };
	static struct walk walks[3];
	struct counts c = { 0 };
	struct recording recording;
	void *self[3] = { NULL };
	int err = recording_read(file, 0, &recording);

	if (err)
		return err;
	for (size_t i = 0; i < 3 && !err; i++)
		err = peers[i]->new (&recording, SIZE_MAX, &self[i]);
	for (size_t i = 0; i < recording.n_samples && !err; i++) {
		const struct sample *sample = &recording.samples[i];
		const struct life *life = &recording.lives[sample->life];
		enum class class;
		bool complete;

		for (size_t w = 0; w < 3; w++)
			walks[w].n = peers[w]->walk(self[w], sample, walks[w].pcs);
		complete = is_complete(life, &walks[0]);
		c.samples++;
		c.complete += complete;
		for (size_t w = 1; w < 3; w++)
			c.peer_complete[w - 1] += is_complete(life, &walks[w]);
		if (verbose && !complete)
			show(life, i, "not complete", walks);
		if (!same(&walks[1], &walks[2]))
			continue;
		c.agreed++;
		class = class_of(life, sample, &walks[0], &walks[1]);
		c.of[class]++;
		if (verbose && class != EQUAL && complete)
			show(life, i, class_names[class], walks);
	}
	for (size_t i = 0; i < 3; i++)
		peers[i]->free(self[i]);
	recording_free(&recording);
	if (err || !c.samples)
		return err ? err : -1;
	(void)printf(
		"%-8s %5zu samples, complete: ours %.2f %%, libunwind %.2f %%, libdwfl %.2f %%; "
		"peers agree on %zu",
		name, c.samples, 100.0 * (double)c.complete / (double)c.samples,
		100.0 * (double)c.peer_complete[0] / (double)c.samples,
		100.0 * (double)c.peer_complete[1] / (double)c.samples, c.agreed);
	for (size_t i = 0; i < N_CLASSES; i++) {
		if (c.of[i] || i == EQUAL)
			(void)printf(", %s %zu", class_names[i], c.of[i]);
		total->of[i] += c.of[i];
	}
	(void)printf("\n");
	total->samples += c.samples;
	total->agreed += c.agreed;
	if ((double)c.complete < least / 100 * (double)c.samples) {
		(void)printf("%s: fewer than %.1f %% are complete\n", name, least);
		return 1;
	}
	return 0;
}

/* what: of which programs. */
static void tell(const char *what, const struct counts *c)
{
	double percent = c->agreed ? 100 / (double)c->agreed : 0;
	size_t equal = c->of[EQUAL], prefix = c->of[FURTHER], leaf = c->of[LEAF];
	size_t astray = c->of[ASTRAY];

	(void)printf("%-8s %5zu samples, peers agree on %zu: equal %.3f %%, equal until the peers "
		     "stop short %.3f %% (together %.3f %%), peers leave out a leaf's caller "
		     "%.3f %%, peers leave all code %.3f %%, other %.3f %%\n",
		     what, c->samples, c->agreed, percent * (double)equal, percent * (double)prefix,
		     percent * (double)(equal + prefix), percent * (double)leaf,
		     percent * (double)astray,
		     percent * (double)(c->agreed - equal - prefix - leaf - astray));
}

int main(int argc, char **argv)
{
	struct counts all = { 0 }, without = { 0 };
	int option, failed = 0;
	size_t other;

	while ((option = getopt(argc, argv, "v")) != -1) {
		if (option != 'v')
			return 2;
		verbose = true;
	}
	for (int i = optind; i < argc; i++) {
		char *file = strchr(argv[i], '='), *least;

		if (!file)
			return 2;
		*file++ = 0;
		least = strchr(argv[i], ':');
		if (least)
			*least++ = 0;
		if (compare(argv[i], file, &all, least ? strtod(least, NULL) : 0))
			failed = 1;
		if (!least)
			without = all;
	}
	if (without.samples && without.samples < all.samples)
		tell("compiled", &without);
	tell("all", &all);
	other = all.agreed - all.of[EQUAL] - all.of[FURTHER] - all.of[LEAF] - all.of[ASTRAY];
	return failed || !all.agreed || other * 1000 > all.agreed;
}
