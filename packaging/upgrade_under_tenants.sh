# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by checks_under_systemd.sh before anything is installed: installs the previous release's package, starts tenants,
# and upgrades, downgrades and upgrades again. No tenant ends and all stay scheduled. Then removes and purges the package.

echo "--- upgrading from the previous release, with tenants of root on a simulated GPU"
# An upgrade does not change NVIDIA's driver, so both releases use one simulated driver, that of this release.
export HB_SIM_GPU=/run/sim-gpu-upgrade HB_SIMCUDA_DIR=$PWD/simcuda
old=$(echo ./previous/hummingbird_*.deb)
new=$(echo ./hummingbird_*.deb)
tenants=()

# start PRIORITY COMMAND...: a tenant that runs to the end of this section.
start() {
	hb run "${GPU[@]}" --priority "$1" -- "${@:2}" >/dev/null 2>&1 </dev/null &
	tenants+=($!)
}
counts() { hb status "${GPU[@]}" | awk '$2 ~ /^(high|low)$/ && $7 ~ /^[0-9]+$/ {print $1, $7}' | sort; }
compute() { hb run "${GPU[@]}" --priority low -- ./cuda-tenant work 2 >"$1"; }
# all_continue N: N tenants are in the status, and each launches; no tenant has ended.
all_continue() {
	local before after one
	before=$(counts)
	sleep 1
	after=$(counts)
	echo "launches: '$before', then '$after'; $(hb status "${GPU[@]}" 2>&1)"
	for one in "${tenants[@]}"; do
		kill -0 "$one" || return 1
	done
	[[ $(wc -l <<<"$after") == "$1" ]] && join <(echo "$before") <(echo "$after") | awk -v n="$1" '$3 > $2 {more++} END {exit more != n}'
}
# A change that replaces the package: the daemon is another one, and everything else is as before.
replace_package() { # replace_package WHAT PACKAGE
	local daemon
	daemon=$(property MainPID)
	at_once "$1: the package installs" dpkg --install "$2"
	at_once "$1: the daemon is another one" other_daemon "$daemon"
	at_once "$1: the unit is there and enabled" systemctl --quiet is-enabled hummingbird
	at_once "$1: the unit's file is there" test -s /usr/lib/systemd/system/hummingbird.service
	at_once "$1: the configuration is the administrator's" grep -q "mps: $mps" /etc/hummingbird/hummingbird.yaml
	soon "$1: all tenants are scheduled" all_continue 4
	at_once "$1: a new program computes" compute computed
	at_once "$1: and got the same result" cmp expected computed
	# The tenant of the first release starts a program with the library path that it got from that release.
	rm -f /tmp/child
	touch /tmp/go
	soon "$1: a program that a running tenant starts computes the same" cmp expected /tmp/child
}

# upgrade_under_tenants MPS
upgrade_under_tenants() {
	mps=$1
	echo "with mps: $mps"
	at_once "the previous package installs" dpkg --install "$old"
	configure "mps: $mps"
	at_once "its daemon starts" systemctl enable --now hummingbird
	at_once "a program computes" compute expected
	start high ./cuda-tenant train 500 0
	start low ./cuda-tenant train 500 0
	start low ./cuda-tenant train 500 0
	# shellcheck disable=SC2016 # for the tenant's shell
	start low bash -c './cuda-tenant train 500 0 & trap "kill $!; exit" TERM; while sleep 0.2; do
		if [[ -e /tmp/go ]]; then rm /tmp/go; ./cuda-tenant work 2 >/tmp/part; mv /tmp/part /tmp/child; fi
	done'
	soon "all tenants are scheduled" all_continue 4
	replace_package "upgrade" "$new"
	replace_package "downgrade" "$old"
	replace_package "second upgrade" "$new"
	at_once "the package is removed" dpkg --remove hummingbird
	at_once "the daemon has ended" [ "$(property ActiveState)" != active ]
	sleep 3
	at_once "every tenant runs on" kill -0 "${tenants[@]}"
	kill "${tenants[@]}"
	wait "${tenants[@]}"
	tenants=()
	soon "all programs have ended" fails says "cuda-tenant" processes
	soon "the MPS server has ended" fails says "hb-sim-mps-" processes
	at_once "the package is purged" dpkg --purge hummingbird
	nothing_is_left
}

install --directory --mode=0777 "$HB_SIM_GPU"
use_simulated_gpu
for mps in false true; do
	upgrade_under_tenants "$mps"
done
rm -r /etc/systemd/system/hummingbird.service.d
systemctl daemon-reload
unset HB_SIMCUDA_DIR
