# Finds the recorded cases beside the checkout, for tests that source this file: sets $corpus to the
# directory in which they are unpacked, once for all tests, or skips the test.
corpus_from=../shared/corpus/corpus.tar.zst
corpus=$BUILD/corpus
if [ ! -f "$corpus_from" ]; then
	echo "no recorded cases: $corpus_from is absent"
	exit 77
fi
(
	mkdir -p "$BUILD"
	flock 9
	[ "$corpus/.complete" -nt "$corpus_from" ] && exit
	rm -rf "$corpus"
	mkdir -p "$corpus"
	tar --zstd -xf "$corpus_from" -C "$corpus" && touch "$corpus/.complete"
) 9>"$BUILD/corpus.lock" || exit 1
