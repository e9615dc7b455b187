/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether LP may delay the tokens of a service now, so that their pace stays within an objective. Pure; fixed memory; one
 * caller at a time.
 *
 * The user of a language model sees the mean time per token (token_pace.h). Each token has 7/8 of the objective. What a
 * token does not use is credit for the next ones, up to the time of one token; what it uses too much is debt, up to that
 * of HB_PACE_TOKENS tokens. LP may delay tokens from the moment when the credit reaches half of the objective, until it is
 * used up.
 *
 * If tokens need less than 7/8 D without LP (D: the objective), n of them after each other take at most n 7/8 D, plus the
 * credit of D at the beginning, plus what the last one takes more than 7/8 D. So an answer of 16 tokens keeps the objective
 * if no token takes more than 15/8 D. LP gets time while steps are short, and none while steps are long for another reason
 * (many prompts at once).
 *
 * Example. D = 8 ms, so a token has 7 ms. Tokens take 3 ms alone: after the first one the credit is 4 ms, so LP may delay
 * the next ones. Beside LP they take 9 ms: after two of these the credit is used up (4 - 2 - 2). So LP delays two tokens of
 * three.
 *
 * Bad at: answers of less than ten tokens, which may all fall on tokens that LP delays.
 */
#ifndef HB_DECIDE_TOKEN_CREDIT_H
#define HB_DECIDE_TOKEN_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

/* All zeros at first. */
struct hb_token_credit {
	int64_t credit_ns; /* below 0: debt */
	bool is_open;      /* LP may delay tokens */
};

/* A token of a service with this objective (more than 0) took this time, counted from the end of the one before. */
void hb_token_credit_note(struct hb_token_credit *credit, int64_t slo_ns, int64_t took_ns);
/* The delay after which the next token, which takes alone_ns without LP, has used up the credit. */
int64_t hb_token_credit_delay_ns(const struct hb_token_credit *credit, int64_t slo_ns, int64_t alone_ns);

#endif
