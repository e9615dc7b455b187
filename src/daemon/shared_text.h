/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text that is sent to several clients, and the limit on the time that the loop spends on such texts: a status is made
 * once for all who have asked since the last one, and the next one is made only when other work had its share of the time.
 */
#ifndef HB_DAEMON_SHARED_TEXT_H
#define HB_DAEMON_SHARED_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct hb_shared_text {
	uint32_t n_users; /* the text is freed with the last one */
	uint64_t number;  /* older texts have lower numbers */
	size_t length;
	char *text;
};

/* Takes over `text`, which comes from malloc, for one user. NULL: `text` is NULL, or no memory is left. */
struct hb_shared_text *hb_shared_text_new(char *text, size_t length);
/* Another user. Returns `shared`. */
struct hb_shared_text *hb_shared_text_use(struct hb_shared_text *shared);
/* The user needs it no longer. NULL is allowed. */
void hb_shared_text_drop(struct hb_shared_text *shared);

/* After work of t, the same kind of work rests for HB_LOOP_SHARE times t. */
#define HB_LOOP_SHARE 5

/* One kind of work in the loop. */
struct hb_loop_share {
	int64_t next_ns; /* when it may be done again */
};

/* The work was done from `begin_ns` to `end_ns`. */
static inline void hb_loop_share_spend(struct hb_loop_share *share, int64_t begin_ns, int64_t end_ns)
{
	int64_t from_ns = share->next_ns > end_ns ? share->next_ns : end_ns;
	share->next_ns = from_ns + HB_LOOP_SHARE * (end_ns - begin_ns);
}

#endif
