/* agent/http/curl.h: libcurl, which is loaded when it is needed. */
#ifndef AGENT_HTTP_CURL_H
#define AGENT_HTTP_CURL_H

#include <stdbool.h>

/*
 * Of curl/curl.h, whose numbers never change. Its packages exclude one another, one for each TLS library,
 * so that none can be required.
 */
enum {
	CURL_OPTION_URL = 10002,
	CURL_OPTION_PROXY = 10004,
	CURL_OPTION_READ_DATA = 10009,
	CURL_OPTION_READ_FUNCTION = 20012,
	CURL_OPTION_WRITE_FUNCTION = 20011,
	CURL_OPTION_WRITE_DATA = 10001,
	CURL_OPTION_ERROR_TEXT = 10010,
	CURL_OPTION_BODY = 10015,
	CURL_OPTION_HEADERS = 10023,
	CURL_OPTION_HEADER_DATA = 10029,
	CURL_OPTION_CUSTOM_METHOD = 10036,
	CURL_OPTION_UPLOAD = 46,
	CURL_OPTION_BODY_SIZE = 30120,
	CURL_OPTION_UPLOAD_SIZE = 30115,
	CURL_OPTION_CA_FILE = 10065,
	CURL_OPTION_CLOSE_AFTER = 75, /* the connection is not used again */
	CURL_OPTION_CONNECT_SECONDS = 78,
	CURL_OPTION_SECONDS = 13,
	CURL_OPTION_HTTP_VERSION = 84,
	CURL_OPTION_NO_SIGNALS = 99,
	CURL_OPTION_HEADER_FUNCTION = 20079,
	CURL_OPTION_PROTOCOLS = 181, /* a set of CURL_PROTOCOL_ */
	CURL_OPTION_SLOW_BYTES = 19, /* a second; slower ones are ended after */
	CURL_OPTION_SLOW_SECONDS = 20,
	CURL_OPTION_USER = 10173,
	CURL_OPTION_PASSWORD = 10174,
	CURL_OPTION_SIGN_AWS = 10305, /* "aws:amz:REGION:s3", since 7.75 */
	CURL_OPTION_UNIX_SOCKET = 10231,
	CURL_PROTOCOL_HTTP = 1,
	CURL_PROTOCOL_HTTPS = 2,
	CURL_HTTP_2_TLS = 4, /* of CURL_OPTION_HTTP_VERSION */
	CURL_HTTP_2_AT_ONCE = 5,
	CURL_INFO_STATUS = 0x200002,
	CURL_ERROR_TEXT = 256,
	CURL_CANNOT_RESOLVE = 6,
	CURL_CANNOT_CONNECT = 7,
	CURL_TIMED_OUT = 28,
	CURL_TLS_FAILED = 35,
	CURL_CERTIFICATE_REFUSED = 60,
	CURL_NO_CA_FILE = 77,
	CURL_GLOBAL_ALL = 3,
	CURL_URL_ALL = 0, /* the parts of a URL */
	CURL_URL_PORT = 6,
	CURL_URL_DEFAULT_PORT = 1 << 0, /* how to read one */
	CURL_URL_ANY_SCHEME = 1 << 3,
	CURL_URL_GUESS_SCHEME = 1 << 9,
};

struct curl_slist;

struct curl {
	void *handle;
	int (*global_init)(long what);
	void *(*init)(void);
	int (*setopt)(void *easy, int option, ...);
	int (*perform)(void *easy);
	int (*getinfo)(void *easy, int info, ...);
	void (*reset)(void *easy);
	void (*cleanup)(void *easy);
	const char *(*error)(int code);
	struct curl_slist *(*append)(struct curl_slist *list, const char *text);
	void (*free_list)(struct curl_slist *list);
	void *(*url)(void);
	int (*url_set)(void *url, int part, const char *text, unsigned int how);
	int (*url_get)(const void *url, int part, char **text, unsigned int how);
	void (*url_free)(void *url);
	void (*free)(void *text);
};

/* Load the library. Return 0, or -ENOENT after reporting that it is not installed. */
int curl_load(struct curl *out);

/* Return whether a URL names this machine, which no proxy is asked for. */
bool curl_is_here(const char *url);

enum { CURL_SHOWN = 512 };

/* Write a URL, or several that commas separate, as messages have it: without a user and a password. Return out. */
const char *curl_shown(const char *url, char out[CURL_SHOWN]);

#endif
