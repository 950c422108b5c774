/* agent/runtime/versions/perl.h: a row for each version of Perl: what is its own of struct perl_layout. */
/* clang-format off */
{ .version = 36, .interpreter = 3768, .type_nextstate = 195, .type_dbstate = 196, STRUCTURES },
{ .version = 38, .interpreter = 3896, .type_nextstate = 198, .type_dbstate = 199, STRUCTURES },
{ .version = 40, .interpreter = 3768, .type_nextstate = 198, .type_dbstate = 199, STRUCTURES },
{ .version = 42, .interpreter = 3768, .type_nextstate = 202, .type_dbstate = 203, STRUCTURES },
