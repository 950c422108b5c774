/* agent/runtime/versions/php.h: a row for each version of PHP: what is its own of struct php_layout. */
/* clang-format off */
{ .minor = 2, .opcodes = 88, .n_opcodes = 80, .filename = 152, .line_start = 160, STRUCTURES },
{ .minor = 3, .opcodes = 80, .n_opcodes = 76, .filename = 144, .line_start = 152, STRUCTURES },
{ .minor = 4, .opcodes = 104, .n_opcodes = 96, .filename = 168, .line_start = 176, STRUCTURES },
