/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the demands of a batch from its run times, as one can measure them with any program on a GPU: alone, on a part of
 * the SMs, and beside a program that needs all of the memory bandwidth. Used by hb serve (server/models/demand_trial.h) and
 * by the evaluation (src/simserving/serving_demand.c). Pure.
 *
 *	SM demand      On a share f of the SMs a batch that uses the share s takes s/f times as long (if s > f), so s = f T_f / T.
 *	bandwidth      A batch that needs the share m of the bandwidth waits for memory during the share m of its time. Beside a
 *	               program that wants all of it, shares are in proportion, so that part takes 1 + m times as long, and the
 *	               batch (1 - m) + m (1 + m) = 1 + m^2 times. A program of the same size that needs no bandwidth shows
 *	               which part of the delay has another cause.
 *	transfer       A copy of n items takes latency + n * (bytes of one item) / rate.
 */
#ifndef HB_SCHEDULER_DEMAND_H
#define HB_SCHEDULER_DEMAND_H

/* What a batch needs: shares (0..1) of the GPU's SMs and memory bandwidth, and the bytes that one item copies. */
struct hb_demand {
	double sm[2], memory[2]; /* of a batch of 1 item and of the largest batch, alone */
	double in_bytes, out_bytes;
};

/* Run times of the same batch, in any unit. */
struct hb_demand_times {
	double alone, limited; /* limited: on the share sm_part of the SMs */
	double sm_part;
	double beside,
		beside_memory; /* beside a program that needs no memory bandwidth, and one that needs all of it */
};

/* Stores the demands, shares from 0 to 1. Returns 0, or -EINVAL if the times are impossible. */
int hb_demand_infer(const struct hb_demand_times *times, double *sm, double *memory);

/* The time of a copy between host and GPU: latency_ns + bytes / rate. */
struct hb_demand_link {
	double latency_ns, bytes_per_ns;
};

/*
 * Returns the bytes that one item copies: from the times of the copies of a batch of 1 and of `items` items, but at least
 * tensor_bytes. items 1: only ns[0] counts.
 */
double hb_demand_infer_transfer(const struct hb_demand_link *link, const double ns[2], unsigned items,
				double tensor_bytes);

#endif
