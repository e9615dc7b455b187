/* SPDX-License-Identifier: Apache-2.0 */
/* The pair model; see pair_model.h. */
#include "cluster/pair_model.h"

#include "base/parse_number.h"
#include "trace/csv.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/*
 * How far two rows are from each other: the difference of their duty, plus these where service or job differ. A row's
 * weight falls to 1/e at SCALE. A measured row counts as much as MEASURED_WEIGHT simulated ones.
 */
#define OTHER_SERVICE 0.6
#define OTHER_LOW 0.2
#define SCALE 0.15
#define MEASURED_WEIGHT 4

const char *const hb_pair_sharing_names[] = {"timeslice", "mps_prio", "mps_88", "mps_60", "temporal", "spatial"};
const char *const hb_pair_service_names[] = {"resnet50_b1", "resnet50_b1:graph", "llama8_decode_b8",
					     "llama8_prefill_b4"};
const char *const hb_pair_low_names[] = {"resnet50_train_b128", "llama8_train_b4", "transcode", "stencil"};
const double hb_pair_busy_share[] = {750.0 / 2425, 750.0 / 770, 2242.0 / 4571, 1};

enum { SOURCE, SHARING, HIGH, DUTY, LOW, ALONE, ATTAINMENT, LOW_SPEED };
static const struct hb_csv_column columns[] = {
	{"source", 1}, {"sharing", 1}, {"high", 1},       {"duty", 1},
	{"low", 1},    {"alone", 1},   {"attainment", 1}, {"low_speed", 1},
};

static int take_name(struct hb_csv *csv, uint32_t column, const char *const *names, uint32_t n, uint32_t *index,
		     struct hb_error *error)
{
	const char *text = hb_csv_field(csv, column);
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(names[i], text) == 0) {
			*index = i;
			return 0;
		}
	return hb_csv_field_error(csv, column, "is not a known name", error);
}

static int take_share(struct hb_csv *csv, uint32_t column, double most, double *value, struct hb_error *error)
{
	double share = 0;
	if (!hb_number_parse(hb_csv_field(csv, column), &share) || share < 0 || share > most)
		return hb_csv_field_error(csv, column, "is not a share", error);
	*value = share;
	return 0;
}

static int take_row(struct hb_csv *csv, struct hb_pair_row *row, struct hb_error *error)
{
	static const char *const sources[] = {"simulated", "measured"};
	uint32_t source = 0;
	double alone = 0, attainment = 0;
	int rc = take_name(csv, SOURCE, sources, 2, &source, error);
	rc = rc ? rc : take_name(csv, SHARING, hb_pair_sharing_names, HB_PAIR_SHARINGS, &row->sharing, error);
	rc = rc ? rc : take_name(csv, HIGH, hb_pair_service_names, HB_PAIR_SERVICES, &row->service, error);
	rc = rc ? rc : take_name(csv, LOW, hb_pair_low_names, HB_PAIR_LOWS, &row->low, error);
	rc = rc ? rc : take_share(csv, DUTY, 1, &row->duty, error);
	rc = rc ? rc : take_share(csv, ALONE, 1, &alone, error);
	rc = rc ? rc : take_share(csv, ATTAINMENT, 1, &attainment, error);
	rc = rc ? rc : take_share(csv, LOW_SPEED, 2, &row->speed, error); /* noise may give a little more than 1 */
	row->measured = source == 1;
	row->loss = alone - attainment;
	return rc;
}

int hb_pair_model_read(struct hb_pair_model *model, const char *path, struct hb_error *error)
{
	struct hb_csv csv;
	uint32_t n = 0;
	int more = 0;
	int rc = hb_csv_open(&csv, path, columns, sizeof columns / sizeof columns[0], error);
	if (rc)
		return rc;
	while (!rc && (more = hb_csv_next(&csv, error)) == 1) {
		if (n == HB_PAIR_ROWS_MAX)
			rc = hb_error_set(error, -E2BIG, "%s: more than %d rows", path, HB_PAIR_ROWS_MAX);
		else
			rc = take_row(&csv, &model->rows[n++], error);
	}
	hb_csv_close(&csv);
	rc = rc ? rc : more;
	if (!rc && n == 0)
		rc = hb_error_set(error, -EINVAL, "%s: no rows", path);
	model->n = rc ? 0 : n;
	return rc;
}

static double limit_share(double value)
{
	return value < 0 ? 0 : value > 1 ? 1 : value;
}

static struct hb_pair_prediction predict_without(const struct hb_pair_model *model, const struct hb_pair_row *like,
						 const struct hb_pair_row *left_out)
{
	double weights = 0, loss = 0, speed = 0;
	for (uint32_t i = 0; i < model->n; i++) {
		const struct hb_pair_row *row = &model->rows[i];
		if (row->sharing != like->sharing || row == left_out)
			continue;
		double distance = fabs(row->duty - like->duty) + (row->service != like->service) * OTHER_SERVICE +
				  (row->low != like->low) * OTHER_LOW;
		double weight = exp(-distance / SCALE) * (row->measured ? MEASURED_WEIGHT : 1);
		weights += weight;
		loss += weight * row->loss;
		speed += weight * row->speed;
	}
	if (weights <= 0)
		return (struct hb_pair_prediction){.loss = 1, .speed = 0};
	return (struct hb_pair_prediction){.loss = limit_share(loss / weights), .speed = limit_share(speed / weights)};
}

struct hb_pair_prediction hb_pair_predict(const struct hb_pair_model *model, enum hb_pair_sharing sharing,
					  uint32_t service, uint32_t low, double duty)
{
	struct hb_pair_row like = {.sharing = sharing, .service = service, .low = low, .duty = duty};
	return predict_without(model, &like, NULL);
}

struct hb_pair_error hb_pair_hold_out(const struct hb_pair_model *model, enum hb_pair_sharing sharing)
{
	struct hb_pair_error sum = {0};
	for (uint32_t i = 0; i < model->n; i++) {
		const struct hb_pair_row *row = &model->rows[i];
		if (!row->measured || row->sharing != sharing)
			continue;
		struct hb_pair_prediction p = predict_without(model, row, row);
		sum.rows++;
		sum.loss += fabs(p.loss - row->loss);
		sum.speed += fabs(p.speed - row->speed);
	}
	if (sum.rows) {
		sum.loss /= sum.rows;
		sum.speed /= sum.rows;
	}
	return sum;
}
