#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Hummingbird with gcc, clang and sanitizers in build-test/ and runs its
# tests. Needs Debian 12; installs what is missing (root or sudo). The last
# line is "N passed, N failed". usage: ./test.sh [--no-install]
cd "$(dirname "$0")"
. tools/setup.sh

top=build-test
# Sanitizers stop at the first finding and count leaks. Allocations may be large.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:strict_string_checks=1:allocator_may_return_null=1:verify_asan_link_order=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# Shortens the sleep with which every process under the thread sanitizer ends.
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:atexit_sleep_ms=50
export CMOCKA_MESSAGE_OUTPUT=STDOUT

# build NAME "SETUP ARGUMENTS"
build() {
	local folder=$top/$1 setup
	read -ra setup <<<"$2"
	hb_step "build $1" hb_build "$folder" "${setup[@]}"
}

# run_tests FOLDER [MESON TEST ARGUMENT...]: a failed test is repeated at the end, alone.
run_tests() {
	local folder=$1
	shift
	"${runner[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs "$@" && return
	# Without a log, Meson itself broke.
	[[ -s $folder/meson-logs/testlog.json ]] || return
	: >"$folder/again"
	if (($#)); then printf '%s\n' "$@" >"$folder/again"; fi
}

# variant_tests NAME [MESON TEST ARGUMENT...]
variant_tests() {
	local name=$1
	shift
	hb_step "test $name" run_tests "$top/$name" "$@" || true
}

# second_try NAME: repeats the failed tests (tools/second_try.py); prints the first log again if they still fail.
second_try() {
	local options
	mapfile -t options <"$top/$1/again"
	"${runner[@]}" tools/second_try.py "$top/$1" "${options[@]}" || { cat "$HB_LOGS/test-$1.log"; return 1; }
}

# idly COMMAND...: runs it with idle priority, so that it hardly disturbs tests that run at the same time.
idly() {
	"$@" &
	echo $! >$top/idly
	[[ -f $top/hurry ]] || chrt --idle --pid 0 $! || true
	wait $!
}

# Builds, and tests that need no real time, run beside gcc's tests, which mostly wait. Prints "ok" or "failed" when asan and
# tsan are built, and "over" at the end. -g1 is enough for the line numbers in sanitizer reports.
beside() {
	hb_run_under=(idly)
	export CC=gcc
	local clang=failed
	# Tests in real time give the same result with either compiler, so clang skips them.
	CC=clang CFLAGS=-g1 build clang "--werror" >&3 && clang=ok
	CFLAGS="-g1 -fno-sanitize-recover=all" build asan "-Db_sanitize=address,undefined -Doptimization=1" >&3 && echo ok || echo failed
	runner=(nice -n 10)
	[[ $clang == failed ]] || variant_tests clang --suite fast --no-suite live --timeout-multiplier 4 >&3
	CFLAGS=-g1 build tsan "-Db_sanitize=thread -Doptimization=1" >&3 && echo ok || echo failed
	runner=("${fixed_addresses[@]}")
	hb_step "same bytes from gcc, clang and sanitizers" same_bytes >&3 || true
	runner=(nice -n 19)
	if CC=gcc CFLAGS=-g0 build coverage "-Db_coverage=true -Doptimization=0" >&3; then
		hb_step "coverage" coverage >&3 || true
		grep '^coverage ' "$HB_LOGS/coverage.log" >&3 || true
	fi
	fuzz >&3
	echo over
}

# await: waits for the next word of beside(), whose builds run at normal priority meanwhile.
await() {
	local word
	touch $top/hurry
	chrt --other --pid 0 "$(cat $top/idly)" 2>/dev/null || true
	read -r word <&4
	rm $top/hurry
	echo "$word"
}

# Fuzzes every parser, together for about a minute (tools/fuzz.sh). Prints the executions of each target.
fuzz() {
	rm -rf "$top/fuzz/corpus"
	hb_step "test fuzz" "${runner[@]}" tools/fuzz.sh --build "$top/fuzz" --seconds 66 --no-minimize --results "$HB_RESULTS" || true
	grep '^fuzz ' "$HB_LOGS/test-fuzz.log" || true
}

# The tests of the suite `fast` that execute much of daemon, server or shim. Left out are tests of other parts that need
# minutes, and tests that a build for coverage disturbs, because processes write their counts to files when they exit.
covered_tests() {
	meson test -C "$top/coverage" --list --suite fast 2>/dev/null | sed -n 's/^hummingbird:[^ ]* \/ //p' | grep -vE '^(simulation|model_|scenario|scheduler|spatial|foresight|core|gate|gpc_|trace_|arrivals|baselines|simcuda_|cuda_abi|report page|bench|front bench|serving bench|serve (examples|trace module)|stack (bench|foresight|sharing|programs|users|stops|faults)|end-to-end (bench|doctor|sim-|daemon-commands|trace|top|config|command)|fuzz (arrivals|kineto|nsys|trace|recording|sim_image|journal)|messages|counting|second try|gpu files|split verdicts|manual|completion|failing calls|shim-library$|shim-hot-path$)'
}

# Measures the share of lines of daemon, server and shim that tests execute. The results of these tests do not count: the
# other builds run them, too.
coverage() {
	local names
	find "$top/coverage" -name '*.gcda' -delete
	mapfile -t names < <(covered_tests)
	HB_COVERAGE=1 "${runner[@]}" meson test -C "$top/coverage" --no-rebuild --logbase coverage --timeout-multiplier 4 "${names[@]}" || true
	tools/coverage.py "$top/coverage" tools/coverage_floors.txt
}

# Checks that one seed gives the same bytes with every compiler; only the duration of the run may differ.
same_bytes() {
	local name tenants=(--high "resnet50_b1@60/s,slo=auto" --high "resnet50_b8:graph@40/s:burst" --low llama8_train_b4)
	for name in gcc clang asan tsan; do
		"${runner[@]}" "$top/$name/hb" sim "${tenants[@]}" --sharing all --seconds 0.5 --seed 7 --json |
			grep -v '"wall_s"' >"$top/sim-$name.json" &&
			"${runner[@]}" "$top/$name/hb" sim "${tenants[@]}" --sharing temporal --seconds 0.5 --timeline "$top/timeline-$name.json" &&
			cmp "$top/sim-gcc.json" "$top/sim-$name.json" &&
			cmp "$top/timeline-gcc.json" "$top/timeline-$name.json" || return 1
	done
}

if [[ ${1:-} != --no-install ]]; then
	hb_install build test
fi
hb_results_begin $top/results.txt
find $top -path "*/meson-logs/testlog*" -delete
rm -f $top/hurry $top/idly "$top"/*/again
runner=()
# gcc 12's thread sanitizer does not know the address layout of newer kernels.
fixed_addresses=()
if setarch -R true 2>/dev/null; then
	fixed_addresses=(setarch -R)
fi

exec 3>&1
CC=gcc build gcc "--werror" && gcc=ok || gcc=failed
exec 4< <(beside)
[[ $gcc == failed ]] || variant_tests gcc
asan=$(await)
[[ $asan == failed ]] || variant_tests asan --suite fast --timeout-multiplier 4
tsan=$(await)
runner=("${fixed_addresses[@]}")
[[ $tsan == failed ]] || variant_tests tsan --suite threads --timeout-multiplier 4
[[ $(await) == over ]]
for name in gcc clang asan tsan; do
	[[ ! -f $top/$name/again ]] || hb_step "test $name again" second_try "$name" || true
done

echo "time: $((SECONDS / 60)) min $((SECONDS % 60)) s"
find $top -path '*/meson-logs/testlog.json' -print0 | sort -z | xargs -0 tools/count_tests.py $top/results.txt
