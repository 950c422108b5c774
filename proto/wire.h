/*
 * proto/wire.h: the wire format of protobuf (protobuf.dev/programming-guides/encoding) and the
 * field numbers of profile.proto; internal to the encoder of pprof (pprof.c, pprof_write.c).
 */
#ifndef PROTO_WIRE_H
#define PROTO_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum { WIRE_VARINT = 0, WIRE_LEN = 2 };
enum { WIRE_VARINT_MAX = 10 };

/* Field numbers of profile.proto. */
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE,
	PROFILE_MAPPING,
	PROFILE_LOCATION,
	PROFILE_FUNCTION,
	PROFILE_STRING_TABLE,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS,
	PROFILE_PERIOD_TYPE,
	PROFILE_PERIOD,
	PROFILE_COMMENT,
	PROFILE_DEFAULT_SAMPLE_TYPE
};
enum { VALUE_TYPE_TYPE = 1, VALUE_TYPE_UNIT };
enum { SAMPLE_LOCATION_ID = 1, SAMPLE_VALUE, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_STR, LABEL_NUM, LABEL_NUM_UNIT };
enum {
	MAPPING_ID = 1,
	MAPPING_MEMORY_START,
	MAPPING_MEMORY_LIMIT,
	MAPPING_FILE_OFFSET,
	MAPPING_FILENAME,
	MAPPING_BUILD_ID,
	MAPPING_HAS_FUNCTIONS,
	MAPPING_HAS_FILENAMES,
	MAPPING_HAS_LINE_NUMBERS,
	MAPPING_HAS_INLINE_FRAMES
};
enum { LOCATION_ID = 1, LOCATION_MAPPING_ID, LOCATION_ADDRESS, LOCATION_LINE, LOCATION_IS_FOLDED };
enum { LINE_FUNCTION_ID = 1, LINE_LINE };
enum {
	FUNCTION_ID = 1,
	FUNCTION_NAME,
	FUNCTION_SYSTEM_NAME,
	FUNCTION_FILENAME,
	FUNCTION_START_LINE
};

/* Size limit of a message that has only numbers. The largest is a mapping. */
enum { WIRE_SMALL_MAX = 10 * (1 + WIRE_VARINT_MAX) };

static inline size_t wire_varint_size(uint64_t value)
{
	return (size_t)(70 - __builtin_clzll(value | 1)) / 7;
}

static inline uint8_t *wire_put_varint(uint8_t *at, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*at++ = (uint8_t)(value | 0x80);
	*at++ = (uint8_t)value;
	return at;
}

/* Write a field's tag. Fields up to 15 have a tag of one byte. */
static inline uint8_t *wire_put_tag(uint8_t *at, unsigned int field, unsigned int type)
{
	*at++ = (uint8_t)(field << 3 | type);
	return at;
}

/* Return the size of a number field with its tag; zero is not written. */
static inline size_t wire_number_size(uint64_t value)
{
	return value ? 1 + wire_varint_size(value) : 0;
}

/* Write a number field. Zero is left out, because it is the default value for readers. */
static inline uint8_t *wire_put_number(uint8_t *at, unsigned int field, uint64_t value)
{
	return value ? wire_put_varint(wire_put_tag(at, field, WIRE_VARINT), value) : at;
}

/* Return the size of a packed field of n bytes with its header; an empty field is left out. */
static inline size_t wire_packed_size(size_t n)
{
	return n ? 1 + wire_varint_size(n) + n : 0;
}

/* Write the header of a packed field of n bytes. */
static inline uint8_t *wire_put_packed(uint8_t *at, unsigned int field, size_t n)
{
	return n ? wire_put_varint(wire_put_tag(at, field, WIRE_LEN), n) : at;
}

#endif
