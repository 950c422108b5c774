/* agent/runtime/versions/ruby.h: a row for each version of Ruby: what is its own of struct ruby_layout. */
/* clang-format off */
{ .minor = 1, .cf_size = 64, .first_line_size = 8, .info_table = 120, .info_n = 136,
  .info_index = 144, .class_ext = 24, .ext_ivars = 8, .ivars_start = 32, .ivars_entries = 48,
  .string_bytes = 16, .array_mask = 0x3, STRUCTURES },
{ .minor = 3, .cf_size = 56, .first_line_size = 4, .info_table = 112, .info_n = 128,
  .info_index = 136, .class_path = 152, .class_attached = 128, .class_flags = 149,
  .class_is_permanent = 1, .string_bytes = 24, .array_mask = 0x7f, STRUCTURES },
