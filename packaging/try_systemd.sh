#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Boots a Debian 12 with its own systemd in a container and tests there what needs systemd: the package and its unit
# (checks_under_systemd.sh prints one line for each check). usage: packaging/try_systemd.sh [FOLDER]
# Needs root, the network, debootstrap, systemd-nspawn (package systemd-container), the packages for building, and some
# minutes. Installs nothing on this machine. FOLDER keeps the Debian and the builds for the next run; without FOLDER they
# are temporary.
cd "$(dirname "$0")/.."
. tools/setup.sh

LIMIT_S=900
for tool in debootstrap systemd-nspawn dpkg-deb; do
	command -v "$tool" >/dev/null || die "$tool is missing: install the package that contains it"
done
((EUID == 0)) || die "only root can boot a container: sudo $0"
folder=${1:-}
if [[ -z $folder ]]; then
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder"
folder=$(realpath "$folder")
tree=$folder/debian
share=$folder/try
rm -rf "$share"
mkdir -p "$share"

echo "building (log: $folder/build.log)"
{
	packaging/make_deb.sh "$share" "$folder/build-deb"
	[[ -f $folder/build/build.ninja ]] || meson setup "$folder/build"
	ninja -C "$folder/build" -j "$HB_JOBS" bench/tenant/cuda-tenant
} >"$folder/build.log" 2>&1 || die "no package was built: $(tail -n 5 "$folder/build.log")"
cp packaging/checks_under_systemd.sh "$folder/build/bench/tenant/cuda-tenant" "$share"

# Installs the dependencies of the package from Debian, as apt would.
if [[ ! -f $folder/debian-is-complete ]]; then
	echo "making a Debian 12 (log: $folder/debootstrap.log)"
	rm -rf "$tree"
	asked=$(dpkg-deb --field "$(echo "$share"/*.deb)" Depends | sed 's/ *([^)]*)//g; s/ *|[^,]*//g; s/, */,/g')
	debootstrap --variant=minbase --include="systemd-sysv,dbus,$asked" bookworm "$tree" >"$folder/debootstrap.log" 2>&1 ||
		die "debootstrap failed: $(tail -n 5 "$folder/debootstrap.log")"
	touch "$folder/debian-is-complete"
fi
cat >"$tree/etc/systemd/system/try.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/try/checks_under_systemd.sh
ExecStopPost=systemctl --no-block poweroff
StandardOutput=file:/try/checks.log
StandardError=inherit
UNIT
mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
ln -sf ../try.service "$tree/etc/systemd/system/multi-user.target.wants/"

# The container writes to memory only. Without systemd on this machine the container cannot be registered.
echo "booting (console: $folder/console.log)"
options=(--boot "--directory=$tree" --volatile=overlay "--bind=$share:/try" --private-network --machine=hb-try)
[[ -d /run/systemd/system ]] || options+=(--register=no --keep-unit)
timeout -k 10 "$LIMIT_S" systemd-nspawn "${options[@]}" </dev/null >"$folder/console.log" 2>&1 ||
	echo "the container: $(tail -n 1 "$folder/console.log")"
cat "$share/checks.log"
[[ $(tail -n 1 "$share/checks.log") == "all is well" ]]
