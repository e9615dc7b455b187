#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run as root in the fresh Debian that try_systemd.sh has booted: installs the package, breaks what the unit promises to
# mend, removes it. One line for each promise; the last line says whether all hold. Must not run anywhere else.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
export LC_ALL=C HB_SIM_GPU=/run/sim-gpu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LIMIT_S=120
GPU=(--gpu sim)
bad=0

# at_once WHAT COMMAND...: the command must succeed. soon WHAT COMMAND...: sooner or later.
judge() {
	if [[ $1 == 0 ]]; then
		echo "ok      $2"
	else
		echo "FAILED  $2: $(tail -n 20 /tmp/said)"
		bad=1
	fi
}
at_once() {
	local what=$1
	shift
	"$@" >/tmp/said 2>&1
	judge $? "$what"
}
soon() {
	local what=$1 result=1
	shift
	for ((i = 0; i < LIMIT_S && result; i++)); do
		if "$@" >/tmp/said 2>&1; then result=0; else sleep 1; fi
	done
	judge $result "$what"
}
fails() { ! "$@"; }
says() { # says TEXT COMMAND...: whatever its exit status
	local text=$1
	shift
	"$@" >/tmp/told 2>&1
	cat /tmp/told
	grep -qF -- "$text" /tmp/told
}
as() { runuser -u "$1" -- "${@:2}"; }
property() { systemctl show --property="$1" --value hummingbird; }
log() { journalctl --unit=hummingbird --output=cat; }
processes() { cat /proc/[0-9]*/comm; }
configure() { printf '%s\n' "$@" >/etc/hummingbird/hummingbird.yaml; }
other_daemon() { [[ $(property MainPID) != "$1" && $(property MainPID) != 0 && $(property ActiveState) == active ]]; }
# The program is known to the daemon by its priority and user, and launches.
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

echo "--- installing"
useradd --create-home ann
useradd --create-home bob
at_once "the package installs" dpkg --install ./hummingbird_*.deb
at_once "it makes the group" getent group hummingbird
at_once "and starts nothing" fails systemctl --quiet is-active hummingbird
usermod --append --groups hummingbird ann
at_once "the unit starts without a GPU, and is ready" systemctl enable --now hummingbird
at_once "a member of the group reaches the daemon" as ann hb status
at_once "nobody else does" fails as bob hb status
at_once "who is not in the group is told what to do" says "adduser" as bob hb run --priority low -- true

echo "--- over simulated GPUs, which belong to ann"
install --directory --owner=ann "$HB_SIM_GPU"
mkdir /etc/systemd/system/hummingbird.service.d
cat >/etc/systemd/system/hummingbird.service.d/sim.conf <<DROP_IN
[Service]
ExecStart=
ExecStart=/usr/sbin/hbd --system --foreground --gpu sim
Environment=HB_SIM_GPU=$HB_SIM_GPU HB_LOG=info
DROP_IN
configure 'mps: false' 'rules:' '  - {user: ann, priority: high, slo: 10ms}'
systemctl daemon-reload
at_once "the unit starts with a drop-in" systemctl restart hummingbird
at_once "hb doctor" as ann hb doctor "${GPU[@]}"
as ann hb run "${GPU[@]}" --priority low -- ./cuda-tenant work 2 >/tmp/under 2>/tmp/said
as ann env LD_LIBRARY_PATH="$(dirname /usr/lib/*/hummingbird/simcuda/hb-simgpu)" ./cuda-tenant work 2 >/tmp/without
at_once "a program computes the same under Hummingbird" cmp /tmp/under /tmp/without
as ann hb run "${GPU[@]}" --priority high -- ./cuda-tenant train 500 0 >/tmp/service 2>&1 &
service=$!
soon "a program of high priority runs" tenant_is_up
at_once "its slices are enforced" says "compute slice  enforced" hb status "${GPU[@]}"

echo "--- reloading"
configure 'mps: false' 'rules:' '  - {user: ann, priority: high, slo: 10ms}' '  - {user: bob, priority: low}'
at_once "a good configuration" systemctl reload hummingbird
soon "systemctl status says so" says "configuration read again" systemctl status hummingbird
daemon=$(property MainPID)
configure 'rules: 7'
at_once "a bad one is refused" fails systemctl reload hummingbird
soon "with file and line in the journal" says "hummingbird.yaml:1: rules" log
soon "and what it did not do" says "Reload failed for" log
kill -HUP "$daemon"
soon "also by SIGHUP" says "was not read again" systemctl status hummingbird
at_once "by the daemon that was there before" [ "$(property MainPID)" = "$daemon" ]
soon "the program runs on" tenant_is_up
configure 'mps: false' 'rules:' '  - {user: ann, priority: high, slo: 10ms}'
at_once "mended, it is taken" systemctl reload hummingbird

echo "--- failing"
daemon=$(property MainPID)
kill -KILL "$daemon"
soon "kill -9: systemd starts another daemon" other_daemon "$daemon"
soon "which takes the running program up again" tenant_is_up
daemon=$(property MainPID)
kill -STOP "$daemon"
soon "SIGSTOP: the watchdog replaces the daemon" other_daemon "$daemon"
soon "which takes the running program up again" tenant_is_up
at_once "both are counted" [ "$(property NRestarts)" = 2 ]
daemon=$(property MainPID)
at_once "the package installs over itself" dpkg --install ./hummingbird_*.deb
at_once "and restarts the daemon" other_daemon "$daemon"
soon "which takes the running program up again" tenant_is_up
at_once "no warning beside those of the bad configuration" \
	fails grep -vF "configuration not read again" <(log | grep -E "hbd: (error|warning)")
systemd-analyze security hummingbird | tail -n 1

kill "$service"
wait "$service"

echo "--- low priority in an MPS server, on simulated GPUs of root's"
export HB_SIM_GPU=/run/sim-gpu-root
sed -i "s|HB_SIM_GPU=[^ ]*|HB_SIM_GPU=$HB_SIM_GPU|" /etc/systemd/system/hummingbird.service.d/sim.conf
configure 'mps: true'
systemctl daemon-reload
at_once "the daemon starts anew" systemctl restart hummingbird
hb run "${GPU[@]}" --priority low -- ./cuda-tenant train 500 0 >/tmp/service 2>&1 &
service=$!
wanted="low root"
soon "a program of low priority runs" tenant_is_up
at_once "in the MPS server" says "MPS server for low priority: ready" hb status "${GPU[@]}"
daemon=$(property MainPID)
kill -KILL "$daemon"
soon "kill -9: systemd starts another daemon" other_daemon "$daemon"
soon "which takes the running program up again" tenant_is_up
at_once "another program of low priority runs" hb run "${GPU[@]}" --priority low -- ./cuda-tenant train 500 100
soon "and has reminded the MPS server to register" says "1 us on the group of the MPS server" hb status "${GPU[@]}"

echo "--- removing"
at_once "the package goes" dpkg --remove hummingbird
at_once "the program does not" kill -0 "$service"
at_once "its configuration stays" [ -s /etc/hummingbird/hummingbird.yaml ]
kill "$service"
wait "$service"
soon "the MPS server goes with the last program" fails says "hb-sim-mps-" processes
rm -r /etc/systemd/system/hummingbird.service.d
at_once "it is purged" dpkg --purge hummingbird
at_once "the group is gone" fails getent group hummingbird
soon "systemd has forgotten the unit" fails says "hummingbird" systemctl list-units --all --plain 'hummingbird*' --no-legend
at_once "no file is left" fails says "/" find / -xdev -not -path '/tmp/*' -not -path '/var/log/*' -name '*hummingbird*'
at_once "nor below /run" fails says "/" find /run -maxdepth 1 -name '*hummingbird*'
((bad)) || echo "all is well"
