/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one reader of YAML configuration files. A caller describes its file as a
 * table of keys, each with a type, bounds and an offset into the caller's
 * struct; the struct's values before the call are the defaults. Everything
 * else is an error with file, line and key: unknown key (with the nearest known
 * one), duplicate key, wrong type, out of range, missing required key, text too
 * long for its field. Anchors and tags are not part of the format.
 *
 *	struct tenant { char name[32]; int64_t slo_ns; bool high; };
 *	static const struct hb_config_key tenant_keys[] = {
 *		HB_CONFIG_TEXT(struct tenant, name, "name", .required = true),
 *		HB_CONFIG_DURATION(struct tenant, slo_ns, "slo", .min = 1000, .max = INT64_MAX),
 *		HB_CONFIG_BOOL(struct tenant, high, "high"),
 *		HB_CONFIG_END
 *	};
 */
#ifndef HB_BASE_CONFIG_H
#define HB_BASE_CONFIG_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hb_config_type {
	HB_CONFIG_TYPE_TEXT,     /* char[size] */
	HB_CONFIG_TYPE_BOOL,     /* bool: true or false */
	HB_CONFIG_TYPE_INT,      /* int64_t within min..max */
	HB_CONFIG_TYPE_REAL,     /* double within real_min..real_max, finite */
	HB_CONFIG_TYPE_DURATION, /* int64_t ns within min..max: 10ms */
	HB_CONFIG_TYPE_BYTES,    /* uint64_t within min..max: 8GiB */
	HB_CONFIG_TYPE_CHOICE,   /* int: index into choices */
	HB_CONFIG_TYPE_MAP,      /* nested struct, described by keys */
	HB_CONFIG_TYPE_LIST,     /* array of at most capacity elements of `size` bytes, and a uint32_t count */
};

struct hb_config_key {
	const char *name; /* NULL ends a table */
	enum hb_config_type type;
	size_t offset; /* offset of the field in the struct; in the table of a list's element: within the element */
	size_t size;   /* bytes: of the array (text), of one element (list) */
	bool required;
	bool memory;      /* bytes: 0 or at least 1 MiB, as hb_memory_parse() accepts */
	int64_t min, max; /* bounds; if both are 0, the type's own range (not negative for durations and bytes) */
	double real_min, real_max;  /* bounds; if both are 0, any finite number */
	const char *const *choices; /* choice: the accepted words, NULL-terminated */
	/*
	 * text: checks the value. Returns 0, or a negative errno with *why if the text is not accepted; NULL accepts
	 * any text.
	 */
	int (*check)(const char *text, struct hb_error *why);
	/*
	 * map: its keys. list: the description of an element; either keys of a map, or one
	 * key whose name is "" for a list of scalars.
	 */
	const struct hb_config_key *keys;
	size_t count_offset; /* list: offset of the uint32_t count */
	uint32_t capacity;   /* list */
};

/* Rows of a table; what follows the name are further members: `.required = true, .min = 1, .max = 9`. */
#define HB_CONFIG_FIELD(kind, type_, field, name_, ...) \
	{ \
		.name = name_, .type = kind, .offset = offsetof(type_, field), .size = sizeof(((type_ *)0)->field), \
		__VA_ARGS__ \
	}
#define HB_CONFIG_TEXT(type_, field, name_, ...) HB_CONFIG_FIELD(HB_CONFIG_TYPE_TEXT, type_, field, name_, __VA_ARGS__)
#define HB_CONFIG_BOOL(type_, field, name_, ...) HB_CONFIG_FIELD(HB_CONFIG_TYPE_BOOL, type_, field, name_, __VA_ARGS__)
#define HB_CONFIG_INT(type_, field, name_, ...) HB_CONFIG_FIELD(HB_CONFIG_TYPE_INT, type_, field, name_, __VA_ARGS__)
#define HB_CONFIG_REAL(type_, field, name_, ...) HB_CONFIG_FIELD(HB_CONFIG_TYPE_REAL, type_, field, name_, __VA_ARGS__)
#define HB_CONFIG_DURATION(type_, field, name_, ...) \
	HB_CONFIG_FIELD(HB_CONFIG_TYPE_DURATION, type_, field, name_, __VA_ARGS__)
#define HB_CONFIG_BYTES(type_, field, name_, ...) \
	HB_CONFIG_FIELD(HB_CONFIG_TYPE_BYTES, type_, field, name_, __VA_ARGS__)
#define HB_CONFIG_CHOICE(type_, field, name_, ...) \
	HB_CONFIG_FIELD(HB_CONFIG_TYPE_CHOICE, type_, field, name_, __VA_ARGS__)
#define HB_CONFIG_MAP(type_, field, name_, ...) HB_CONFIG_FIELD(HB_CONFIG_TYPE_MAP, type_, field, name_, __VA_ARGS__)
#define HB_CONFIG_LIST(type_, field, count, name_, ...) \
	{ \
		.name = name_, .type = HB_CONFIG_TYPE_LIST, .offset = offsetof(type_, field), \
		.size = sizeof(((type_ *)0)->field[0]), .count_offset = offsetof(type_, count), \
		.capacity = sizeof(((type_ *)0)->field) / sizeof(((type_ *)0)->field[0]), __VA_ARGS__ \
	}
#define HB_CONFIG_END \
	{ \
		.name = NULL \
	}

/*
 * Reads `path` into *config (size bytes, holding the defaults). Returns 0, -EINVAL
 * ("FILE:LINE: key: what"), -errno of opening, -ENOMEM. *config is unchanged on error.
 */
int hb_config_load(const char *path, const struct hb_config_key *keys, void *config, size_t size,
		   struct hb_error *error);
/* Reads a configuration from memory, as hb_config_load() does; `origin` stands for the file name in errors. */
int hb_config_parse(const char *text, size_t length, const char *origin, const struct hb_config_key *keys, void *config,
		    size_t size, struct hb_error *error);

#endif
