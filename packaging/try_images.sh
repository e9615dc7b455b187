#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the images of packaging/make_images.sh with podman, as docs/operate.md says to start them, but over a simulated GPU:
# the daemon in a container and programs outside, and `hb serve`. Prints one line for each check.
# usage: packaging/try_images.sh ARTIFACTS      the folder that packaging/make_release.sh has filled
# Needs root, podman and crun. Runs in namespaces of its own and leaves nothing on this machine.
if (($$ != 1)); then
	cd "$(dirname "$0")/.."
	. tools/setup.sh
	artifacts=$(hb_path "${1:?usage: packaging/try_images.sh ARTIFACTS}")
	((EUID == 0)) || die "only root can make these namespaces: sudo $0"
	for tool in podman crun; do
		command -v "$tool" >/dev/null || die "$tool is missing: install it"
	done
	folder=$(mktemp -d)
	trap 'rm -rf --one-file-system "$folder"' EXIT
	timeout -k 10 1200 unshare --mount --pid --fork --kill-child packaging/try_images.sh "$artifacts" "$folder" </dev/null
	exit
fi

# The first process of the new namespaces. It has a /run of its own.
set -uo pipefail
artifacts=$1 folder=$2
CHECK_OUTPUT=$folder/output
. packaging/checks.sh
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
only_cgroup_version_1
export HB_SIM_GPU=/run/gpu HB_SOCKET=/run/hummingbird/hbd-sim.sock
mkdir -p "$folder/hummingbird" /run/hummingbird /run/models /run/configuration
printf '%s\n' 'mps: false' 'rules:' '  - {user: root, priority: high}' >/run/configuration/hummingbird.yaml
install --directory --mode=0777 "$HB_SIM_GPU"
tar -C "$folder/hummingbird" --strip-components=1 -xf "$(echo "$artifacts"/hummingbird-*-x86_64.tar.gz)"
hb=$folder/hummingbird/bin/hb tenant=$folder/hummingbird/libexec/hummingbird/cuda-tenant
cp -r "$folder"/hummingbird/share/doc/hummingbird/examples/models/* /run/models

podman() {
	command podman --root "$folder/storage" --runroot /run/podman --storage-driver vfs --cgroup-manager cgroupfs --events-backend file "$@"
}
# podman 4.3 does not read compressed archives.
load() { gzip -dc "$artifacts"/hummingbird-"$1"-*-image.tar.gz | podman load --quiet; }
image() { podman images --format '{{.Repository}}:{{.Tag}}' | grep "hummingbird-$1:"; }
# start NAME IMAGE [PODMAN OPTION...] -- [ARGUMENT...]: health checks are run by hand, because podman's timer needs systemd,
# and no limit is raised, which a container may not do.
start() {
	local name=$1 image=$2 options=()
	shift 2
	while [[ $1 != -- ]]; do
		options+=("$1")
		shift
	done
	podman run --detach --name "$name" --read-only --cap-drop=all --security-opt=no-new-privileges --health-interval=disable \
		--ulimit=nofile=4096:4096 --ulimit=nproc=4096:4096 "${options[@]}" "$image" "${@:2}"
}
healthy() { podman healthcheck run "$1"; }
says() { # says TEXT COMMAND...
	"${@:2}" >"$folder/shown" 2>&1
	cat "$folder/shown"
	grep -qF -- "$1" "$folder/shown"
}
# field CONTAINER NAME: of /proc/PID/status of its first process
field() { awk -v name="$2:" '$1 == name {print $2}' "/proc/$(podman inspect --format '{{.State.Pid}}' "$1")/status"; }
status() { "$hb" status --gpu sim; }
scheduled() { # scheduled N: N tenants' time slices are enforced
	status >"$folder/status" 2>&1
	cat "$folder/status"
	[[ $(grep -c "compute slice *enforced" "$folder/status") == "$1" ]]
}
start_daemon() {
	start daemon "$(image daemon)" --network=none --pid=host --ipc=host --tmpfs=/tmp \
		--cap-add=CHOWN,DAC_OVERRIDE,FOWNER,KILL,SETGID,SETUID,SYS_PTRACE,SYSLOG \
		--volume=/run/hummingbird:/run/hummingbird --volume=/run/configuration:/etc/hummingbird:ro --volume="$HB_SIM_GPU:$HB_SIM_GPU" --env="HB_SIM_GPU=$HB_SIM_GPU" \
		--env="HEALTH=--gpu sim" -- --gpu sim
}

echo "--- the daemon's image"
at_once "it loads" load daemon
((!bad)) || exit 1
at_once "it starts without a file system to write to" start_daemon
soon "it is healthy" healthy daemon
at_once "the daemon is not root" [ "$(field daemon Uid)" != 0 ]
at_once "the daemon has no capability" [ "$(field daemon CapPrm)" = 0000000000000000 ]
"$hb" run --gpu sim --priority high --slo 10ms -- "$tenant" train 500 0 >/dev/null 2>&1 &
high=$!
"$hb" run --gpu sim --priority low -- "$tenant" train 500 0 >/dev/null 2>&1 &
low=$!
soon "programs outside are scheduled" scheduled 2
at_once "the container is replaced" podman rm --force --time 10 daemon
at_once "programs outside run on" kill -0 $high $low
at_once "another one starts" start_daemon
soon "it continues with the programs" scheduled 2
kill $high $low
wait $high $low
at_once "it ends when it is asked to" podman stop --time 10 daemon
at_once "it ended well" [ "$(podman inspect --format '{{.State.ExitCode}}' daemon)" = 0 ]

echo "--- the image of hb serve"
at_once "it loads" load serve
((!bad)) || exit 1
start serve "$(image serve)" --network=none --volume=/run/models:/models:ro -- --gpu none >"$CHECK_OUTPUT" 2>&1
soon "it refuses to serve other machines without protection" says "--insecure-network" podman logs serve
at_once "it is removed" podman rm --force serve
at_once "it starts without rights and without a file system to write to" start serve "$(image serve)" --network=none \
	--volume=/run/models:/models:ro -- --gpu none --insecure-network
soon "it is healthy" healthy serve
at_once "the server is not root" [ "$(field serve Uid)" != 0 ]
at_once "the server has no capability" [ "$(field serve CapPrm)" = 0000000000000000 ]
ask='import json, urllib.request
body = b"{\"inputs\": [{\"name\": \"scores\", \"datatype\": \"FP32\", \"shape\": [1, 4], \"data\": [0, 0, 0, 0]}]}"
answer = json.load(urllib.request.urlopen("http://127.0.0.1:8000/v2/models/softmax/infer", body))
assert answer["outputs"][0]["data"] == [0.25] * 4, answer'
soon "it answers" podman exec serve python3 -c "$ask"
at_once "it ends when it is asked to" podman stop --time 10 serve
at_once "it ended well" [ "$(podman inspect --format '{{.State.ExitCode}}' serve)" = 0 ]
podman rm --all --force >/dev/null 2>&1
((bad)) || echo "all is well"
exit $bad
