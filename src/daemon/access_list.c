/* SPDX-License-Identifier: Apache-2.0 */
/* See access_list.h. The layout is that of the kernel's extended attribute (linux/posix_acl_xattr.h), little-endian. */
#include "daemon/access_list.h"

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <sys/xattr.h>

#define ATTRIBUTE "system.posix_acl_access"
#define NO_ID UINT32_MAX

enum { TAG_OWNER = 1, TAG_USER = 2, TAG_GROUP = 4, TAG_MASK = 0x10, TAG_OTHER = 0x20 };

struct access_entry {
	uint16_t tag, permissions;
	uint32_t id;
};

struct access_attribute {
	uint32_t version;
	struct access_entry entries[5];
};
_Static_assert(sizeof(struct access_attribute) == 44, "the attribute has no padding");

static struct access_entry make_entry(unsigned tag, unsigned permissions, uint32_t id)
{
	return (struct access_entry){htole16((uint16_t)tag), htole16((uint16_t)permissions), htole32(id)};
}

int hb_access_list_set(const char *path, mode_t mode, uid_t uid, unsigned permissions)
{
	unsigned group = mode >> 3 & 7;
	const struct access_attribute attribute = {
		.version = htole32(2),
		.entries = {make_entry(TAG_OWNER, mode >> 6 & 7, NO_ID), make_entry(TAG_USER, permissions, uid),
			    make_entry(TAG_GROUP, group, NO_ID), make_entry(TAG_MASK, group | permissions, NO_ID),
			    make_entry(TAG_OTHER, mode & 7, NO_ID)}};
	return setxattr(path, ATTRIBUTE, &attribute, sizeof attribute, 0) < 0 ? -errno : 0;
}
