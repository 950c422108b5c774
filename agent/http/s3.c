/* agent/http/s3.c: stores files as objects of S3, and gets them back. */
#include "agent/http/s3.h"

#include "agent/http/curl.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/sanitize.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* AWS takes no more with one request. */
#define OBJECT_MAX (UINT64_C(5) << 30)

enum { CONNECT_SECONDS = 10, SLOW_BYTES = 1, SLOW_SECONDS = 60, ATTEMPTS = 4, SAID_MAX = 512 };

/* ---- places and accounts ------------------------------------------------------------------ */

int s3_place_parse(const char *url, struct s3_place *out)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
	const char *bucket = strncmp(url, "s3://", 5) ? "" : url + 5;
	size_t n = strspn(bucket, allowed);

	*out = (struct s3_place){ .bucket = NULL };
	if (n < 3 || (bucket[n] && bucket[n] != '/')) {
		log_error("'%s' is no object: s3://BUCKET/KEY is expected", url);
		return -EINVAL;
	}
	out->bucket = strndup(bucket, n);
	out->key = strdup(bucket[n] ? bucket + n + 1 : "");
	if (out->bucket && out->key)
		return 0;
	s3_place_fini(out);
	return -ENOMEM;
}

void s3_place_fini(struct s3_place *p)
{
	free(p->bucket);
	free(p->key);
	*p = (struct s3_place){ .bucket = NULL };
}

/* Copy the first variable that is set and not empty; NULL: none is, or there is no memory. */
static char *from_environment(const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return strdup(value);
	}
	return NULL;
}

#define ENVIRONMENT(...)                                       \
	from_environment((const char *const[]){ __VA_ARGS__ }, \
			 sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

struct profile { /* a section of the file with credentials */
	struct s3_account *to;
	const char *name;
};

static int take_line(void *ctx, const char *section, const char *name, const char *value)
{
	static const char *const names[] = { "aws_access_key_id", "aws_secret_access_key",
					     "aws_session_token" };
	struct profile *p = ctx;
	char **const fields[] = { &p->to->id, &p->to->secret, &p->to->token };

	for (size_t i = 0; !strcmp(section, p->name) && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]) && !*fields[i])
			*fields[i] = strdup(value);
	return 1;
}

/* Read the section of the file with credentials. If there is none, nothing is set. */
static void read_profile(struct s3_account *out)
{
	const char *file = getenv("AWS_SHARED_CREDENTIALS_FILE"), *name = getenv("AWS_PROFILE"),
		   *home = getenv("HOME");
	struct profile p = { .to = out, .name = name && *name ? name : "default" };
	char *path = NULL;

	if (file && *file)
		path = strdup(file);
	else if (home && asprintf(&path, "%s/.aws/credentials", home) < 0)
		path = NULL;
	if (path && ini_parse(path, take_line, &p) > 0)
		log_warning("%s: some lines cannot be read", path);
	free(path);
}

int s3_account_read(struct s3_account *out, const char *endpoint)
{
	*out = (struct s3_account){
		.endpoint = endpoint ? strdup(endpoint)
				     : ENVIRONMENT("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
		.region = ENVIRONMENT("AWS_REGION", "AWS_DEFAULT_REGION"),
		.id = ENVIRONMENT("AWS_ACCESS_KEY_ID"),
		.secret = ENVIRONMENT("AWS_SECRET_ACCESS_KEY"),
		.ca_file = ENVIRONMENT("AWS_CA_BUNDLE"),
	};
	if (out->id && out->secret)
		out->token = ENVIRONMENT("AWS_SESSION_TOKEN");
	else
		read_profile(out);
	if (!out->region)
		out->region = strdup("us-east-1");
	if (out->endpoint && strncasecmp(out->endpoint, "http://", 7) != 0 &&
	    strncasecmp(out->endpoint, "https://", 8) != 0) {
		log_error("'%s' is no URL of a server: http://HOST:PORT or https://HOST:PORT is "
			  "expected",
			  out->endpoint);
		return -EINVAL;
	}
	if (out->region && out->id && out->secret)
		return 0;
	log_error("there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
		  "write ~/.aws/credentials");
	return -EACCES;
}

void s3_account_fini(struct s3_account *a)
{
	free(a->endpoint);
	free(a->region);
	free(a->id);
	free(a->secret);
	free(a->token);
	free(a->ca_file);
	*a = (struct s3_account){ .id = NULL };
}

/* ---- requests ----------------------------------------------------------------------------- */

struct transfer {
	const struct s3_account *account;
	struct curl curl;
	void *easy;
	char *url;
	struct curl_slist *headers;
	int fd;
	bool puts;
	uint64_t size;
	int write_err;	     /* of fd */
	bool written;	     /* a part of the object is in fd */
	char said[SAID_MAX]; /* the beginning of what the server says instead of an object */
	size_t n_said;
	char error[CURL_ERROR_TEXT]; /* libcurl's, until the handle is freed */
};

/* Write a key as a part of a URL: each byte that is not unreserved, encoded, but for '/' (RFC 3986 §2.3). */
static void put_key(FILE *out, const char *key)
{
	for (; *key; key++)
		if (isalnum((unsigned char)*key) || strchr("-._~/", *key))
			(void)fputc(*key, out);
		else
			(void)fprintf(out, "%%%02X", (unsigned char)*key);
}

/*
 * Return the URL of an object, which the caller frees: of AWS, the bucket is part of the host's name, unless it has dots,
 * which certificates do not cover; elsewhere it is the first part of the path.
 */
static char *url_of(const struct s3_account *a, const struct s3_place *p)
{
	char *url = NULL;
	size_t size, n;
	FILE *out = open_memstream(&url, &size);

	if (!out)
		return NULL;
	if (a->endpoint) {
		for (n = strlen(a->endpoint); n && a->endpoint[n - 1] == '/';)
			n--;
		(void)fprintf(out, "%.*s/%s/", (int)n, a->endpoint, p->bucket);
	} else if (strchr(p->bucket, '.')) {
		(void)fprintf(out, "https://s3.%s.amazonaws.com/%s/", a->region, p->bucket);
	} else {
		(void)fprintf(out, "https://%s.s3.%s.amazonaws.com/", p->bucket, a->region);
	}
	put_key(out, p->key);
	if (!fclose(out))
		return url;
	free(url);
	return NULL;
}

/* Hash a file of which size bytes are stored. -EBADMSG: it has become shorter. */
static int hash_file(int fd, uint64_t size, uint8_t digest[SHA256_DIGEST_SIZE])
{
	struct sha256_ctx h;
	char bytes[65536];
	int err = 0;

	sha256_init(&h);
	for (uint64_t at = 0; at < size && !err;) {
		size_t n = size - at < sizeof(bytes) ? (size_t)(size - at) : sizeof(bytes);

		err = io_read_at(fd, at, bytes, n);
		sha256_update(&h, n, (const uint8_t *)bytes);
		at += n;
	}
	sha256_digest(&h, SHA256_DIGEST_SIZE, digest);
	return err;
}

static int add_header(struct transfer *t, const char *name, const char *value)
{
	struct curl_slist *longer = NULL;
	char *text = NULL;

	if (asprintf(&text, "%s: %s", name, value) >= 0)
		longer = t->curl.append(t->headers, text);
	free(text);
	if (longer)
		t->headers = longer;
	return longer ? 0 : -ENOMEM;
}

static size_t give(char *out, size_t one, size_t n, void *ctx) /* for libcurl */
{
	const struct transfer *t = ctx;
	ssize_t size = read(t->fd, out, one * n);

	return size < 0 ? 0x10000000 /* CURL_READFUNC_ABORT */ : (size_t)size;
}

static size_t take(const char *bytes, size_t one, size_t n, void *ctx) /* for libcurl */
{
	struct transfer *t = ctx;
	size_t size = one * n, room = sizeof(t->said) - 1 - t->n_said;
	long status = 0;

	(void)t->curl.getinfo(t->easy, CURL_INFO_STATUS, &status);
	if (status == 200 && !t->puts) {
		t->written = true;
		t->write_err = io_write(t->fd, bytes, size);
		return t->write_err ? 0 : size;
	}
	if (room > size)
		room = size;
	memcpy(t->said + t->n_said, bytes, room);
	t->n_said += room;
	t->said[t->n_said] = '\0';
	return size;
}

/* Return 0, or -ENOTSUP after reporting that libcurl cannot sign: it would send the secret itself instead. */
static int set_options(struct transfer *t, const char *service)
{
	int (*set)(void *easy, int option, ...) = t->curl.setopt;
	const struct s3_account *a = t->account;
	void *easy = t->easy;

	t->curl.reset(easy);
	(void)set(easy, CURL_OPTION_URL, t->url);
	(void)set(easy, CURL_OPTION_PROTOCOLS, (long)(CURL_PROTOCOL_HTTP | CURL_PROTOCOL_HTTPS));
	if (curl_is_here(t->url))
		(void)set(easy, CURL_OPTION_PROXY, "");
	if (set(easy, CURL_OPTION_SIGN_AWS, service)) {
		log_error("libcurl is older than 7.75: it cannot sign requests for S3");
		return -ENOTSUP;
	}
	(void)set(easy, CURL_OPTION_USER, a->id);
	(void)set(easy, CURL_OPTION_PASSWORD, a->secret);
	if (a->ca_file)
		(void)set(easy, CURL_OPTION_CA_FILE, a->ca_file);
	if (t->puts) {
		(void)set(easy, CURL_OPTION_UPLOAD, 1L);
		(void)set(easy, CURL_OPTION_READ_FUNCTION, give);
		(void)set(easy, CURL_OPTION_READ_DATA, t);
		(void)set(easy, CURL_OPTION_UPLOAD_SIZE, (int64_t)t->size);
	}
	(void)set(easy, CURL_OPTION_HEADERS, t->headers);
	(void)set(easy, CURL_OPTION_WRITE_FUNCTION, take);
	(void)set(easy, CURL_OPTION_WRITE_DATA, t);
	(void)set(easy, CURL_OPTION_ERROR_TEXT, t->error);
	(void)set(easy, CURL_OPTION_NO_SIGNALS, 1L);
	(void)set(easy, CURL_OPTION_CONNECT_SECONDS, (long)CONNECT_SECONDS);
	(void)set(easy, CURL_OPTION_SLOW_BYTES, (long)SLOW_BYTES);
	(void)set(easy, CURL_OPTION_SLOW_SECONDS, (long)SLOW_SECONDS);
	return 0;
}

/*
 * Report what went wrong. Return a negative code; -EAGAIN: it is worth another attempt, and nothing is reported. What was
 * written of an object may be in a pipe already.
 */
static int report(const struct transfer *t, int rc, long status, bool last)
{
	char said[2 * SAID_MAX];
	bool again = !t->written && (rc || status == 429 || status >= 500);

	if (again && !last)
		return -EAGAIN;
	(void)sanitize_text(t->said, "", ' ', said, sizeof(said));
	if (t->write_err)
		log_error("writing: %s", strerror(-t->write_err));
	else if (rc)
		log_error("%s: %s", t->url, *t->error ? t->error : t->curl.error(rc));
	else
		log_error("%s: status %ld%s%s", t->url, status, *said ? ": " : "", said);
	return t->write_err ? t->write_err : status == 404 ? -ENOENT : -EIO;
}

static int try(struct transfer *t, bool last)
{
	char service[128];
	long status = 0;
	int rc, err;

	(void)snprintf(service, sizeof(service), "aws:amz:%s:s3", t->account->region);
	t->n_said = 0;
	t->said[0] = t->error[0] = '\0';
	err = set_options(t, service);
	if (err)
		return err;
	if (t->puts && lseek(t->fd, 0, SEEK_SET) < 0)
		return -errno;
	rc = t->curl.perform(t->easy);
	(void)t->curl.getinfo(t->easy, CURL_INFO_STATUS, &status);
	return !rc && status == 200 ? 0 : report(t, rc, status, last);
}

static int transfer(struct transfer *t, const struct s3_place *place, const char *hash)
{
	int err = curl_load(&t->curl);

	if (err)
		return err;
	t->url = url_of(t->account, place);
	if (!t->url || t->curl.global_init(CURL_GLOBAL_ALL) || !(t->easy = t->curl.init()))
		err = -ENOMEM;
	if (!err)
		err = add_header(t, "x-amz-content-sha256", hash);
	if (!err && t->account->token)
		err = add_header(t, "x-amz-security-token", t->account->token);
	if (err == -ENOMEM)
		log_error("%s", strerror(ENOMEM));
	for (unsigned int i = 0; !err; i++) {
		err = try(t, i + 1 == ATTEMPTS);
		if (err != -EAGAIN)
			break;
		log_debug("%s: another attempt in %u s", t->url, 1U << i);
		(void)nanosleep(&(struct timespec){ .tv_sec = 1 << i }, NULL);
		err = 0;
	}
	if (t->headers)
		t->curl.free_list(t->headers);
	if (t->easy)
		t->curl.cleanup(t->easy);
	free(t->url);
	return err;
}

int s3_put(const struct s3_account *account, const struct s3_place *to, int fd, uint64_t size)
{
	struct transfer t = { .account = account, .fd = fd, .puts = true, .size = size };
	uint8_t digest[SHA256_DIGEST_SIZE];
	char hash[2 * SHA256_DIGEST_SIZE + 1];
	int err = size > OBJECT_MAX ? -EFBIG : hash_file(fd, size, digest);

	if (err) {
		log_error("s3://%s/%s: %s", to->bucket, to->key,
			  err == -EFBIG ? "an object has at most 5 GiB" : strerror(-err));
		return err;
	}
	for (size_t i = 0; i < sizeof(digest); i++)
		(void)sprintf(hash + 2 * i, "%02x", digest[i]);
	return transfer(&t, to, hash);
}

int s3_get(const struct s3_account *account, const struct s3_place *from, int fd)
{
	/* The hash of nothing: the request has no body. */
	static const char none[] =
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
	struct transfer t = { .account = account, .fd = fd };

	return transfer(&t, from, none);
}
