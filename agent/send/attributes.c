/* agent/send/attributes.c: names of attributes for labels. */
#include "agent/send/attributes.h"

#include "agent/array.h"
#include "agent/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Labels without a row are attributes of their own name; most of those with a dot are of the process. */
static const struct {
	const char *label, *attribute;
	bool of_process;
} known[] = {
	{ "pid", "process.pid", true },
	{ "exe", "process.executable.path", true },
	{ "user", "process.owner", true },
	{ "cgroup", "process.linux.cgroup", true },
	{ "host", "host.name", true },
	{ "container_id", "container.id", true },
	{ "container_runtime", "container.runtime.name", true },
	{ "pod", "k8s.pod.uid", true },
	{ "comm", "offwind.comm", true },
	{ "unit", "offwind.unit", true },
	{ "user_unit", "offwind.user_unit", true },
	{ "slice", "offwind.slice", true },
	{ "qos", "offwind.qos", true },
	{ "tid", "thread.id", false },
	{ "thread", "thread.name", false },
	{ "stop", "offwind.stop", false },
	{ "confidence", "offwind.confidence", false },
	{ "guessed", "offwind.guessed", false },
};

#define N_KNOWN (sizeof(known) / sizeof(known[0]))

static bool is_in(const char *label, const char *const *namespaces, size_t n_namespaces)
{
	size_t n = strcspn(label, ".");

	for (size_t i = 0; i < n_namespaces; i++)
		if (strlen(namespaces[i]) == n && !strncmp(namespaces[i], label, n))
			return true;
	return false;
}

/*
 * Return whether a label's name is of those that the semantic conventions give to requests, queries and messages: a thread
 * says these of its work, which no resource has.
 */
static bool is_of_work(const char *label)
{
	static const char *const namespaces[] = {
		"client",	"code",	  "db",	     "dns",    "enduser",   "error",
		"exception",	"gen_ai", "graphql", "http",   "messaging", "network",
		"feature_flag", "peer",	  "rpc",     "server", "session",   "source",
		"destination",	"thread", "tls",     "url",    "user",	    "user_agent",
	};

	return is_in(label, namespaces, sizeof(namespaces) / sizeof(namespaces[0]));
}

/* Return whether a label's name is of those that the semantic conventions give to resources. */
static bool is_of_resource(const char *label)
{
	static const char *const namespaces[] = {
		"service", "deployment", "telemetry", "process", "host",      "os",   "container",
		"k8s",	   "cloud",	 "aws",	      "gcp",	 "azure",     "faas", "device",
		"browser", "webengine",	 "heroku",    "oci",	 "openshift", "cicd", "vcs",
	};

	return is_in(label, namespaces, sizeof(namespaces) / sizeof(namespaces[0]));
}

/* ---- names of a program's own ------------------------------------------------------------- */

static bool is_of_threads(const char *label, const struct attribute_names *names)
{
	for (size_t i = 0; names && i < names->n; i++)
		if (!strcmp(names->of_threads[i], label))
			return true;
	return false;
}

/* Return whether a label's name may be of a process or of a thread. */
static bool may_be_both(const char *label, const struct attribute_names *names)
{
	return strchr(label, '.') && !is_of_work(label) && !is_of_resource(label) &&
	       !is_of_threads(label, names);
}

/* A name of which a process has a value. */
struct seen {
	int64_t pid;
	uint32_t label; /* in stacks: the first value */
};

struct learning {
	struct attribute_names *names;
	const struct stacks *s;
	struct seen *seen;
	size_t n, room;
	struct uw_hash_index by_name;
};

/* Take note of a label of a process: a second value of a name makes it one of threads. */
static int take_label(struct learning *l, int64_t pid, uint32_t label)
{
	const char *key = l->s->labels[label].key;
	uint64_t hash = hash_u64(hash_bytes(0, key, strlen(key)), (uint64_t)pid);
	uint32_t at = UW_HASH_FIND(i, &l->by_name, hash,
				   l->seen[i].pid == pid &&
					   !strcmp(l->s->labels[l->seen[i].label].key, key));
	int err;

	if (at != UW_HASH_NONE) {
		if (l->seen[at].label == label || is_of_threads(key, l->names))
			return 0;
		l->names->of_threads[l->names->n] = strdup(key);
		return l->names->of_threads[l->names->n] ? (l->names->n++, 0) : -ENOMEM;
	}
	err = array_grow(l->seen, l->n, l->room);
	if (!err)
		err = uw_hash_add(&l->by_name, hash, (uint32_t)l->n);
	if (!err)
		l->seen[l->n++] = (struct seen){ pid, label };
	return err;
}

int attribute_names_learn(struct attribute_names *names, const struct stacks *s)
{
	const size_t most = sizeof(names->of_threads) / sizeof(names->of_threads[0]);
	struct learning l = { .names = names, .s = s };
	bool *both = calloc(s->n_labels + 1, sizeof(*both)), any = false;
	int err = both ? 0 : -ENOMEM;

	for (size_t i = 0; both && i < s->n_labels; i++)
		any |= both[i] = may_be_both(s->labels[i].key, names);
	for (size_t i = 0; any && i < s->n_samples && !err; i++) {
		const struct stacks_sample *sample = &s->samples[i];
		const struct stacks_label *pid = stacks_label(s, sample, "pid");

		for (uint32_t k = 0; pid && k < sample->n_labels && !err; k++) {
			uint32_t id = s->label_ids[sample->first_label + k];

			if (both[id] && names->n < most)
				err = take_label(&l, pid->number, id);
		}
	}
	free(both);
	free(l.seen);
	uw_hash_fini(&l.by_name);
	return err;
}

void attribute_names_fini(struct attribute_names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->of_threads[i]);
	names->n = 0;
}

/* ---- names elsewhere ----------------------------------------------------------------------- */

bool attribute_is_of_process(const char *label, const struct attribute_names *of_threads)
{
	for (size_t i = 0; i < N_KNOWN; i++)
		if (!strcmp(known[i].label, label))
			return known[i].of_process;
	return strchr(label, '.') && !is_of_work(label) && !is_of_threads(label, of_threads);
}

const char *attribute_name(const char *label, char out[128])
{
	for (size_t i = 0; i < N_KNOWN; i++)
		if (!strcmp(known[i].label, label))
			return known[i].attribute;
	(void)snprintf(out, 128, "%s", label);
	return out;
}

static const char *label_of(const struct stacks *s, const struct stacks_sample *sample,
			    const char *key)
{
	const struct stacks_label *l = stacks_label(s, sample, key);

	return l && l->text ? l->text : "";
}

const char *attribute_program(const struct stacks *s, const struct stacks_sample *sample)
{
	const char *exe = label_of(s, sample, "exe"), *slash = strrchr(exe, '/');

	return slash && slash[1] ? slash + 1 : *exe ? exe : label_of(s, sample, "comm");
}

const char *attribute_service(const struct stacks *s, const struct stacks_sample *sample,
			      char out[256])
{
	static const char ending[] = ".service";
	const char *said = label_of(s, sample, "service.name"), *unit = label_of(s, sample, "unit");
	size_t n = strlen(unit), n_ending = sizeof(ending) - 1;

	if (*said)
		return said;
	/* A scope is a session, or a container, whose name is a number. */
	if (n <= n_ending || strcmp(unit + n - n_ending, ending) != 0) {
		const char *program = attribute_program(s, sample);

		return *program ? program : "unknown_service";
	}
	n -= n_ending;
	(void)snprintf(out, 256, "%.*s", (int)(n < 255 ? n : 255), unit);
	return out;
}

const char *attribute_frame_type(const struct stacks_module *module, const char *program)
{
	/* Programs with generated code, and the published words for what is interpreted. */
	static const struct {
		const char *program, *type;
	} runtimes[] = {
		{ "java", "jvm" },	{ "node", "v8js" }, { "dotnet", "dotnet" },
		{ "beam.smp", "beam" }, { "php", "php" },   { "luajit", "luajit" },
	};
	static const char *const interpreted[] = { "cpython", "jvm",  "v8js", "ruby",	"php",
						   "perl",    "beam", "go",   "dotnet", "luajit" };
	size_t n = strlen(module->path);

	if (module->kernel)
		return "kernel";
	if (!strcmp(module->path, "[v8]"))
		return "v8js";
	for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++)
		if (!strcmp(module->path, "[jit]") && !strcmp(program, runtimes[i].program))
			return runtimes[i].type;
	for (size_t i = 0; i < sizeof(interpreted) / sizeof(interpreted[0]); i++)
		if (n == strlen(interpreted[i]) + 2 && module->path[0] == '[' &&
		    !strncmp(module->path + 1, interpreted[i], n - 2))
			return interpreted[i];
	return "native";
}
