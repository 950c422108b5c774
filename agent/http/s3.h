/*
 * agent/http/s3.h: stores files as objects of S3 or of what speaks like it, and gets them back, with libcurl, which signs
 * the requests (AWS Signature Version 4).
 */
#ifndef AGENT_HTTP_S3_H
#define AGENT_HTTP_S3_H

#include <stdint.h>

struct s3_place {
	char *bucket, *key; /* owned */
};

/* Take "s3://BUCKET/KEY" apart; the key may be "". -EINVAL after reporting what is wrong, or -ENOMEM. */
int s3_place_parse(const char *url, struct s3_place *out);
void s3_place_fini(struct s3_place *place);

struct s3_account {	/* all owned */
	char *endpoint; /* "https://minio.example:9000"; NULL: that of AWS in the region */
	char *region, *id, *secret;
	char *token;   /* NULL: none */
	char *ca_file; /* NULL: the system's certificates */
};

/*
 * Read what AWS's own programs read: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or else the section
 * AWS_PROFILE of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials); AWS_REGION, AWS_DEFAULT_REGION,
 * AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_CA_BUNDLE. endpoint NULL: it is not given. A negative code after reporting
 * what is wrong.
 */
int s3_account_read(struct s3_account *out, const char *endpoint);
void s3_account_fini(struct s3_account *account);

/* Store a file of size bytes, which is read from its beginning. Errors are reported. */
int s3_put(const struct s3_account *account, const struct s3_place *to, int fd, uint64_t size);
/* Write an object to a file or a pipe. Errors are reported; then a part of it may be written. */
int s3_get(const struct s3_account *account, const struct s3_place *from, int fd);

#endif
