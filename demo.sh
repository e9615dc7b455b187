#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows what happens to a service and a training job that share one GPU. Builds
# Hummingbird into build/, simulates every way of sharing (a table and a page of
# plots), and then runs such programs for real, on a simulated GPU if the machine
# has no other. Needs Debian 12 and no GPU; installs missing packages (root or
# sudo). usage: ./demo.sh [--no-install]
cd "$(dirname "$0")"
HB_LOGS=build/logs
. tools/setup.sh

seconds=${HB_DEMO_SECONDS:-20}

build() {
	mkdir -p "$HB_LOGS"
	echo "building (log: $HB_LOGS/build.log)" >&2
	hb_build build >"$HB_LOGS/build.log" 2>&1 </dev/null || {
		tail -n 30 "$HB_LOGS/build.log" >&2
		die "the build failed"
	}
}

# simulate SERVICE TRAINING REPORT: prints the command, then runs it.
simulate() {
	local command=(build/hb sim --high "$1" --low "$2" --sharing all --seconds "$seconds" --seed 1 --report "$3")
	printf '\n$ %s\n' "${command[*]}"
	"${command[@]}"
	printf '\nplots: %s\n' "$PWD/$3"
}

if [[ ${1:-} != --no-install ]]; then
	hb_install build
fi
build
simulate resnet50_b1@60/s llama8_train_b4 build/report-llama.html
simulate resnet50_b1@60/s resnet50_train_b128 build/report.html
printf '\n$ bench/side_by_side.py build\n'
bench/side_by_side.py build
