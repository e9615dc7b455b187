/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether LP may delay the tokens of a service now, so that their mean time stays within an SLO. Pure; fixed memory; one
 * caller at a time.
 *
 * The user of a language model sees the mean time per token (token_pace.h). With an SLO of D each token may take 15/16 D.
 * If it takes less, the difference is added to the credit, up to D (temporal engine) or 3 D (spatial engine). If it takes
 * more, the difference is subtracted, down to -16 D. The time of a token counts from the end of the one before, if it
 * begins within HB_PACE_GAP_NS of that.
 *
 * The credit is open from the moment when it exceeds 3/4 D until it is D / 2 or less. D / 2 stays as a margin for steps
 * that are long without LP.
 *
 *	credit            temporal engine               spatial engine
 *	open              LP has slices (slo_slices.h)  LP is not limited
 *	closed            LP has its smallest slices    LP is limited as beside other requests; the next token may
 *	                                                take hb_token_credit_most_ns()
 *	below -2 D        the same                      LP waits
 *
 * Temporal engine. Let T be the time of the longest token beside LP, and let tokens
 * take less than 15/16 D without LP. LP begins with a credit of at most D and stops after the first token that leaves D / 2
 * or less. So n tokens after each other take at most
 *
 *	n 15/16 D + D / 2 + (T - 15/16 D)
 *
 * For 16 tokens that is at most 16 D if T is at most 23/16 D, for 32 tokens if T is at most 39/16 D. If the caller learns of
 * a token late, what later tokens take above 15/16 D comes on top. Steps that take more than 15/16 D without LP are not
 * covered by this bound.
 *
 * Example. D = 8 ms, so a token may take 7.5 ms. Tokens take 3 ms alone: after two of them the credit is 8 ms, the most
 * that there may be, so LP may delay the next ones. They are eager and wait for LP in several gaps, so beside LP they take
 * 9.5 ms: after two of these the credit is 4 ms (8 - 2 - 2), and LP stops for one token, which brings it back to 8 ms. So LP
 * delays two tokens of three.
 *
 * Spatial engine. LP continues with limits when the credit closes, and waits below -2 D. Tokens that begin with a credit of
 * 3 D and end with one of -2 D took 15/16 D each and 5 D more together, so 80 of them took 80 D.
 *
 * Bad at: answers of few tokens, which may all fall on tokens that LP delays.
 */
#ifndef HB_DECIDE_TOKEN_CREDIT_H
#define HB_DECIDE_TOKEN_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

/* All zeros at first. */
struct hb_token_credit {
	int64_t credit_ns; /* below 0: tokens took too long */
	bool is_open;      /* LP may delay tokens */
};

/*
 * A token of a service with this SLO (more than 0) took this time, counted from the end of the one before. The credit is at
 * most most_slos times the SLO.
 */
void hb_token_credit_note(struct hb_token_credit *credit, int64_t slo_ns, int64_t took_ns, uint32_t most_slos);
/* The time that the next token may take: 15/16 of the SLO plus the credit. Below 0 if earlier tokens used up more than that. */
int64_t hb_token_credit_most_ns(const struct hb_token_credit *credit, int64_t slo_ns);

#endif
