/*
 * agent/runtime/versions/go.h: where a goroutine has its labels: the second number of the version, the offset in struct g (0: not
 * known), whether they are a list. A row is valid up to the next one.
 */
/* clang-format off */
{ 17, 360, false },
{ 21, 344, false },
{ 23, 352, false },
{ 24, 352, true },
{ 25, 0, true },
