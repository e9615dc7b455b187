#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Contains the checks of try_containers.sh, which starts it as process 1 of a new process namespace, in a new mount namespace.
# usage: checks_in_containers.sh FOLDER
set -euo pipefail
folder=$1 run=$1/run
hb=$folder/hummingbird/bin/hb
USER_ID=64400 GROUP_ID=64401 DAEMON_ID=64402
CHECK_OUTPUT=$run/output
. packaging/checks.sh
LIMIT_S=20 # what a check looks at may take a moment

# --- an /etc, a /run and a /proc of this script's own ---------------------------------------------------

mount --make-rprivate /
mount -t proc proc /proc
mkdir -p "$run/etc" "$run/work" "$run/home"
mount -t overlay -o "lowerdir=/etc,upperdir=$run/etc,workdir=$run/work" overlay /etc
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /run
mount --make-shared /
mkdir -p /run/hummingbird /run/gpu /run/user/$USER_ID /etc/cdi /etc/hummingbird
chmod 1777 /run/gpu
chown $USER_ID:$USER_ID "$run/home" /run/user/$USER_ID
chmod 700 /run/user/$USER_ID
echo "hb-user:x:$USER_ID:$USER_ID::$run/home:/bin/sh" >>/etc/passwd
echo "hummingbird:x:$DAEMON_ID:$GROUP_ID::/nonexistent:/usr/sbin/nologin" >>/etc/passwd
printf 'hb-user:x:%d:\nhummingbird:x:%d:hb-user\n' $USER_ID $GROUP_ID >>/etc/group
echo "hb-user:700000:65536" | tee /etc/subuid >/etc/subgid
[[ $(stat -f -c %T /sys/fs/cgroup) != tmpfs ]] || no_rootless_cgroups=1
only_cgroup_version_1

# --- the checks -------------------------------------------------------------------------------------

contains() { [[ $1 == *"$2"* ]] || { echo "'$2' is not in: $1"; return 1; }; }
# says WHAT COMMAND...: the output of the command contains the words.
says() { contains "$("${@:2}" 2>&1)" "$1"; }
says_not() { ! contains "$("${@:2}" 2>&1)" "$1" >/dev/null; }

# This machine's limits may not be raised, and its network is not needed.
options=(--network=none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000
	--volume "$folder/hummingbird/libexec/hummingbird/cuda-tenant:/usr/bin/cuda-tenant:ro")
# What runs in the containers: a service, a training job, and a program that takes all the memory it can get.
serve=(cuda-tenant infer --rate 50 --seconds 100000)
train=(cuda-tenant train 1000 0)
take=(cuda-tenant memory $((64 << 20)) 1 1)
with_root() { podman --root "$run/storage" --runroot /run/root-podman --cgroup-manager=cgroupfs --events-backend=file "$@"; }
# Members of group hummingbird may use the daemon; their containers keep the group.
as_user() { setpriv --reuid $USER_ID --regid $USER_ID --groups $GROUP_ID -- env -i PATH="$PATH" HOME="$run/home" XDG_RUNTIME_DIR=/run/user/$USER_ID "$@"; }
rootless() { as_user podman --cgroup-manager=cgroupfs --events-backend=file "$@"; }
# start WITH_ROOT|ROOTLESS NAME DEVICE IMAGE COMMAND...
start() {
	local how=$1 more=()
	[[ $how == rootless ]] && more=(--group-add keep-groups)
	"$how" run -d --name "$2" "${options[@]}" "${more[@]}" --device "hummingbird.dev/tenant=$3" "$4" "${@:5}" >/dev/null
}
status() { "$hb" status --gpu sim; }
# tenant WORD KEY: a value of the status of the tenant whose command contains the word.
tenant() {
	"$hb" status --gpu sim --json | python3 -c '
import json, sys
word, key = sys.argv[1:]
found = [t for t in json.load(sys.stdin)["tenants"] if word in t["command"]]
value = len(found) if key == "count" else found[0]
for part in key.split(".") if key != "count" else []:
    value = value[int(part) if part.isdigit() else part]
print(len(value) if isinstance(value, list) else value)' "$@"
}
tenant_is() { [[ $(tenant "$1" "$2") == "$3" ]] || { echo "$2 of $1: $(tenant "$1" "$2"), not $3"; return 1; }; }
pair_is() { tenant_is infer "$1" "$2" && tenant_is train "$1" "$3"; }
has_requests() { (($(tenant infer gpus.0.requests) > 10)); }
start_daemon() {
	HB_SIM_GPU=/run/gpu "$folder/hummingbird/sbin/hbd" --system --gpu sim --foreground --config /etc/hummingbird/hummingbird.yaml \
		2>>"$run/hbd.log" &
	daemon=$!
	soon "${1:-the daemon answers}" status
}
# tries IMAGE HOW: a service and a training job in containers.
try_pair() {
	local image=$1 how=$2 in="$1, $2"
	start "$how" service high "$image" "${serve[@]}"
	start "$how" training low-40g "$image" "${train[@]}"
	soon "$in: both are tenants" pair_is count 1 1
	soon "$in: priority high" tenant_is infer priority high
	soon "$in: priority low" tenant_is train priority low
	soon "$in: memory limit of the device" tenant_is train memory_limit $((40 << 30))
	soon "$in: requests are counted" has_requests
	if [[ $how == rootless && ${no_rootless_cgroups:-} ]]; then
		skip "$in: the status names the container" "rootless podman makes no control groups of version 1"
	else
		local id
		id=$("$how" inspect --format '{{.Id}}' training)
		soon "$in: the status names the container" tenant_is train place.container "$id"
		soon "$in: hb status shows it" says "container ${id:0:12}" status
	fi
	kill -KILL "$daemon"
	wait "$daemon" 2>/dev/null || true
	start_daemon "$in: the next daemon answers"
	soon "$in: both are tenants of it" pair_is count 1 1
	start "$how" second low "$image" "${train[@]}"
	soon "$in: a new container is another tenant" tenant_is train count 2
	"$how" kill second >/dev/null
	soon "$in: a killed container is gone, the other continues" tenant_is train count 1
	"$how" rm -f -t 5 second >/dev/null
	"$how" stop -t 10 training service >/dev/null
	soon "$in: a stopped training has its result" says kernels "$how" logs training
	soon "$in: no tenant is left" says "no tenants" status
	"$how" rm training service >/dev/null
	start "$how" greedy low-256m "$image" "${take[@]}"
	soon "$in: memory above the limit is refused" says "granted: $((256 << 20)), wrong: 0" "$how" logs greedy
	"$how" rm -f -t 5 greedy >/dev/null
}

printf '%s\n' 'mps: false' 'rules:' '  - {name: containers of root, user: root, priority: high}' \
	'  - {name: the user, user: hb-user, priority: high}' >/etc/hummingbird/hummingbird.yaml
start_daemon
# The simulated GPU exists as long as a program uses it, and must not belong to a container.
HB_SIM_GPU=/run/gpu python3 - "$folder/hummingbird/lib/hummingbird/simcuda/libcuda.so.1" <<'PY' &
import ctypes, signal, sys
cuda = ctypes.CDLL(sys.argv[1])
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
open("/run/gpu-is-ready", "w").close()
signal.pause()
PY
soon "the simulated GPU exists" test -e /run/gpu-is-ready
soon "hb cdi generate" env HB_SIM_GPU=/run/gpu "$hb" cdi generate --gpu sim --device low-40g=low,memory=40GiB --device low-256m=low,memory=256MiB
images=()
for file in "$folder"/*.tar; do
	image=$(basename "$file" .tar)
	with_root import "$file" "$image" >/dev/null 2>&1
	rootless import "$file" "$image" >/dev/null 2>&1
	[[ $image == musl ]] || images+=("$image")
done
for image in "${images[@]}"; do
	echo "--- $image, $(with_root run --rm "${options[@]}" "$image" ldd --version | sed -n 1p)"
	try_pair "$image" with_root
	try_pair "$image" rootless
done

echo "--- two users"
start with_root service high bookworm "${serve[@]}"
start rootless training low bookworm "${train[@]}"
soon "high of root and low of a user are tenants" pair_is user root hb-user
soon "their GPU shares time slices" says "engine turns" status
with_root rm -f -t 5 service >/dev/null
rootless rm -f -t 5 training >/dev/null

echo "--- a guessed token"
with_root run -d --name victim "${options[@]}" --device hummingbird.dev/tenant=low bookworm "${serve[@]}" >/dev/null
soon "the first container is a tenant" tenant_is infer count 1
token=$(python3 -c 'import os, struct, sys
print((b"hb-cont\0" + struct.pack("<Q", os.stat(f"/proc/{sys.argv[1]}/ns/mnt").st_ino)).hex())' "$(tenant infer processes.0.pid)")
with_root run -d --name other "${options[@]}" --device hummingbird.dev/tenant=low bookworm env HB_TENANT="$token" "${train[@]}" >/dev/null
soon "a container with the token of another is another tenant" tenant_is train count 1
soon "the first container has one process" tenant_is infer processes 1
with_root rm -f -t 5 victim other >/dev/null

echo "--- another user without rights"
rootless run -d --name stranger "${options[@]}" --device hummingbird.dev/tenant=low bookworm "${train[@]}" >/dev/null
soon "without the group a container runs, and says that it is not managed" says "not managed by Hummingbird" rootless logs stranger
rootless rm -f -t 5 stranger >/dev/null

echo "--- musl"
for device in high low; do
	soon "a musl program runs with device $device, and its loader says that glibc is missing" \
		says "/opt/hummingbird/managed-only-with-glibc/libcuda.so.1" with_root run --rm "${options[@]}" --device hummingbird.dev/tenant=$device musl program
done
((bad)) || echo "all is well"
exit $bad
