/* SPDX-License-Identifier: Apache-2.0 */
/* Latency objectives: what is accepted, and that everything else is refused and named. */
#include "base/slo.h"
#include "unit.h"

#include <errno.h>
#include <string.h>

static void objectives_are_read(void **state)
{
	static const struct {
		const char *text;
		int64_t latency_ns;
		uint32_t share_ppm;
	} cases[] = {
		{"10ms", 10000000, 0},
		{"p99<10ms", 10000000, 990000},
		{"p99.9<250us", 250000, 999000},
		{"p50<1s", 1000000000, 500000},
		{"p99.9999<1ms", 1000000, 999999},
		{"p5<1ms", 1000000, 50000},
		{"p95=4ms", 4000000, 950000},
		{"auto", -1, 0},
		{"none", 0, 0},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct hb_slo slo = {7, 7};
		assert_int_equal(hb_slo_parse(cases[i].text, &slo, NULL), 0);
		assert_int_equal(slo.latency_ns, cases[i].latency_ns);
		assert_int_equal(slo.share_ppm, cases[i].share_ppm);
	}
}

static void anything_else_is_refused_and_named(void **state)
{
	static const char *const cases[] = {
		"",       "0",        "0ms",       "-1ms",     "10",        "p99",     "p99<",          "p<10ms",
		"p0<1ms", "p100<1ms", "p99.<10ms", "p.9<10ms", "p99,9<1ms", "99<10ms", "p99.99999<1ms", "p99<0ms",
		"Auto",   "p99<auto", "p99 <10ms", "p-1<1ms",  "p95==4ms",  "p95=",    "p95<=4ms",
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct hb_slo slo = {7, 7};
		struct hb_error error = {""};
		assert_int_equal(hb_slo_parse(cases[i], &slo, &error), -EINVAL);
		assert_int_equal(slo.latency_ns, 7);
		assert_non_null(strstr(error.text, cases[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objectives_are_read),
		cmocka_unit_test(anything_else_is_refused_and_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
