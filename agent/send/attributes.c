/* agent/send/attributes.c: names of attributes for labels. */
#include "agent/send/attributes.h"

#include <stdio.h>
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

/*
 * Return whether a label's name is of those that the semantic conventions give to requests, queries and messages: a thread
 * says these of its work, which no resource has. Other names with a dot may be of either.
 */
static bool is_of_work(const char *label)
{
	static const char *const namespaces[] = {
		"client",	"code",	  "db",	     "dns",    "enduser",   "error",
		"exception",	"gen_ai", "graphql", "http",   "messaging", "network",
		"feature_flag", "peer",	  "rpc",     "server", "session",   "source",
		"destination",	"thread", "tls",     "url",    "user",	    "user_agent",
	};
	size_t n = strcspn(label, ".");

	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
		if (strlen(namespaces[i]) == n && !strncmp(namespaces[i], label, n))
			return true;
	return false;
}

bool attribute_is_of_process(const char *label)
{
	for (size_t i = 0; i < N_KNOWN; i++)
		if (!strcmp(known[i].label, label))
			return known[i].of_process;
	return strchr(label, '.') && !is_of_work(label);
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
