/*
 * agent/runtime/versions/cpython_offsets.h: a row for each version of CPython that has _Py_DebugOffsets: which of its numbers,
 * behind its first three words, an offset is (struct numbers).
 */
/* clang-format off */
{ .version = 0x030d, .interpreters = 2, .threads = 6, .next_thread = 18, .frame = 20, .thread_id = 21,
  .f_previous = 26, .f_code = 27, .f_instr = 28, .f_owner = 30,
  .c_file = 32, .c_name = 34, .c_lines = 35, .c_first_line = 36, .c_code = 40,
  .str_ascii = 67 },
{ .version = 0x030e, .interpreters = 2, .threads = 6, .next_thread = 21, .frame = 23, .thread_id = 24,
  .f_previous = 29, .f_code = 30, .f_instr = 31, .f_owner = 33,
  .c_file = 37, .c_name = 39, .c_lines = 40, .c_first_line = 41, .c_code = 45,
  .str_ascii = 77 },
{ .version = 0x030f, .interpreters = 2, .threads = 6, .next_thread = 21, .frame = 23, .thread_id = 27,
  .f_previous = 37, .f_code = 38, .f_instr = 39, .f_owner = 41,
  .c_file = 45, .c_name = 47, .c_lines = 48, .c_first_line = 49, .c_code = 53,
  .str_ascii = 89 },
