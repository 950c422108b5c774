#!/bin/bash
# Asks the daemon in this container: succeeds if the reply has status 200.  The image has no other HTTP client.
#   usage: probe.sh PATH [PORT]
exec 3<>"/dev/tcp/127.0.0.1/${2:-7227}" || exit 1
printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$1" >&3
read -r -t 10 _ status _ <&3
[ "$status" = 200 ]
