/*
 * tests/bench/walks.c: times walks of recorded samples by offwind, libunwind, libdwfl and a minimal
 * loop. README.md in this directory says how, and how to read the results.
 *   usage: walks [-f FIGURES] [-w WAY]… NAME=FILE…
 *                                           prints the tables; FIGURES: lines to add to the last
 *                                           table; WAY: only these, beside the first
 *          walks -i WAY [-n MAX] FILE       only one way, for callgrind: counted() runs the
 *                                           second half of the samples; prints their frames
 */
#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/peers/peer.h"

#define MAX_FILES 16

/* Samples that are prepared at once, as from a ring that was just read; 256 KiB of stacks. */
#define BLOCK PEER_MANY
/* First samples that are measured, each in a process of its own. */
#define FIRSTS 9
/* Samples of another program that are walked first. */
#define WARMING 64

enum way { TABLE, MANY, AGAIN, BARE, FILES, FLOOR, LIBUNWIND, LIBDWFL, N_WAYS };

static const struct peer *const ways[N_WAYS] = { &peer_table,	  &peer_many,	&peer_again,
						 &peer_bare,	  &peer_file,	&peer_floor,
						 &peer_libunwind, &peer_libdwfl };
static bool left_out[N_WAYS];

/* The results of one way with one recording. */
struct result {
	double set_up_ms; /* opening, compiling, reporting modules */
	double peak_mib;  /* in addition to the recording's own memory */
	double first_us, first_us_max;
	size_t frames, same, complete;
	double ns[2]; /* per frame: stack bytes in cache, in DRAM */
};

struct workload {
	const char *name;
	size_t samples;
	double new_pcs; /* part of the frames of the second half that were never seen before */
	struct result of[N_WAYS], opened;
	/* Medians over turns of the ratio of two ways' ns per frame. */
	double floor[2], file[2], libunwind[2], libdwfl[2], many[2], again[2];
};

static volatile uint8_t sink;
static double clock_ns; /* the time to read the clock */

static double now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
	if (!n)
		return NAN;
	qsort(values, n, sizeof(*values), by_value);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void measure_clock(void)
{
	double each[1001];

	for (size_t i = 0; i < 1001; i++) {
		double start = now_ns();

		each[i] = now_ns() - start;
	}
	clock_ns = median(each, 1001);
}

/* Run in a child process, whose memory disappears with it; the results are in shared memory. */
static int in_child(int (*fn)(void *), void *arg)
{
	int status = 0;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(fn(arg) ? 1 : 0);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	return status ? -ECHILD : 0;
}

static void *shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* ---- stack bytes in cache, or not ------------------------------------------------------------ */

static void touch(const struct sample *sample)
{
	uint8_t all = 0;

	for (uint64_t at = 0; at < sample->stack.size; at += 64)
		all ^= sample->stack.bytes[at];
	sink = all;
}

static void flush(const struct sample *sample)
{
	for (uint64_t at = 0; at < sample->stack.size; at += 64)
#if defined(__x86_64__)
		__builtin_ia32_clflush(sample->stack.bytes + at);
	__builtin_ia32_mfence();
#else
		__asm__ volatile("dc civac, %0" : : "r"(sample->stack.bytes + at) : "memory");
	__asm__ volatile("dsb sy" : : : "memory");
#endif
}

/* ---- all ways over the same samples ---------------------------------------------------------- */

/* Number of samples that are timed together. */
#define TURN (4 * BLOCK)
/* How often each way walks the recording, each time in a process of its own. */
#define ROUNDS 5

struct turn {
	double ns; /* a frame */
	bool preempted;
};

/* One way's walk of a recording, each sample once. */
struct pass {
	const struct recording *recording;
	enum way way;
	bool dram;
	struct turn *turns; /* of the second half; shared */
};

static size_t turns_of(const struct recording *r)
{
	return r->n_samples / TURN - r->n_samples / TURN / 2;
}

/* Walk n samples, at most a block. Return the time and add up frames. */
static double walk_block(const struct peer *peer, void *self, const struct sample *samples,
			 size_t n, size_t *frames)
{
	double start, all = 0;

	if (peer->many) {
		size_t each[BLOCK];

		start = now_ns();
		peer->many(self, samples, n, NULL, each);
		all = now_ns() - start - clock_ns;
		for (size_t i = 0; i < n; i++)
			*frames += each[i];
		return all;
	}
	if (peer->prepare) {
		for (size_t i = 0; i < n; i++) {
			peer->prepare(self);
			start = now_ns();
			*frames += peer->walk(self, &samples[i], NULL);
			all += now_ns() - start - clock_ns;
		}
		return all;
	}
	start = now_ns();
	for (size_t i = 0; i < n; i++)
		*frames += peer->walk(self, &samples[i], NULL);
	return now_ns() - start - clock_ns;
}

/* Return how often another process got this CPU, and the caches with it. */
static long preemptions(void)
{
	struct rusage used;

	return getrusage(RUSAGE_THREAD, &used) ? 0 : used.ru_nivcsw;
}

static struct turn walk_turn(const struct pass *p, void *self, size_t first)
{
	long before = preemptions();
	size_t frames = 0;
	double ns = 0;

	for (size_t at = first; at < first + TURN; at += BLOCK) {
		const struct sample *samples = &p->recording->samples[at];

		for (size_t i = 0; i < BLOCK; i++)
			(p->dram ? flush : touch)(&samples[i]);
		ns += walk_block(ways[p->way], self, samples, BLOCK, &frames);
	}
	return (struct turn){ .ns = frames ? ns / (double)frames : NAN,
			      .preempted = preemptions() != before };
}

static int pass_child(void *arg)
{
	const struct pass *p = arg;
	const struct recording *r = p->recording;
	size_t n = r->n_samples / TURN, skipped = n - turns_of(r);
	void *self;
	int err = ways[p->way]->new ((struct recording *)(uintptr_t)r, SIZE_MAX, &self);

	if (err)
		return err;
	measure_clock();
	for (size_t i = 0; i < n; i++) {
		struct turn turn = walk_turn(p, self, i * TURN);

		if (i >= skipped)
			p->turns[i - skipped] = turn;
	}
	return 0;
}

/* Fewer turns give no median. */
#define LEAST_TURNS 5

/*
 * Return the median of n turns' ns per frame, or of the ratios to the base's ns in the same turns.
 */
static double median_turn(const struct turn *turns, const struct turn *base, size_t n)
{
	double *values = calloc(n + 1, sizeof(*values)), result = NAN;
	size_t kept = 0;

	/* Use the turns without interruption; if these are too few, use all. */
	for (int all = 0; values && all < 2 && kept < LEAST_TURNS; all++) {
		kept = 0;
		for (size_t i = 0; i < n; i++) {
			double value = turns[i].ns / (base ? base[i].ns : 1);

			if (value > 0 &&
			    (all || (!turns[i].preempted && !(base && base[i].preempted))))
				values[kept++] = value;
		}
	}
	if (values)
		result = median(values, kept);
	free(values);
	return result;
}

/* ---- one way alone: set-up, memory, frames ------------------------------------------------- */

struct pcs { /* of all samples, in shared memory */
	uint64_t *all;
	uint64_t *start; /* n_samples + 1 of them */
	size_t room;
};

struct alone {
	struct recording *recording;
	enum way way;
	struct result *result; /* shared; so is the memory that pcs points to */
	struct pcs *pcs;
};

static double status_mib(const char *field)
{
	FILE *in = fopen("/proc/self/status", "r");
	char line[256];
	double kib = 0;

	while (in && fgets(line, sizeof(line), in))
		if (!strncmp(line, field, strlen(field)))
			kib = strtod(line + strlen(field), NULL);
	if (in)
		(void)fclose(in);
	return kib / 1024;
}

/*
 * Walk n samples from first on and store their pcs after the `at` pcs that there are. Return how
 * many were added.
 */
static uint64_t keep_pcs(const struct peer *peer, void *self, const struct recording *r,
			 size_t first, size_t n, uint64_t at, const struct pcs *out)
{
	static uint64_t pcs[BLOCK][PEER_FRAMES];
	uint64_t *row[BLOCK], kept = 0;
	size_t found[BLOCK];

	for (size_t i = 0; i < n; i++)
		row[i] = pcs[i];
	if (peer->many)
		peer->many(self, &r->samples[first], n, row, found);
	else
		found[0] = peer->walk(self, &r->samples[first], row[0]);
	for (size_t i = 0; i < n; i++) {
		memcpy(out->all + at + kept, row[i], found[i] * sizeof(*row[i]));
		kept += found[i];
		out->start[first + i + 1] = at + kept;
	}
	return kept;
}

static int alone_child(void *arg)
{
	struct alone *a = arg;
	const struct recording *r = a->recording;
	const struct peer *peer = ways[a->way];
	FILE *peak = fopen("/proc/self/clear_refs", "w");
	double rss, start;
	size_t in_turn;
	uint64_t n = 0;
	void *self;
	int err;

	if (!peak || fputs("5", peak) < 0 || fclose(peak)) /* Reset VmHWM: proc(5) */
		return -errno;
	rss = status_mib("VmRSS:");
	start = now_ns();
	err = peer->new (a->recording, SIZE_MAX, &self);
	if (err)
		return err;
	a->result->set_up_ms = (now_ns() - start) / 1e6;
	for (size_t i = 0; i < r->n_samples; i++)
		(void)peer->walk(self, &r->samples[i], NULL);
	a->result->peak_mib = status_mib("VmHWM:") - rss;
	for (size_t i = 0; i < r->n_samples; i += in_turn) {
		size_t left = r->n_samples - i;

		in_turn = peer->many ? left < BLOCK ? left : BLOCK : 1;
		n += keep_pcs(peer, self, r, i, in_turn, n, a->pcs);
	}
	a->result->frames = n;
	return 0;
}

static int walk_alone(struct recording *r, enum way way, struct result *result, struct pcs *pcs)
{
	struct alone a = {
		.recording = r, .way = way, .result = shared(sizeof(*result)), .pcs = pcs
	};
	int err;

	pcs->room = r->n_samples * PEER_FRAMES + PEER_FRAMES;
	pcs->all = shared(pcs->room * sizeof(*pcs->all));
	pcs->start = shared((r->n_samples + 1) * sizeof(*pcs->start));
	err = a.result && pcs->all && pcs->start ? in_child(alone_child, &a) : -ENOMEM;
	if (!err)
		*result = *a.result;
	if (a.result)
		(void)munmap(a.result, sizeof(*a.result));
	return err;
}

/* Needs loaded images; ours: NULL for our own library. */
static void judge(const struct recording *r, const struct pcs *pcs, const struct pcs *ours,
		  struct result *result)
{
	for (size_t i = 0; i < r->n_samples; i++) {
		const uint64_t *pc = pcs->all + pcs->start[i];
		size_t n = pcs->start[i + 1] - pcs->start[i];

		result->same += n == ours->start[i + 1] - ours->start[i] &&
				!memcmp(pc, ours->all + ours->start[i], n * sizeof(*pc));
		result->complete += n && life_is_root(&r->lives[r->samples[i].life],
						      n > 1 ? pc[n - 1] - 1 : pc[0]);
	}
}

/* Return the share of pcs in the second half that no earlier sample of the same life had. */
static double share_new(const struct recording *r, const struct pcs *pcs)
{
	size_t room = 1024, n_new = 0, n = 0;
	uint64_t *seen;

	while (room < 2 * pcs->start[r->n_samples])
		room *= 2;
	seen = calloc(room, sizeof(*seen));
	if (!seen)
		return NAN;
	for (size_t i = 0; i < r->n_samples; i++)
		for (uint64_t k = pcs->start[i]; k < pcs->start[i + 1]; k++) {
			uint64_t key = pcs->all[k] ^ (uint64_t)(r->samples[i].life + 1) << 48;
			size_t at = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (room - 1);

			while (seen[at] && seen[at] != key)
				at = (at + 1) & (room - 1);
			n += i >= r->n_samples / 2;
			n_new += i >= r->n_samples / 2 && !seen[at];
			seen[at] = key;
		}
	free(seen);
	return n ? (double)n_new / (double)n : NAN;
}

/* ---- the first sample of a process ------------------------------------------------------------- */

struct first {
	struct recording *recording, *other;
	const struct peer *peer;
	const struct sample *sample;
	double *ns;
};

static int first_child(void *arg)
{
	struct first *f = arg;
	double start;
	void *self, *busy;
	int err = f->peer->new (f->recording, f->sample->life, &self);

	if (!err)
		err = f->peer->new (f->other, SIZE_MAX, &busy);
	if (err)
		return err;
	measure_clock();
	if (f->peer->clear)
		f->peer->clear(self);
	/* The walker is warm, but has not seen this process. */
	for (size_t i = 0; i < f->other->n_samples; i++)
		(void)f->peer->walk(busy, &f->other->samples[i], NULL);
	touch(f->sample);
	start = now_ns();
	(void)f->peer->walk(self, f->sample, NULL);
	*f->ns = now_ns() - start - clock_ns;
	return 0;
}

static int walk_firsts(struct recording *r, struct recording *other, const struct peer *peer,
		       struct result *result)
{
	double *ns = shared(FIRSTS * sizeof(*ns)), each[FIRSTS];
	int err = ns ? 0 : -ENOMEM;

	for (size_t i = 0; i < FIRSTS && !err; i++) {
		struct first f = { .recording = r,
				   .other = other,
				   .peer = peer,
				   .sample = &r->samples[r->n_samples * i / FIRSTS],
				   .ns = &ns[i] };

		err = in_child(first_child, &f);
		each[i] = ns[i] / 1e3;
	}
	if (!err) {
		result->first_us = median(each, FIRSTS);
		result->first_us_max = each[FIRSTS - 1];
	}
	if (ns)
		(void)munmap(ns, FIRSTS * sizeof(*ns));
	return err;
}

/* ---- one recording ------------------------------------------------------------------------------ */

static int time_all(const struct recording *r, struct workload *w)
{
	size_t n = turns_of(r), all = ROUNDS * n;
	struct turn *turns[N_WAYS] = { NULL };
	int err = 0;

	for (size_t i = 0; i < N_WAYS && !err; i++) {
		turns[i] = shared((all + 1) * sizeof(**turns));
		err = turns[i] ? 0 : -ENOMEM;
	}
	for (int dram = 0; dram < 2 && !err; dram++) {
		for (size_t i = 0; i < ROUNDS * N_WAYS && !err; i++) {
			size_t round = i / N_WAYS;
			struct pass p = { .recording = r,
					  .way = (enum way)((i + round) % N_WAYS),
					  .dram = dram };

			p.turns = turns[p.way] + round * n;
			err = left_out[p.way] ? 0 : in_child(pass_child, &p);
		}
		for (size_t i = 0; i < N_WAYS && !err; i++)
			w->of[i].ns[dram] = median_turn(turns[i], NULL, all);
		w->floor[dram] = median_turn(turns[TABLE], turns[FLOOR], all);
		w->file[dram] = median_turn(turns[FILES], turns[TABLE], all);
		w->libunwind[dram] = median_turn(turns[LIBUNWIND], turns[TABLE], all);
		w->libdwfl[dram] = median_turn(turns[LIBDWFL], turns[TABLE], all);
		w->many[dram] = median_turn(turns[TABLE], turns[MANY], all);
		w->again[dram] = median_turn(turns[TABLE], turns[AGAIN], all);
	}
	for (size_t i = 0; i < N_WAYS; i++)
		if (turns[i])
			(void)munmap(turns[i], (all + 1) * sizeof(**turns));
	return err;
}

static void print_workload(const struct workload *w)
{
	double n = (double)w->samples;

	(void)printf(
		"\n%s: %zu samples, %zu frames (%.1f each), %.1f %% of the frames at pcs never "
		"seen before\n"
		"%-10s %8s %8s %9s %9s %9s %9s %9s %9s %9s\n",
		w->name, w->samples, w->of[TABLE].frames, (double)w->of[TABLE].frames / n,
		100 * w->new_pcs, "", "same", "complete", "frames", "ns/frame", "ns, DRAM",
		"first µs", "at most", "setup ms", "peak MiB");
	for (size_t i = 0; i < N_WAYS; i++) {
		const struct result *o = &w->of[i];

		if (left_out[i])
			continue;
		(void)printf("%-10s %6.2f %% %6.2f %% %9zu %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f\n",
			     ways[i]->name, 100 * (double)o->same / n,
			     100 * (double)o->complete / n, o->frames, o->ns[0], o->ns[1],
			     o->first_us, o->first_us_max, o->set_up_ms, o->peak_mib);
	}
}

static int bench(const char *file, const char *other_file, struct workload *w)
{
	struct recording r, other;
	struct pcs pcs[N_WAYS] = { 0 };
	int err = recording_read(file, 0, &r);

	if (err)
		return err;
	err = recording_read(other_file, WARMING, &other);
	if (err) {
		recording_free(&r);
		return err;
	}
	w->samples = r.n_samples;
	(void)malloc_trim(0);
	/* Run in children of a process that has opened nothing. */
	for (size_t i = 0; i < N_WAYS && !err; i++) {
		if (left_out[i])
			continue;
		err = walk_alone(&r, (enum way)i, &w->of[i], &pcs[i]);
		if (!err)
			err = walk_firsts(&r, &other, ways[i], &w->of[i]);
	}
	if (!err)
		err = walk_firsts(&r, &other, &peer_opened, &w->opened);
	if (!err)
		err = time_all(&r, w);
	if (!err)
		err = recording_load(&r, SIZE_MAX);
	for (size_t i = 0; i < N_WAYS && !err; i++)
		if (!left_out[i])
			judge(&r, &pcs[i], &pcs[TABLE], &w->of[i]);
	if (!err)
		w->new_pcs = share_new(&r, &pcs[TABLE]);
	for (size_t i = 0; i < N_WAYS; i++) {
		if (pcs[i].all)
			(void)munmap(pcs[i].all, pcs[i].room * sizeof(*pcs[i].all));
		if (pcs[i].start)
			(void)munmap(pcs[i].start, (r.n_samples + 1) * sizeof(*pcs[i].start));
	}
	recording_free(&other);
	recording_free(&r);
	(void)malloc_trim(0); /* else the next way's children reuse it */
	return err;
}

/* ---- the last table --------------------------------------------------------------------------- */

enum sum { GEOMETRIC, MOST };

/* Return the width of UTF-8 text without wide characters. */
static size_t width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

/* (jit) is shown but not counted. */
static void print_row(const char *what, const struct workload *all, size_t n, const double *first,
		      enum sum how, const char *wanted)
{
	double sum = 0, most = 0, counting = 0;

	if (!isfinite(*first)) /* for a way that was left out */
		return;
	(void)printf("%s%*s", what, (int)(30 - width(what)), "");
	for (size_t i = 0; i < n; i++) {
		/* The same member of each. */
		double value = *(const double *)((const char *)first + i * sizeof(*all));

		(void)printf(" %8.2f", value);
		if (all[i].name[0] == '(')
			continue;
		counting++;
		sum += log(value);
		most = value > most ? value : most;
	}
	(void)printf("  %8.2f  %s\n", how == GEOMETRIC ? exp(sum / counting) : most, wanted);
}

static void print_ratios(const struct workload *all, size_t n, const char *figures)
{
	static const char *const where[2] = { "", ", DRAM" };
	FILE *in = figures ? fopen(figures, "r") : NULL;
	char line[256];

	(void)printf("\n%-30s", "ratios of ns a frame");
	for (size_t i = 0; i < n; i++)
		(void)printf(" %8s", all[i].name);
	(void)printf("  %8s  %s\n", "geo mean", "wanted");
	for (size_t dram = 0; dram < 2; dram++) {
		const struct {
			const char *what;
			const double *first;
			const char *wanted;
		} rows[] = {
			{ "ours / floor", &all->floor[dram], "<= 1.4" },
			{ "libunwind / ours", &all->libunwind[dram], ">= 25" },
			{ "libdwfl / ours", &all->libdwfl[dram], ">= 18" },
			{ "no tables / ours", &all->file[dram], "" },
			{ "one by one / interleaved", &all->many[dram], dram ? ">= 1.7" : "" },
			{ "full / taken over", &all->again[dram], "" },
		};

		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			bool counts = !dram || i == 4;
			char what[64];

			(void)snprintf(what, sizeof(what), "%s%s", rows[i].what, where[dram]);
			print_row(what, all, n, rows[i].first, GEOMETRIC,
				  counts ? rows[i].wanted : "");
		}
	}
	(void)printf("%-30s %*s  %8s\n", "others", (int)(9 * n - 1), "", "most");
	print_row("first sample, files read: µs", all, n, &all->of[FILES].first_us, MOST, "<= 50");
	print_row("… files opened, not read: µs", all, n, &all->opened.first_us, MOST, "");
	while (in && fgets(line, sizeof(line), in))
		(void)fputs(line, stdout);
	if (in)
		(void)fclose(in);
}

/* ---- for callgrind -------------------------------------------------------------------------------- */

size_t counted(const struct peer *peer, void *self, const struct sample *sample);

__attribute__((noinline)) size_t counted(const struct peer *peer, void *self,
					 const struct sample *sample)
{
	return peer->walk(self, sample, NULL);
}

static int count(const char *name, const char *file, size_t max)
{
	const struct peer *peer = NULL;
	struct recording r;
	size_t frames = 0;
	void *self;
	int err;

	for (size_t i = 0; i < N_WAYS; i++)
		if (!strcmp(ways[i]->name, name))
			peer = ways[i];
	if (!peer)
		return -EINVAL;
	err = recording_read(file, max, &r);
	if (err)
		return err;
	err = peer->new (&r, SIZE_MAX, &self);
	if (!err) {
		for (size_t i = 0; i < r.n_samples / 2; i++)
			(void)peer->walk(self, &r.samples[i], NULL);
		for (size_t i = r.n_samples / 2; i < r.n_samples; i++)
			frames += counted(peer, self, &r.samples[i]);
		(void)printf("%zu\n", frames);
		peer->free(self);
	}
	recording_free(&r);
	return err;
}

/* The first -w leaves out all other ways. */
static bool choose_way(const char *name, bool *chosen)
{
	bool found = false;

	for (size_t i = 0; i < N_WAYS; i++) {
		bool same = !strcmp(ways[i]->name, name);

		left_out[i] = *chosen ? left_out[i] && !same : i != TABLE && !same;
		found = found || same;
	}
	*chosen = true;
	return found;
}

int main(int argc, char **argv)
{
	static struct workload all[MAX_FILES];
	const char *figures = NULL, *only = NULL;
	size_t n = 0, max = 0;
	bool chosen = false;
	int option;

	while ((option = getopt(argc, argv, "f:i:n:w:")) != -1) {
		if (option == 'f')
			figures = optarg;
		else if (option == 'w' && !choose_way(optarg, &chosen))
			return 2;
		else if (option == 'w')
			continue;
		else if (option == 'i')
			only = optarg;
		else if (option == 'n')
			max = strtoul(optarg, NULL, 10);
		else
			return 2;
	}
	/* Large blocks are always new pages, as in a process that has just started. */
	(void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
	if (only)
		return argc - optind == 1 ? count(only, argv[optind], max) != 0 : 2;
	for (int i = optind; i < argc && n < MAX_FILES; i++, n++) {
		char *file = strchr(argv[i], '='), *other;
		int err;

		other = strchr(argv[i + 1 < argc ? i + 1 : optind], '=');
		if (!file || !other)
			return 2;
		all[n].name = strndup(argv[i], (size_t)(file++ - argv[i]));
		err = bench(file, other + 1, &all[n]);
		if (err) {
			(void)fprintf(stderr, "walks: %s: %s\n", file, strerror(-err));
			return 1;
		}
		print_workload(&all[n]);
	}
	print_ratios(all, n, figures);
	return 0;
}
