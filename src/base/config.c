/* SPDX-License-Identifier: Apache-2.0 */
/* Walks a YAML document beside a table of keys; see config.h. config_value.c parses scalars. */
#include "base/config.h"

#include "base/config_value.h"
#include "base/nearest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* Longest configuration. People write configurations by hand, so a longer file is the wrong file. */
#define FILE_MAX_BYTES (1 << 20)
#define PATH_MAX_BYTES 160
/* Most keys of one table that are searched for a similar key, for "did you mean". */
#define KEYS_MAX 64

struct config_reader {
	yaml_document_t document;
	const char *origin;
	struct hb_error *error;
};

/* The current place in the file, written as a user would write it: "tenants[2].slo". */
struct config_place {
	char text[PATH_MAX_BYTES];
};

static int read_node(struct config_reader *reader, const struct hb_config_key *key, yaml_node_t *node,
		     const struct config_place *place, char *base);
static int read_map(struct config_reader *reader, const struct hb_config_key *keys, yaml_node_t *node,
		    const struct config_place *place, char *base);

static struct config_place place_of_key(const struct config_place *parent, const char *name)
{
	struct config_place place;
	snprintf(place.text, sizeof place.text, "%.100s%s%.50s", parent->text, parent->text[0] ? "." : "", name);
	return place;
}

static struct config_place place_of_item(const struct config_place *parent, unsigned index)
{
	struct config_place place;
	snprintf(place.text, sizeof place.text, "%.140s[%u]", parent->text, index);
	return place;
}

static int fail_at_node(const struct config_reader *reader, const yaml_node_t *node, const struct config_place *place,
			const char *what)
{
	return hb_error_set(reader->error, -EINVAL, "%s:%zu: %s%s%s", reader->origin, node->start_mark.line + 1,
			    place->text, place->text[0] ? ": " : "", what);
}

static int fail_unknown(const struct config_reader *reader, const yaml_node_t *node, const struct config_place *place,
			const struct hb_config_key *keys, const char *name)
{
	char what[256];
	const char *words[KEYS_MAX];
	size_t n = 0;
	for (; keys->name && n < KEYS_MAX; keys++)
		words[n++] = keys->name;
	const char *nearest = hb_nearest(name, words, n);
	snprintf(what, sizeof what, "unknown key%s%s%s", nearest ? "; did you mean '" : "", nearest ? nearest : "",
		 nearest ? "'?" : "");
	struct config_place full = place_of_key(place, name);
	return fail_at_node(reader, node, &full, what);
}

static int read_scalar(struct config_reader *reader, const struct hb_config_key *key, yaml_node_t *node,
		       const struct config_place *place, char *field)
{
	const char *text = (const char *)node->data.scalar.value;
	bool quoted = node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	struct hb_error detail;

	if (!quoted && (!*text || !strcmp(text, "~") || !strcmp(text, "null")))
		return fail_at_node(reader, node, place, "has no value");
	if (strlen(text) != node->data.scalar.length)
		return fail_at_node(reader, node, place, "contains a zero byte");
	if (hb_config_value_store(key, text, quoted, field, &detail))
		return fail_at_node(reader, node, place, detail.text);
	return 0;
}

static int read_list(struct config_reader *reader, const struct hb_config_key *key, yaml_node_t *node,
		     const struct config_place *place, char *base)
{
	size_t n = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
	if (n > key->capacity) {
		char what[80];
		snprintf(what, sizeof what, "has %zu entries, at most %u fit", n, key->capacity);
		return fail_at_node(reader, node, place, what);
	}
	for (unsigned i = 0; i < n; i++) {
		struct config_place item = place_of_item(place, i);
		yaml_node_t *child = yaml_document_get_node(&reader->document, node->data.sequence.items.start[i]);
		char *element = base + key->offset + i * key->size;
		bool scalars = key->keys->name && !*key->keys->name;
		int rc = scalars ? read_node(reader, key->keys, child, &item, element)
				 : read_map(reader, key->keys, child, &item, element);
		if (rc)
			return rc;
	}
	*(uint32_t *)(void *)(base + key->count_offset) = (uint32_t)n;
	return 0;
}

static int read_node(struct config_reader *reader, const struct hb_config_key *key, yaml_node_t *node,
		     const struct config_place *place, char *base)
{
	bool wants_list = key->type == HB_CONFIG_TYPE_LIST;
	if (key->type == HB_CONFIG_TYPE_MAP)
		return read_map(reader, key->keys, node, place, base + key->offset);
	if (wants_list && node->type == YAML_SEQUENCE_NODE)
		return read_list(reader, key, node, place, base);
	if (node->type == YAML_SCALAR_NODE)
		return read_scalar(reader, key, node, place, base + key->offset);
	return fail_at_node(reader, node, place, wants_list ? "must be a list" : "must be a single value");
}

static const struct hb_config_key *find_key(const struct hb_config_key *keys, const char *name)
{
	while (keys->name && strcmp(keys->name, name))
		keys++;
	return keys->name ? keys : NULL;
}

static bool is_key_repeated(struct config_reader *reader, const yaml_node_t *map, const yaml_node_pair_t *pair,
			    const char *name)
{
	for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < pair; p++) {
		const yaml_node_t *node = yaml_document_get_node(&reader->document, p->key);
		if (node->type == YAML_SCALAR_NODE && !strcmp((const char *)node->data.scalar.value, name))
			return true;
	}
	return false;
}

static int read_pair(struct config_reader *reader, const struct hb_config_key *keys, yaml_node_t *map,
		     const yaml_node_pair_t *pair, const struct config_place *place, char *base)
{
	yaml_node_t *name_node = yaml_document_get_node(&reader->document, pair->key);
	if (name_node->type != YAML_SCALAR_NODE)
		return fail_at_node(reader, name_node, place, "a key must be a single word");
	const char *name = (const char *)name_node->data.scalar.value;
	const struct hb_config_key *key = *name ? find_key(keys, name) : NULL;
	if (!key)
		return fail_unknown(reader, name_node, place, keys, name);
	struct config_place full = place_of_key(place, name);
	if (is_key_repeated(reader, map, pair, name))
		return fail_at_node(reader, name_node, &full, "given twice");
	return read_node(reader, key, yaml_document_get_node(&reader->document, pair->value), &full, base);
}

static int check_required(struct config_reader *reader, const struct hb_config_key *keys, yaml_node_t *map,
			  const struct config_place *place)
{
	for (; keys->name; keys++) {
		if (!keys->required || is_key_repeated(reader, map, map->data.mapping.pairs.top, keys->name))
			continue;
		struct config_place full = place_of_key(place, keys->name);
		return fail_at_node(reader, map, &full, "is required");
	}
	return 0;
}

static int read_map(struct config_reader *reader, const struct hb_config_key *keys, yaml_node_t *node,
		    const struct config_place *place, char *base)
{
	if (node->type != YAML_MAPPING_NODE)
		return fail_at_node(reader, node, place, "must be a map of keys (key: value)");
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		int rc = read_pair(reader, keys, node, p, place, base);
		if (rc)
			return rc;
	}
	return check_required(reader, keys, node, place);
}

static int fail_syntax(const yaml_parser_t *parser, const char *origin, struct hb_error *error)
{
	/* Without memory for the document itself, libyaml sets no error. */
	if (parser->error == YAML_MEMORY_ERROR || parser->error == YAML_NO_ERROR)
		return hb_error_set(error, -ENOMEM, "%s: out of memory", origin);
	return hb_error_set(error, -EINVAL, "%s:%zu: not valid YAML: %s", origin, parser->problem_mark.line + 1,
			    parser->problem ? parser->problem : "syntax error");
}

/*
 * Refuses anchors, aliases and tags before a document is composed: an alias
 * would let one line stand for a million, and a tag for another type.
 */
static int check_events(const char *text, size_t length, const char *origin, struct hb_error *error)
{
	yaml_parser_t parser;
	yaml_event_t event;
	int documents = 0, rc = 0;
	bool end = false;

	if (!yaml_parser_initialize(&parser))
		return hb_error_set(error, -ENOMEM, "%s: out of memory", origin);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
	while (!rc && !end) {
		if (!yaml_parser_parse(&parser, &event)) {
			rc = fail_syntax(&parser, origin, error);
			break;
		}
		const char *bad = NULL;
		if (event.type == YAML_ALIAS_EVENT || (event.type == YAML_SCALAR_EVENT && event.data.scalar.anchor) ||
		    (event.type == YAML_MAPPING_START_EVENT && event.data.mapping_start.anchor) ||
		    (event.type == YAML_SEQUENCE_START_EVENT && event.data.sequence_start.anchor))
			bad = "anchors and aliases are not supported; write the value out";
		else if (event.type == YAML_DOCUMENT_START_EVENT && documents++)
			bad = "a second document begins here; keep one";
		if (bad)
			rc = hb_error_set(error, -EINVAL, "%s:%zu: %s", origin, event.start_mark.line + 1, bad);
		end = event.type == YAML_STREAM_END_EVENT;
		yaml_event_delete(&event);
	}
	yaml_parser_delete(&parser);
	return rc;
}

static int read_document(struct config_reader *reader, const struct hb_config_key *keys, void *config, size_t size)
{
	yaml_node_t *root = yaml_document_get_root_node(&reader->document);
	struct config_place top = {""};
	yaml_node_t empty = {.type = YAML_MAPPING_NODE};
	void *copy = malloc(size);
	if (!copy)
		return hb_error_set(reader->error, -ENOMEM, "%s: out of memory", reader->origin);
	memcpy(copy, config, size);
	int rc = read_map(reader, keys, root ? root : &empty, &top, copy);
	if (!rc)
		memcpy(config, copy, size);
	free(copy);
	return rc;
}

int hb_config_parse(const char *text, size_t length, const char *origin, const struct hb_config_key *keys, void *config,
		    size_t size, struct hb_error *error)
{
	struct config_reader reader = {.origin = origin, .error = error};
	yaml_parser_t parser;
	int rc = check_events(text, length, origin, error);
	if (rc)
		return rc;
	if (!yaml_parser_initialize(&parser))
		return hb_error_set(error, -ENOMEM, "%s: out of memory", origin);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
	if (yaml_parser_load(&parser, &reader.document)) {
		rc = read_document(&reader, keys, config, size);
		yaml_document_delete(&reader.document);
	} else {
		rc = fail_syntax(&parser, origin, error);
	}
	yaml_parser_delete(&parser);
	return rc;
}

int hb_config_load(const char *path, const struct hb_config_key *keys, void *config, size_t size,
		   struct hb_error *error)
{
	FILE *in = fopen(path, "re");
	if (!in)
		return hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	char *text = malloc(FILE_MAX_BYTES + 1);
	size_t length = text ? fread(text, 1, FILE_MAX_BYTES + 1, in) : 0;
	int rc;
	if (!text)
		rc = hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	else if (ferror(in))
		rc = hb_error_set(error, -EIO, "%s: cannot read: %s", path, strerror(errno));
	else if (length > FILE_MAX_BYTES)
		rc = hb_error_set(error, -EINVAL, "%s: longer than 1 MiB; this is not a configuration file", path);
	else
		rc = hb_config_parse(text, length, path, keys, config, size, error);
	fclose(in);
	free(text);
	return rc;
}
