/*
 * agent/export/line_formats.h: writes one sample with its frames as text, TSV or JSON. The samples are
 * walked ones (sample_lines.c) or those of a profile (profile_lines.c).
 */
#ifndef AGENT_EXPORT_LINE_FORMATS_H
#define AGENT_EXPORT_LINE_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct uw_build_id;

/*
 * A frame, or a call that was inlined into the frame after it. Texts need not be sanitized, except
 * stepper, confidence and line_sample.stop.
 */
struct line_frame {
	const char *function;		    /* NULL or "": not known */
	const char *system_name;	    /* NULL: the same */
	const char *module;		    /* base name */
	const char *path;		    /* of the module; NULL: it is in none */
	const struct uw_build_id *build_id; /* NULL: see the next */
	const char *build_id_text;	    /* NULL or "": not known */
	const char *file;		    /* NULL or "": not known */
	int64_t line, start_line;	    /* 0: not known */
	uint64_t address;    /* to look up the symbol, in the module's own addresses */
	uint64_t rel_pc;     /* the pc in these addresses */
	uint64_t pc;	     /* run-time address, if known */
	uint64_t offset;     /* of the pc in the function */
	const char *stepper; /* NULL: not known, the samples are of a profile */
	const char *confidence;
	bool has_offset, inlined;
};

struct line_sample {	/* all zero: empty; the caller frees frames */
	const char *id; /* its name or number */
	const char *thread, *pid, *tid;
	const char *event, *value;
	const char *stop;    /* NULL or "": not known */
	const char *guessed; /* "1 by fp": how frames were guessed; NULL or "": none was */
	uint64_t time_ns;
	uint32_t cpu;
	bool with_source;	   /* text: each frame's source line behind it, if known */
	struct line_frame *frames; /* innermost first */
	size_t n, room;
};

/* Write a sample as perf script does; see export_text(). */
void line_text(FILE *out, const struct line_sample *sample);
/* Write the names of line_tsv()'s columns. */
void line_tsv_header(FILE *out);
/* Write one row for each frame; see export_tsv(). */
void line_tsv(FILE *out, const struct line_sample *sample);
/* Write the frames as the last member of a sample's object, and the object's and the line's end. */
void line_json_frames(FILE *out, const struct line_sample *sample);

#endif
