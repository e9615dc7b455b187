/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See assignment.h. Rows are added one by one; each takes the cheapest path to a column that nobody has, along which rows
 * exchange their columns. `rows` further columns of value 0 stand for "no column", so there is always such a path.
 */
#include "cluster/assignment.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct assignment {
	const double *values;
	uint32_t rows, columns, all; /* all: with those that stand for none */
	double *row_price, *column_price;
	double *distance;  /* of each column from the new row */
	uint32_t *owner;   /* row of each column, or HB_ASSIGNMENT_NONE */
	uint32_t *through; /* the column before it on the path; HB_ASSIGNMENT_NONE = the new row */
	bool *reached;
};

static double cost_of(const struct assignment *a, uint32_t row, uint32_t column)
{
	return column < a->columns ? -a->values[(size_t)row * a->columns + column] : 0;
}

/* Updates the distances of the columns that were not reached, from this row; returns the nearest of them. */
static uint32_t find_nearest(struct assignment *a, uint32_t row, uint32_t from)
{
	uint32_t nearest = HB_ASSIGNMENT_NONE;
	for (uint32_t column = 0; column < a->all; column++) {
		if (a->reached[column])
			continue;
		double distance = cost_of(a, row, column) - a->row_price[row] - a->column_price[column];
		if (distance < a->distance[column]) {
			a->distance[column] = distance;
			a->through[column] = from;
		}
		if (nearest == HB_ASSIGNMENT_NONE || a->distance[column] < a->distance[nearest])
			nearest = column;
	}
	return nearest;
}

static void move_prices(struct assignment *a, uint32_t new_row, double by)
{
	a->row_price[new_row] += by;
	for (uint32_t column = 0; column < a->all; column++)
		if (a->reached[column]) {
			a->row_price[a->owner[column]] += by;
			a->column_price[column] -= by;
		} else {
			a->distance[column] -= by;
		}
}

static void add_row(struct assignment *a, uint32_t new_row)
{
	uint32_t row = new_row, column = HB_ASSIGNMENT_NONE;
	for (uint32_t i = 0; i < a->all; i++) {
		a->distance[i] = INFINITY;
		a->reached[i] = false;
	}
	for (;;) {
		column = find_nearest(a, row, column);
		move_prices(a, new_row, a->distance[column]);
		if (a->owner[column] == HB_ASSIGNMENT_NONE)
			break;
		a->reached[column] = true;
		row = a->owner[column];
	}
	while (column != HB_ASSIGNMENT_NONE) {
		uint32_t before = a->through[column];
		a->owner[column] = before == HB_ASSIGNMENT_NONE ? new_row : a->owner[before];
		column = before;
	}
}

int hb_assignment_solve(const double *values, uint32_t rows, uint32_t columns, uint32_t *column_of)
{
	uint32_t all = columns + rows;
	struct assignment a = {.values = values, .rows = rows, .columns = columns, .all = all};
	if (!rows)
		return 0;
	a.row_price = calloc(rows, sizeof *a.row_price);
	a.column_price = calloc(all, sizeof *a.column_price);
	a.distance = calloc(all, sizeof *a.distance);
	a.owner = malloc(all * sizeof *a.owner);
	a.through = malloc(all * sizeof *a.through);
	a.reached = calloc(all, sizeof *a.reached);
	int rc = a.row_price && a.column_price && a.distance && a.owner && a.through && a.reached ? 0 : -ENOMEM;
	if (!rc) {
		memset(a.owner, 0xff, all * sizeof *a.owner);
		for (uint32_t row = 0; row < rows; row++) {
			column_of[row] = HB_ASSIGNMENT_NONE;
			add_row(&a, row);
		}
		for (uint32_t column = 0; column < columns; column++)
			if (a.owner[column] != HB_ASSIGNMENT_NONE)
				column_of[a.owner[column]] = column;
	}
	free(a.row_price);
	free(a.column_price);
	free(a.distance);
	free(a.owner);
	free(a.through);
	free(a.reached);
	return rc;
}
