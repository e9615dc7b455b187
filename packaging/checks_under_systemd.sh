#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs as root in the fresh Debian that try_systemd.sh has booted: installs the package, causes the failures from which the
# unit must recover, and removes the package. Prints one line for each check; the last line says whether all passed. Must
# not run anywhere else.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
export LC_ALL=C
PATH=/usr/sbin:/usr/bin:/sbin:/bin
GPU=(--gpu sim)
. ./checks.sh

says() { # says TEXT COMMAND...: the output contains TEXT, with any exit status
	local text=$1
	shift
	"$@" >/tmp/shown 2>&1
	cat /tmp/shown
	grep -qF -- "$text" /tmp/shown
}
as() { runuser -u "$1" -- "${@:2}"; } # to get the process id of a program in the background, call runuser itself
property() { systemctl show --property="$1" --value hummingbird; }
log() { journalctl --unit=hummingbird --output=cat; }
processes() { cat /proc/[0-9]*/comm; }
configure() { printf '%s\n' "$@" >/etc/hummingbird/hummingbird.yaml; }
other_daemon() { [[ $(property MainPID) != "$1" && $(property MainPID) != 0 && $(property ActiveState) == active ]]; }
# The daemon shows a tenant of this priority and user, and the tenant launches.
wanted="high ann"
launches() { hb status "${GPU[@]}" | awk -v wanted="$wanted" '$2 " " $4 == wanted {print $7}'; }
tenant_is_up() {
	local before after
	before=$(launches)
	sleep 1
	after=$(launches)
	echo "launches: '$before', then '$after'; $(hb status "${GPU[@]}" 2>&1)"
	kill -0 "$service" && [[ -n $before && -n $after ]] && ((after > before))
}

# A drop-in that lets the daemon schedule the simulated GPUs in HB_SIM_GPU.
use_simulated_gpu() {
	mkdir -p /etc/systemd/system/hummingbird.service.d
	cat >/etc/systemd/system/hummingbird.service.d/sim.conf <<-DROP_IN
		[Service]
		ExecStart=
		ExecStart=/usr/sbin/hbd --system --foreground --gpu sim
		Environment=HB_SIM_GPU=$HB_SIM_GPU HB_LOG=info ${HB_SIMCUDA_DIR:+HB_SIMCUDA_DIR=$HB_SIMCUDA_DIR}
	DROP_IN
	systemctl daemon-reload
}
# After purging.
nothing_is_left() {
	at_once "the group is gone" fails getent group hummingbird
	at_once "the user is gone" fails getent passwd hummingbird
	at_once "no file is left" fails says "/" find / -xdev -not -path '/tmp/*' -not -path '/try/*' -not -path '/var/log/*' \
		-not -path /etc/systemd/system/hummingbird.service.d -name '*hummingbird*'
	at_once "no file is left below /run" fails says "/" find /run -maxdepth 1 -name '*hummingbird*'
}

if [[ -d previous ]]; then
	. ./upgrade_under_tenants.sh
else
	skip "upgrade from the previous release" "the history lacks it"
fi

echo "--- installing"
export HB_SIM_GPU=/run/sim-gpu
useradd --create-home ann
useradd --create-home bob
at_once "the package installs" dpkg --install ./hummingbird_*.deb
at_once "it creates the group" getent group hummingbird
at_once "it creates the user" getent passwd hummingbird
at_once "it starts nothing" fails systemctl --quiet is-active hummingbird
usermod --append --groups hummingbird ann
at_once "the unit starts without a GPU and becomes ready" systemctl enable --now hummingbird
# field NAME: the first value of a line of the daemon's /proc/PID/status.
field() { awk -v name="$1:" '$1 == name {print $2}' "/proc/$(property MainPID)/status"; }
at_once "the daemon continues as its user" [ "$(field Uid)" = "$(id -u hummingbird)" ]
at_once "the daemon has no capability" [ "$(field CapPrm)" = 0000000000000000 ]
at_once "its helper process runs" says "hbd-helper" processes
at_once "a member of the group can use the daemon" as ann hb status
at_once "another user cannot" fails as bob hb status
at_once "another user learns how to join the group" says "adduser" as bob hb run --priority low -- true

echo "--- over simulated GPUs, which belong to ann"
install --directory --owner=ann --mode=0777 "$HB_SIM_GPU" # open to all users, as NVIDIA's devices
use_simulated_gpu
configure 'mps: false' 'rules:' '  - {user: ann, priority: high, slo: 10ms}'
at_once "the unit starts with a drop-in" systemctl restart hummingbird
at_once "hb doctor" as ann hb doctor "${GPU[@]}"
as ann hb run "${GPU[@]}" --priority low -- ./cuda-tenant work 2 >/tmp/under 2>/tmp/output
as ann env LD_LIBRARY_PATH="$(dirname /usr/lib/*/hummingbird/simcuda/hb-simgpu)" ./cuda-tenant work 2 >/tmp/without
at_once "a program computes the same under Hummingbird" cmp /tmp/under /tmp/without
runuser -u ann -- hb run "${GPU[@]}" --priority high -- ./cuda-tenant train 500 0 >/tmp/service 2>&1 &
service=$!
soon "a high-priority program runs" tenant_is_up
at_once "its time slices are enforced" says "compute slice  enforced" hb status "${GPU[@]}"

echo "--- reloading"
configure 'mps: false' 'rules:' '  - {user: ann, priority: high, slo: 10ms}' '  - {user: bob, priority: low}'
at_once "a good configuration is accepted" systemctl reload hummingbird
soon "systemctl status shows that" says "configuration read again" systemctl status hummingbird
daemon=$(property MainPID)
configure 'rules: 7'
at_once "a bad configuration is refused" fails systemctl reload hummingbird
soon "the journal has file and line" says "hummingbird.yaml:1: rules" log
soon "and says that the reload failed" says "Reload failed for" log
kill -HUP "$daemon"
soon "SIGHUP refuses it, too" says "the old one stays in force" systemctl status hummingbird
at_once "the daemon is still the same" [ "$(property MainPID)" = "$daemon" ]
soon "the program continues" tenant_is_up
configure 'mps: false' 'rules:' '  - {user: ann, priority: high, slo: 10ms}'
at_once "the corrected configuration is accepted" systemctl reload hummingbird

echo "--- failing"
daemon=$(property MainPID)
kill -KILL "$daemon"
soon "kill -9: systemd starts another daemon" other_daemon "$daemon"
soon "the new daemon continues with the running program" tenant_is_up
daemon=$(property MainPID)
kill -STOP "$daemon"
soon "SIGSTOP: the watchdog replaces the daemon" other_daemon "$daemon"
soon "the new daemon continues with the running program" tenant_is_up
at_once "systemd counted both restarts" [ "$(property NRestarts)" = 2 ]
daemon=$(property MainPID)
at_once "the package can be upgraded" dpkg --install ./hummingbird_*.deb
at_once "the upgrade restarts the daemon" other_daemon "$daemon"
soon "the new daemon continues with the running program" tenant_is_up
# A daemon that continues for a moment after SIGSTOP reports its pause. A container may not raise its limit of open files.
expected="the configuration has an error|the event loop has not finished a turn"
(($(ulimit -Hn) >= 65536)) || expected+="|open files allows"
at_once "the log has no other warnings than those that the tests cause" \
	fails grep -vE "$expected" <(log | grep -E "hbd: (error|warning)")
systemd-analyze security hummingbird | tail -n 1

. ./unit_limits.sh

kill "$service"
wait "$service"

echo "--- low priority in an MPS server, on root's simulated GPUs"
export HB_SIM_GPU=/run/sim-gpu-root
install --directory --mode=0777 "$HB_SIM_GPU"
use_simulated_gpu
configure 'mps: true'
at_once "the daemon restarts" systemctl restart hummingbird
hb run "${GPU[@]}" --priority low -- ./cuda-tenant train 500 0 >/tmp/service 2>&1 &
service=$!
wanted="low root"
soon "a low-priority program runs" tenant_is_up
at_once "it runs in the MPS server" says "MPS server for low priority: ready" hb status "${GPU[@]}"
daemon=$(property MainPID)
kill -KILL "$daemon"
soon "kill -9: systemd starts another daemon" other_daemon "$daemon"
soon "the new daemon continues with the running program" tenant_is_up
at_once "another low-priority program runs" hb run "${GPU[@]}" --priority low -- ./cuda-tenant train 500 100
soon "the MPS server has registered again" says "1 us on the channel group of the MPS server" hb status "${GPU[@]}"

echo "--- removing"
at_once "the package is removed" dpkg --remove hummingbird
at_once "the program continues" kill -0 "$service"
at_once "its configuration stays" [ -s /etc/hummingbird/hummingbird.yaml ]
kill "$service"
wait "$service"
soon "the MPS server ends with the last program" fails says "hb-sim-mps-" processes
rm -r /etc/systemd/system/hummingbird.service.d
at_once "the package is purged" dpkg --purge hummingbird
nothing_is_left
soon "systemd no longer knows the unit" fails says "hummingbird" systemctl list-units --all --plain 'hummingbird*' --no-legend
((bad)) || echo "all is well"
