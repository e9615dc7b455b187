/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building messages of protobuf-c from parts that malloc() made, so that protobuf_c_message_free_unpacked() frees all of
 * them. Without memory these functions end the program with a message: the kubelet or the cluster starts it again, and
 * no tenant depends on it.
 */
#ifndef HB_K8S_MESSAGE_PARTS_H
#define HB_K8S_MESSAGE_PARTS_H

#include <stddef.h>

void *hb_part_new(size_t bytes); /* zeroed */
char *hb_part_text(const char *text);
/* Appends a part to a repeated field: `list` is the address of its array, `n` of its number. */
void hb_part_append(void *list, size_t *n, void *part);

#endif
