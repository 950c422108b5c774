#!/usr/bin/env bash
# Tests the live source with processes whose registers, stacks and mappings are known.
set -u
go=$BUILD/tests/live/goroutine
if command -v go >/dev/null; then
	GO111MODULE=off GOFLAGS= GOCACHE=$PWD/$BUILD/go-cache go build -o "$go" tests/live/goroutine.go || exit 1
else
	go=
fi
exec "$BUILD/tests/live/source" "$BUILD/tests/live/target" $go
