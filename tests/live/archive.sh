#!/usr/bin/env bash
# Tests offwind archive: capture files go into S3 and come back as they were, and requests are signed as
# AWS says.
set -u
. tests/recorder.sh
. tests/wait.sh
for tool in node curl; do command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }; done
ldconfig -p | grep -q 'libcurl\(-gnutls\)\?\.so\.4' || { echo "needs libcurl"; exit 77; }
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
unset AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_SESSION_TOKEN AWS_CA_BUNDLE
export HOME=$dir/home AWS_ACCESS_KEY_ID=ARCHIVIST AWS_SECRET_ACCESS_KEY=se/cret+1
mkdir "$HOME" "$dir/buckets"
port=$(free_port) check_port=$(free_port)
node "$BUILD/npm/tests/node_modules/s3rver/bin/s3rver.js" -d "$dir/buckets" -a 127.0.0.1 -p $port --configure-bucket captures >"$dir/s3.log" 2>&1 & server=$!
answers() { curl -s -o /dev/null "http://127.0.0.1:$port/"; }
until_or_dead $server answers || fail "s3rver: $(cat "$dir/s3.log")"
# s3rver does not check these signatures.
python3 tests/live/s3_check.py $check_port $port "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" 2>"$dir/check.log" & check=$!
is_checked() { [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$check_port/")" = 403 ]; }
until_or_dead $check is_checked || fail "the checker: $(cat "$dir/check.log")"
export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$check_port
archive() { "$offwind" archive "$@" >"$dir/out" 2>"$dir/err"; }

echo "== a capture file there and back"
hot_program "$dir/main.c"
gcc -O1 -g -o "$dir/prog" "$dir/main.c" || exit 1
for seconds in 1 4 16; do # until there are samples, on a busy machine, too
	"$offwind" record -q --raw -o "$dir/bad hour+ü.owc" -F 199 -d $seconds -- "$dir/prog" 2>"$dir/log" || grep -q 'no samples' "$dir/log" || fail "recording: $(cat "$dir/log")"
	"$offwind" unwind -q -f folded "$dir/bad hour+ü.owc" 2>"$dir/log" | grep -q hot && break
done
cp "$dir/bad hour+ü.owc" "$dir/second.owc"
archive put "$dir/bad hour+ü.owc" "$dir/second.owc" s3://captures/web-1/ || fail "put: $(cat "$dir/err")"
archive get "s3://captures/web-1/bad hour+ü.owc" "$dir/back.owc" || fail "get: $(cat "$dir/err")"
cmp "$dir/bad hour+ü.owc" "$dir/back.owc" || fail "another file comes back"
mkdir "$dir/here" && (cd "$dir/here" && exec "$offwind" archive get -q s3://captures/web-1/second.owc) 2>"$dir/err" || fail "get without FILE: $(cat "$dir/err")"
cmp "$dir/second.owc" "$dir/here/second.owc" || fail "get without FILE"
"$offwind" archive get -q s3://captures/web-1/second.owc - | "$offwind" unwind -q -f folded -o "$dir/piped" - || fail "a pipe"
"$offwind" unwind -q -f folded -o "$dir/whole" "$dir/second.owc" && cmp "$dir/piped" "$dir/whole" && grep -q hot "$dir/whole" || fail "another profile comes out of the pipe"
archive put "$dir/prog" s3://captures/a/name && archive get s3://captures/a/name - || fail "a key of its own: $(cat "$dir/err")"
cmp "$dir/out" "$dir/prog" || fail "a key of its own"
: >"$dir/empty"
archive put "$dir/empty" s3://captures && archive get s3://captures/empty "$dir/empty.back" && [ -e "$dir/empty.back" ] && [ ! -s "$dir/empty.back" ] || fail "an empty file: $(cat "$dir/err")"

echo "== credentials in a file"
mkdir "$HOME/.aws"
printf '[default]\naws_access_key_id = NOBODY\naws_secret_access_key = none\n\n[lab]\naws_access_key_id = ARCHIVIST\naws_secret_access_key = se/cret+1\n' >"$HOME/.aws/credentials"
(unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; export AWS_PROFILE=lab AWS_REGION=eu-central-1; archive put "$dir/prog" s3://captures/lab) || fail "a profile: $(cat "$dir/err")"
(unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; archive put "$dir/prog" s3://captures/lab) && fail "nobody may write"
grep -q 'status 403.*InvalidAccessKeyId' "$dir/err" || fail "who may not write: $(cat "$dir/err")"
AWS_SESSION_TOKEN=tok/en archive put "$dir/prog" s3://captures/token || fail "a token: $(cat "$dir/err")"
rm "$HOME/.aws/credentials"
(unset AWS_ACCESS_KEY_ID; archive put "$dir/prog" s3://captures/lab) && fail "no credentials"
grep -q 'there are no credentials' "$dir/err" || fail "no credentials: $(cat "$dir/err")"

echo "== what is wrong is said, and leaves no file"
(export AWS_SECRET_ACCESS_KEY=wrong; archive put "$dir/prog" s3://captures/x) && fail "a wrong secret"
grep -q 'status 403.*SignatureDoesNotMatch' "$dir/err" || fail "a wrong secret: $(cat "$dir/err")"
archive get s3://captures/none "$dir/none" && fail "an object that is not there"
grep -q 'status 404.*NoSuchKey' "$dir/err" && [ ! -e "$dir/none" ] && [ -z "$(ls "$dir"/none* 2>/dev/null)" ] || fail "an object that is not there: $(cat "$dir/err")"
archive put "$dir/prog" s3://no-bucket/x && fail "a bucket that is not there"
for words in "" put "put a" "get s3://captures" "get s3://captures/a/" "get x" "put a b s3://captures/one" "put a s3://X/a" "put a http://x/y" "list s3://captures"; do
	"$offwind" archive $words >/dev/null 2>&1; [ $? = 2 ] || fail "archive $words"
done
# A libcurl that cannot sign would send the secret itself.
mkdir "$dir/old"
cat >"$dir/old/curl.c" <<'C'
int curl_global_init(long what) { return what != 3; }
void *curl_easy_init(void) { static int easy; return &easy; }
int curl_easy_setopt(void *easy, int option, ...) { (void)easy; return option == 10305 ? 48 : 0; } /* CURLE_UNKNOWN_OPTION */
int curl_easy_perform(void *easy) { (void)easy; __builtin_trap(); }
int curl_easy_getinfo(void *easy, int info, ...) { return !easy || !info; }
void curl_easy_reset(void *easy) { (void)easy; }
void curl_easy_cleanup(void *easy) { (void)easy; }
const char *curl_easy_strerror(int code) { return code ? "an error" : ""; }
void *curl_slist_append(void *list, const char *text) { return list ? list : (void *)text; }
void curl_slist_free_all(void *list) { (void)list; }
void *curl_url(void) { return 0; }
int curl_url_set(void) { return 1; }
int curl_url_get(void) { return 1; }
void curl_url_cleanup(void *url) { (void)url; }
void curl_free(void *text) { (void)text; }
C
gcc -shared -fPIC -o "$dir/old/libcurl-gnutls.so.4" "$dir/old/curl.c" || fail "an old libcurl"
LD_LIBRARY_PATH=$dir/old archive put "$dir/prog" s3://captures/x && fail "nothing was signed"
[ "$(cat "$dir/err")" = "offwind: libcurl is older than 7.75: it cannot sign requests for S3" ] || fail "an old libcurl: $(cat "$dir/err")"
archive put "$dir" s3://captures/x && fail "a directory"
archive put "$dir/no-file" s3://captures/x && fail "no file"
kill $check; wait $check 2>/dev/null
archive put -v "$dir/prog" s3://captures/x && fail "a server that is away"
[ "$(grep -c 'another attempt' "$dir/err")" = 3 ] || fail "attempts: $(cat "$dir/err")"
[ $failures = 0 ]
