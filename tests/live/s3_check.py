#!/usr/bin/env python3
"""Checks the signatures of requests to S3, and passes those that hold on to a server that checks none of version 4 (s3rver).

usage: s3_check.py PORT SERVER-PORT ID SECRET

Written after AWS's description of Signature Version 4, apart from libcurl, which signs.
"""
import hashlib
import hmac
import http.client
import http.server
import re
import sys
import urllib.parse

port, server, key_id, secret = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def expected(method, path, headers, scope, names):
    """Return the signature that a request should have."""
    url = urllib.parse.urlsplit(path)
    uri = urllib.parse.quote(urllib.parse.unquote(url.path), safe="/-._~")
    lines = "".join(f"{n}:{' '.join(headers[n].split())}\n" for n in names)
    canonical = "\n".join([method, uri, url.query, lines, ";".join(names), headers["x-amz-content-sha256"]])
    date, region, service, last = scope.split("/")
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = sign(sign(sign(sign(("AWS4" + secret).encode(), date), region), service), last)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def fault(self, body):
        headers = {k.lower(): v for k, v in self.headers.items()}
        match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\S+/s3/aws4_request), *SignedHeaders=(\S+), *Signature=([0-9a-f]{64})",
                             headers.get("authorization", ""))
        if not match:
            return "AccessDenied"
        if match[1] != key_id:
            return "InvalidAccessKeyId"
        names = match[3].split(";")
        if "host" not in names or any(n.startswith("x-amz-") and n not in names for n in headers):
            return "AccessDenied: not all headers are signed"
        if headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            return "XAmzContentSHA256Mismatch"
        if match[4] != expected(self.command, self.path, headers, match[2], names):
            return "SignatureDoesNotMatch"
        return None

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        why = self.fault(body)
        if why:
            status, kind, reply = 403, "application/xml", f"<Error><Code>{why}</Code></Error>".encode()
        else:
            to = http.client.HTTPConnection("127.0.0.1", server)
            # s3rver wants the key to be its own.
            headers = {k: v.replace(f"Credential={key_id}/", "Credential=S3RVER/") for k, v in self.headers.items()}
            to.request(self.command, self.path, body, headers)
            got = to.getresponse()
            status, kind, reply = got.status, got.getheader("content-type", ""), got.read()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_PUT = answer

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
