/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives each row at most one column, and each column to at most one row, so that the sum of their values is the greatest that
 * is possible (the Hungarian method). Pure. Caller: pairing.c.
 */
#ifndef HB_CLUSTER_ASSIGNMENT_H
#define HB_CLUSTER_ASSIGNMENT_H

#include <stdint.h>

#define HB_ASSIGNMENT_NONE UINT32_MAX

/*
 * values[row * columns + column]: positive, or -INFINITY where the row cannot have the column. Writes the column of each row,
 * HB_ASSIGNMENT_NONE for none. 0, or -ENOMEM.
 */
int hb_assignment_solve(const double *values, uint32_t rows, uint32_t columns, uint32_t *column_of);

#endif
