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
	echo "building; the first time this takes some minutes (log: $HB_LOGS/build.log)" >&2
	hb_build build >"$HB_LOGS/build.log" 2>&1 </dev/null || {
		tail -n 30 "$HB_LOGS/build.log" >&2
		die "the build failed"
	}
}

# simulate WHAT SERVICE TRAINING REPORT: says what it simulates, prints the command, and runs it.
simulate() {
	printf '\n== %s\n' "$1"
	shift
	local command=(build/hb sim --high "$1" --low "$2" --sharing all --seconds "$seconds" --seed 1 --report "$3")
	printf '\n$ %s\n' "${command[*]}"
	"${command[@]}"
	printf '\nplots: %s\n' "$PWD/$3"
}

if [[ ${1:-} != --no-install ]]; then
	hb_install build
fi
build
cat <<'TEXT'

A service and a training job share one GPU. Each row of the first two tables is one way to share it: temporal and spatial are
Hummingbird's engines, auto chooses between them, and docs/sharing-modes.md explains the others. "in SLO" is the share of
requests that the service answers in time; "of alone" is the speed of the training, compared with a GPU of its own.
TEXT
simulate "1 of 3: image recognition beside the training of a language model, simulated" \
	resnet50_b1@60/s llama8_train_b4 build/report-llama.html
simulate "2 of 3: image recognition beside the training of an image model, simulated" \
	resnet50_b1@60/s resnet50_train_b128 build/report.html
printf '\n== 3 of 3: real processes: a service beside two trainings, without and with hb run\n\n$ bench/side_by_side.py build\n'
bench/side_by_side.py build
printf '\nRun two programs of your own: docs/quick-start.md\n'
