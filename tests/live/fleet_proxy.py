#!/usr/bin/env python3
# A proxy before a ClickHouse server that disturbs: each fourth INSERT is sent twice, of each fifth the reply is lost, each 23rd gets a page to
# log in, and the server has nothing of it; and the eighth one of all is answered when its sender does not wait any more. The log has a line for each fault, and for each INSERT of stacks.
#   usage: fleet_proxy.py PORT SERVER-PORT LOG
import http.client
import http.server
import sys
import threading
import time

port, server_port, log = int(sys.argv[1]), int(sys.argv[2]), open(sys.argv[3], "a", buffering=1)
lock, count = threading.Lock(), 0


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def forward(self, body):
        server = http.client.HTTPConnection("127.0.0.1", server_port, timeout=30)
        server.request("POST", self.path, body, {k: v for k, v in self.headers.items() if k.lower() in ("content-type", "content-encoding")})
        reply = server.getresponse()
        return reply.status, reply.read()

    def do_POST(self):
        global count
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with lock:
            number = count = count + ("INSERT" in self.path)
        insert = "INSERT" in self.path
        if "INTO%20stacks%20" in self.path:
            log.write("stacks\n")
        if insert and number % 23 == 0:
            log.write("page\n")
            return self.reply(200, b"<html>log in</html>")
        try:
            if insert and number % 4 == 0:
                log.write("twice\n")
                self.forward(body)
            status, text = self.forward(body)
        except OSError:
            self.close_connection = True
            return
        if insert and number % 5 == 0:
            log.write("lost\n")
            self.close_connection = True
            return
        if insert and number == 8:
            log.write("hangs\n")
            time.sleep(15)
        self.reply(status, text)

    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # a sender that was killed


Server(("127.0.0.1", port), Proxy).serve_forever()
