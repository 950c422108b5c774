/*
 * agent/runtime/versions/cpython.h: a row for each version of CPython: struct cpython_layout. The offsets are those of x86_64, as a
 * compiler says that has the headers of these versions; they are the same in all releases of a version.
 * tests/live/cpython.sh proves them with the versions that a machine has.
 */
/* clang-format off */
{ .version = 0x0308, .entry = CPYTHON_EACH, .current = 1368, .interpreters = 32, .threads = 8,
  .next_thread = 8, .thread_id = 176, .frame = 24, .cframe_frame = NONE,
  .f_code = 32, .f_previous = 24, .f_instr = 104, .f_owner = NONE, .f_entry = NONE, .lasti_unit = 1,
  .c_file = 104, .c_name = 112, .c_first_line = 40, .c_lines = 120, .c_code = NONE,
  .c_check = 104, .c_check_size = 24, .str_ascii = 48, .str_compact = 72, .str_kind_bit = 2 },
{ .version = 0x0309, .entry = CPYTHON_EACH, .current = 568, .interpreters = 32, .threads = 8,
  .next_thread = 8, .thread_id = 176, .frame = 24, .cframe_frame = NONE,
  .f_code = 32, .f_previous = 24, .f_instr = 104, .f_owner = NONE, .f_entry = NONE, .lasti_unit = 1,
  .c_file = 104, .c_name = 112, .c_first_line = 40, .c_lines = 120, .c_code = NONE,
  .c_check = 104, .c_check_size = 24, .str_ascii = 48, .str_compact = 72, .str_kind_bit = 2 },
{ .version = 0x030a, .entry = CPYTHON_EACH, .current = 568, .interpreters = 32, .threads = 8,
  .next_thread = 8, .thread_id = 176, .frame = 24, .cframe_frame = NONE,
  .f_code = 32, .f_previous = 24, .f_instr = 96, .f_owner = NONE, .f_entry = NONE, .lasti_unit = 2,
  .c_file = 104, .c_name = 112, .c_first_line = 40, .c_lines = 120, .c_code = NONE,
  .c_check = 104, .c_check_size = 24, .str_ascii = 48, .str_compact = 72, .str_kind_bit = 2 },
{ .version = 0x030b, .entry = CPYTHON_CFRAME, .current = 576, .interpreters = 40, .threads = 16,
  .next_thread = 8, .thread_id = 152, .frame = 56, .cframe_frame = 8,
  .f_code = 32, .f_previous = 48, .f_instr = 56, .f_owner = 69, .f_entry = 68,
  .c_file = 112, .c_name = 128, .c_first_line = 72, .c_lines = 136, .c_code = 184,
  .c_check = 112, .c_check_size = 32, .str_ascii = 48, .str_compact = 72, .str_kind_bit = 2 },
{ .version = 0x030c, .entry = CPYTHON_SHIM, .current = NONE, .interpreters = 40, .threads = 72,
  .next_thread = 8, .thread_id = 136, .frame = 56, .cframe_frame = 0,
  .f_code = 0, .f_previous = 8, .f_instr = 56, .f_owner = 70, .f_entry = NONE,
  .c_file = 112, .c_name = 128, .c_first_line = 68, .c_lines = 136, .c_code = 192,
  .c_check = 112, .c_check_size = 32, .str_ascii = 40, .str_compact = 56, .str_kind_bit = 2 },
/* The rest of these is in _Py_DebugOffsets. */
{ .version = 0x030d, .entry = CPYTHON_SHIM, .current = NONE, .cframe_frame = NONE, .f_entry = NONE,
  .str_kind_bit = 2 },
{ .version = 0x030e, .entry = CPYTHON_SHIM, .current = NONE, .cframe_frame = NONE, .f_entry = NONE,
  .str_kind_bit = 2, .code_tags = 3 },
{ .version = 0x030f, .entry = CPYTHON_SHIM, .current = NONE, .cframe_frame = NONE, .f_entry = NONE,
  .str_kind_bit = 2, .code_tags = 3 },
