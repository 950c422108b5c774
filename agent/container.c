/* agent/container.c: what the paths of cgroups say: containers, pods, units of systemd. */
#include "agent/container.h"

#include <stdio.h>
#include <string.h>

/*
 * An id is a run of exactly CONTAINER_ID lower-case hexadecimal digits. Later matches overwrite
 * earlier ones, so the innermost container wins.
 */
bool container_of(const char *path, char id[CONTAINER_ID + 1])
{
	bool found = false;

	for (const char *p = path; *p;) {
		size_t n = strspn(p, "0123456789abcdef");

		if (n == CONTAINER_ID) {
			memcpy(id, p, n);
			id[n] = '\0';
			found = true;
		}
		p += n;
		p += strcspn(p, "0123456789abcdef");
	}
	return found;
}

/* ---- labels ------------------------------------------------------------------------------ */

struct component { /* of a path */
	const char *text;
	size_t n;
};

static bool next(const char **path, struct component *out)
{
	*path += strspn(*path, "/");
	*out = (struct component){ *path, strcspn(*path, "/") };
	*path += out->n;
	return out->n > 0;
}

static bool ends_in(const struct component *c, const char *suffix)
{
	size_t n = strlen(suffix);

	return c->n > n && !strncmp(c->text + c->n - n, suffix, n);
}

static bool begins_with(const struct component *c, const char *prefix)
{
	size_t n = strlen(prefix);

	return c->n >= n && !strncmp(c->text, prefix, n);
}

static bool is(const struct component *c, const char *text)
{
	return c->n == strlen(text) && !strncmp(c->text, text, c->n);
}

static void copy(char out[CONTAINER_TEXT], const char *text, size_t n)
{
	(void)snprintf(out, CONTAINER_TEXT, "%.*s", (int)n, text);
}

/* How runtimes call the cgroups of their containers. */
static const struct {
	const char *prefix, *runtime;
} runtimes[] = {
	{ "docker-", "docker" },      { "cri-containerd-", "containerd" },
	{ "nerdctl-", "containerd" }, { "containerd-", "containerd" },
	{ "crio-", "cri-o" },	      { "libpod-", "podman" },
};

/* A machine of systemd-nspawn: systemd-nspawn@NAME.service, or machine-NAME.scope. */
static void take_machine(const struct component *c, struct container_labels *out)
{
	static const char service[] = "systemd-nspawn@", scope[] = "machine-";
	size_t skip = begins_with(c, service) && ends_in(c, ".service") ? sizeof(service) - 1
		      : begins_with(c, scope) && ends_in(c, ".scope")	? sizeof(scope) - 1
									: 0;
	size_t suffix = skip == sizeof(service) - 1 ? strlen(".service") : strlen(".scope");

	if (!skip || c->n <= skip + suffix)
		return;
	copy(out->id, c->text + skip, c->n - skip - suffix);
	out->runtime = "systemd-nspawn";
}

/* A pod: "pod" and its uid, whose dashes are underscores in slices of systemd. */
static void take_pod(const struct component *c, struct container_labels *out)
{
	enum { UID = 36 };
	const char *end = c->text + c->n - (ends_in(c, ".slice") ? strlen(".slice") : 0);
	const char *uid = end - UID;

	if (end - c->text < UID + 3 || strncmp(uid - 3, "pod", 3) != 0 ||
	    strspn(uid, "0123456789abcdef-_") < UID)
		return;
	copy(out->pod, uid, UID);
	for (char *p = out->pod; *p; p++)
		if (*p == '_')
			*p = '-';
	if (!*out->qos)
		out->qos = "guaranteed";
}

/* Units of systemd, but slices. */
static bool is_unit(const struct component *c)
{
	return ends_in(c, ".service") || ends_in(c, ".scope") || ends_in(c, ".socket") ||
	       ends_in(c, ".mount") || ends_in(c, ".swap");
}

void container_labels(const char *path, struct container_labels *out)
{
	char id[CONTAINER_ID + 1];
	struct component c;

	*out = (struct container_labels){ .runtime = "", .qos = "" };
	for (const char *at = path; next(&at, &c);) {
		if (ends_in(&c, ".slice") && !*out->unit)
			copy(out->slice, c.text, c.n);
		if (is_unit(&c) && !*out->unit)
			copy(out->unit, c.text, c.n);
		else if (is_unit(&c) && !*out->user_unit && !strncmp(out->unit, "user@", 5))
			copy(out->user_unit, c.text, c.n);
		if (begins_with(&c, "kubepods-burstable") || is(&c, "burstable"))
			out->qos = "burstable";
		if (begins_with(&c, "kubepods-besteffort") || is(&c, "besteffort"))
			out->qos = "besteffort";
		take_pod(&c, out);
		take_machine(&c, out);
		for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++)
			if (begins_with(&c, runtimes[i].prefix))
				out->runtime = runtimes[i].runtime;
		if (is(&c, "docker"))
			out->runtime = "docker";
	}
	if (container_of(path, id))
		copy(out->id, id, CONTAINER_ID);
	else if (strcmp(out->runtime, "systemd-nspawn") != 0)
		out->runtime = "";
}
