#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the parsers (tests/fuzz/fuzz_*.c) with libFuzzer, ASan and UBSan, as many
# targets at a time as there are processors (HB_JOBS).
#
# usage: tools/fuzz.sh [OPTION...] [TARGET...]      (default: all targets)
#   --minutes N, --seconds N  how long in total, of one processor (default: 10 minutes)
#   --corpus FOLDER           where inputs are kept from run to run (default: corpus in the build folder); they are minimized
#   --build FOLDER            where the targets are built (default: build-fuzz)
#   --keep                    also copies inputs that reach new code to tests/fuzz/corpus
#   --results FILE            appends "ok fuzz NAME" or "failed fuzz NAME" for each target
#   --no-minimize             keeps the inputs as they are (saves time)
#
# Prints the executions of each target. For a finding it prints the report and how
# to reproduce it, and exits 1.
cd "$(dirname "$0")/.."
. tools/setup.sh

folder=build-fuzz
seconds=600
corpus=
results=/dev/null
keep=
minimize=1
targets=()
while (($#)); do
	case $1 in
	--minutes) seconds=$(($2 * 60)) && shift ;;
	--seconds) seconds=$2 && shift ;;
	--build) folder=$2 && shift ;;
	--corpus) corpus=$2 && shift ;;
	--results) results=$2 && shift ;;
	--keep) keep=1 ;;
	--no-minimize) minimize= ;;
	-h | --help) sed -n '/^# usage/,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;;
	-*) die "$1 is not an option; see tools/fuzz.sh --help" ;;
	*) targets+=("$1") ;;
	esac
	shift
done
corpus=${corpus:-$folder/corpus}
seeds=tests/fuzz/corpus

build_targets() {
	[[ -f $folder/build.ninja ]] || CC="${FUZZ_CC:-clang}" CFLAGS=-g1 meson setup "$folder" --werror -Dfuzz=true -Doptimization=1 \
		-Db_sanitize=address,undefined -Db_lundef=false -Dc_args="-fsanitize=fuzzer-no-link -fno-sanitize-recover=all" || return
	ninja -C "$folder" -j "$HB_JOBS" fuzz-targets
}

# run_fuzzer NAME OPTION...: HB_LOG keeps expected warnings out of the report.
run_fuzzer() {
	local name=$1
	shift
	HB_LOG=error "$folder/tests/fuzz/fuzz_$name" -timeout=60 -rss_limit_mb=1024 -malloc_limit_mb=512 \
		-artifact_prefix="$folder/findings/$name-" "$@"
}

# Keeps of NEW the inputs that reach code which KEPT do not reach: merge NAME KEPT NEW
merge() {
	run_fuzzer "$1" -merge=1 "$2" "$3" >"$log" 2>&1 || { cat "$log"; return 1; }
}

minimize_corpus() {
	local name=$1 fresh
	fresh=$(mktemp -d "$folder/merge-XXXXXX")
	merge "$name" "$fresh" "$corpus/$name" || return
	rm -r "${corpus:?}/$name"
	mv "$fresh" "$corpus/$name"
}

# Prints one line about a run, or the report of a finding.
report_run() {
	local name=$1 code=$2 executions edges
	executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 || true)
	if [[ $code == 0 && ${executions:-0} -gt 0 ]]; then
		printf 'fuzz %-16s %10d executions  %s\n' "$name" "$executions" "$edges"
		echo "ok fuzz $name" >>"$results"
		return
	fi
	echo "failed fuzz $name" >>"$results"
	tail -n 60 "$log"
	echo "FAIL: fuzz $name. Reproduce: $folder/tests/fuzz/fuzz_$name $folder/findings/$name-*"
	return 1
}

fuzz_target() {
	local name=$1 code=0
	log=$folder/logs/$name.log
	mkdir -p "$corpus/$name"
	run_fuzzer "$name" -max_total_time="$each" -print_final_stats=1 "$corpus/$name" "$seeds/$name" >"$log" 2>&1 || code=$?
	report_run "$name" "$code" || return
	[[ -z $minimize ]] || minimize_corpus "$name"
	[[ -z $keep ]] || merge "$name" "$seeds/$name" "$corpus/$name"
}

mkdir -p "$folder/logs" "$folder/findings"
build_targets >"$folder/logs/build.log" 2>&1 || { tail -n 40 "$folder/logs/build.log"; die "the fuzz targets do not build"; }
((${#targets[@]})) || mapfile -t targets < <(find tests/fuzz -name 'fuzz_*.c' ! -name fuzz_replay.c -printf '%f\n' | sed 's/^fuzz_//; s/\.c$//' | sort)
each=$((seconds / ${#targets[@]}))
((each > 0)) || each=1
for name in "${targets[@]}"; do
	[[ -x $folder/tests/fuzz/fuzz_$name ]] || die "there is no target $name; see tests/fuzz/meson.build"
done

# Runs every HB_JOBSth target, from this one on. Their reports appear when all of them have ended.
fuzz_share() {
	local i failed=0
	for ((i = $1; i < ${#targets[@]}; i += HB_JOBS)); do
		fuzz_target "${targets[i]}" || failed=1
	done
	return $failed
}

shares=() failed=0
for ((share = 0; share < HB_JOBS; share++)); do
	fuzz_share "$share" >"$folder/logs/share-$share" 2>&1 &
	shares+=($!)
done
for share in "${!shares[@]}"; do
	wait "${shares[share]}" || failed=1
	cat "$folder/logs/share-$share"
done
exit $failed
