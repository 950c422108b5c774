#!/usr/bin/env bash
# The live source against processes whose registers, stacks and mappings are known.
exec "$BUILD/tests/live/source" "$BUILD/tests/live/target"
