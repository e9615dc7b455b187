/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token of a tenant that is a container. A CDI specification gives all containers the same
 * variables, so it cannot contain a token for each of them. So HB_TENANT=container means that all processes of the container form one
 * tenant, and each process makes the token from its mount namespace, which no two containers share.
 *
 * Other users can guess such a token. The daemon therefore also compares user and container (tenancy.h).
 */
#ifndef HB_PROTOCOL_CONTAINER_TOKEN_H
#define HB_PROTOCOL_CONTAINER_TOKEN_H

#include "protocol/protocol.h"

#include <stdbool.h>

/* Value of HB_TENANT in a container. */
#define HB_CONTAINER_TENANT "container"

/* Makes the token of the container in which this process runs. 0, or negative errno if there is no /proc. */
int hb_container_token(unsigned char token[HB_TOKEN_BYTES]);
/* Whether a container's process made the token. */
bool hb_token_is_of_container(const unsigned char token[HB_TOKEN_BYTES]);

#endif
