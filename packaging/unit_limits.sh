# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by checks_under_systemd.sh: tries each limit of the unit while the daemon and a program run. A limit that this
# machine's kernel or container does not offer is reported as skipped. Changes the unit at run time only.

echo "--- the unit's limits"
daemon=$(property MainPID)
group=/sys/fs/cgroup$(property ControlGroup)

has_bit() { # has_bit SET NUMBER: the daemon has this capability in CapEff, CapPrm or CapBnd
	(((0x$(awk -v set="$1:" '$1 == set {print $2}' "/proc/$daemon/status") >> $2) & 1))
}
shows() { grep -qE "^$1:\s+$2\$" "/proc/$daemon/status"; }
in_its_view() { nsenter --target "$daemon" --mount -- "$@"; } # runs a command with the file systems as the daemon sees them
in_its_group() { (echo "$BASHPID" >"$group/cgroup.procs" && exec "$@"); }
daemon_answers() { [[ $(property MainPID) == "$daemon" ]] && hb status "${GPU[@]}"; }
connects() { timeout 3 bash -c ": </dev/tcp/$1/9464"; }

# The places where the daemon must not write, and those where it must.
for place in /usr /etc /boot /var/lib; do
	at_once "it cannot write to $place" fails in_its_view touch "$place/try"
done
at_once "it does not see home folders" fails in_its_view test -e /home/ann
at_once "it can write to its runtime folder" in_its_view touch /run/hummingbird/try
rm -f /run/hummingbird/try
touch /tmp/of-the-host
at_once "it has its own /tmp" fails in_its_view test -e /tmp/of-the-host
at_once "it cannot open other devices" fails in_its_group dd if=/dev/mem of=/dev/null bs=1 count=1

# 21, 17, 16 and 12 are CAP_SYS_ADMIN, CAP_SYS_RAWIO, CAP_SYS_MODULE and CAP_NET_ADMIN in linux/capability.h.
for capability in 21 17 16 12; do
	at_once "it cannot get capability $capability" fails has_bit CapBnd "$capability"
done
at_once "it cannot get rights from set-user-ID programs" shows NoNewPrivs 1
at_once "system calls are filtered" shows Seccomp 2

# Metrics on all addresses: the unit's filter admits this machine's own address only.
if ip address add 192.0.2.7/32 dev lo 2>/tmp/output; then
	configure 'metrics: 0.0.0.0:9464' 'mps: false' 'rules:' '  - {user: ann, priority: high, slo: 10ms}'
	systemctl restart hummingbird
	daemon=$(property MainPID)
	soon "metrics are served to this machine" connects 127.0.0.1
	if log | grep -q "does not support.*firewall" || ! [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
		skip "other addresses are refused" "this machine has no address filter for units"
	else
		at_once "other addresses are refused" fails connects 192.0.2.7
	fi
	ip address del 192.0.2.7/32 dev lo
else
	skip "other addresses are refused" "$(cat /tmp/output)"
fi

# Memory and tasks. OOMPolicy=continue: the kernel ends the process that takes too much, and the daemon continues.
daemon=$(property MainPID)
if [[ -e $group/memory.max ]]; then
	at_once "MemoryMax is in force" [ "$(cat "$group/memory.max")" = $((2 << 30)) ]
	peak=$(($(cat "$group/memory.peak") >> 20))
	echo "measured: the daemon (one tenant, simulated GPU) used $peak MiB at most"
	systemctl set-property --runtime hummingbird MemoryMax=256M MemorySwapMax=0
	at_once "a process that takes more is ended" fails in_its_group bash -c 'head -c 1G /dev/zero | tail -c 1G >/dev/null'
	at_once "it was ended by the kernel" [ "$(awk '$1 == "oom_kill" {print $2}' "$group/memory.events")" -ge 1 ]
	at_once "the daemon continues" daemon_answers
	systemctl set-property --runtime hummingbird MemoryMax=2G
else
	skip "MemoryMax" "the container has no memory controller: run the script with --vm"
fi
if [[ -e $group/pids.max ]]; then
	at_once "TasksMax is in force" [ "$(cat "$group/pids.max")" = 8192 ]
	systemctl set-property --runtime hummingbird TasksMax=$(($(cat "$group/pids.current") + 4))
	at_once "more tasks are refused" fails in_its_group bash -c 'for i in {1..20}; do sleep 3 & done; wait'
	at_once "the daemon continues" daemon_answers
	systemctl set-property --runtime hummingbird TasksMax=8192
else
	skip "TasksMax" "the container has no controller of tasks: run the script with --vm"
fi
soon "the program continues" tenant_is_up
