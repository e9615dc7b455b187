#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Boots a Debian 12 with its own systemd in a container and tests there what needs systemd: the package and its unit
# (checks_under_systemd.sh prints one line for each check). usage: packaging/try_systemd.sh [--vm] [FOLDER]
# Needs root, the network, debootstrap, systemd-nspawn (package systemd-container), the packages for building, and some
# minutes. With --vm it boots a virtual machine instead, with Debian's kernel, so that all limits of the unit are in force
# whatever this machine's kernel offers; needs qemu-system-x86, and half an hour without KVM. Installs nothing on this
# machine. FOLDER keeps the Debian and the builds for the next run; without FOLDER they are temporary.
cd "$(dirname "$0")/.."
. tools/setup.sh
. packaging/debians.sh

kind=container LIMIT_S=900
tools=(dpkg-deb systemd-nspawn)
extra=systemd-sysv,dbus,iproute2
if [[ ${1:-} == --vm ]]; then
	shift
	kind=vm LIMIT_S=3600
	tools=(dpkg-deb qemu-system-x86_64 mke2fs)
	extra+=,linux-image-cloud-amd64
fi
hb_need_root "${tools[@]}"
hb_folder_or_temporary "${1:-}"
tree=$folder/debian-$kind
share=$folder/try
rm -rf "$share"
mkdir -p "$share"

echo "building (log: $folder/build.log)"
{
	packaging/make_deb.sh "$share" "$folder/build-deb"
	dpkg-deb --extract "$share"/hummingbird_*.deb "$folder/new"
	# The simulated driver and the table of its GPU.
	mkdir -p "$share/share/hummingbird"
	cp -r "$folder/new/usr/libexec/hummingbird/cuda-tenant" "$folder"/new/usr/lib/*/hummingbird/simcuda "$share"
	cp -r "$folder/new/usr/share/hummingbird/gpus" "$share/share/hummingbird"
	rm -r "$folder/new"
	# The previous release: the newest tag of another version, or the commit that tests/compat takes for it.
	previous=$({ git tag --merged HEAD --sort=-version:refname 'v*' | grep -vx "v$(hb_version)"
		sed -n 's/^PREVIOUS = "\(.*\)"/\1/p' tests/compat/test_previous_release.py; } | sed -n 1p)
	if git cat-file -e "$previous^{commit}"; then
		rm -rf "$folder/previous"
		mkdir -p "$folder/previous" "$share/previous"
		git archive "$previous" | tar -x -C "$folder/previous"
		"$folder/previous/packaging/make_deb.sh" "$share/previous" "$folder/build-previous-$previous"
	fi
} >"$folder/build.log" 2>&1 || die "no package was built: $(tail -n 5 "$folder/build.log")"
cp packaging/{checks,checks_under_systemd,upgrade_under_tenants,unit_limits}.sh "$share"

# Installs the dependencies of the package from Debian, as apt would.
asked=$(dpkg-deb --field "$(echo "$share"/*.deb)" Depends | sed 's/ *([^)]*)//g; s/ *|[^,]*//g; s/, */,/g')
hb_make_debian bookworm "$tree" "$extra,$asked" || die "no Debian 12 was made"
log=/try/checks.log
[[ $kind == container ]] || log=/dev/ttyS1
cat >"$tree/etc/systemd/system/try.service" <<UNIT
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/try/checks_under_systemd.sh
ExecStopPost=systemctl --no-block poweroff
StandardOutput=file:$log
StandardError=inherit
UNIT
mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
ln -sf ../try.service "$tree/etc/systemd/system/multi-user.target.wants/"

# The container writes to memory only. Without systemd on this machine the container cannot be registered.
boot_container() {
	local options=(--boot "--directory=$tree" --volatile=overlay "--bind=$share:/try" --private-network --machine=hb-try)
	[[ -d /run/systemd/system ]] || options+=(--register=no --keep-unit)
	timeout -k 10 "$LIMIT_S" systemd-nspawn "${options[@]}" </dev/null >"$folder/console.log" 2>&1
}

# The second serial line carries the results. What the machine writes to its disk is dropped.
boot_vm() {
	rm -rf "$tree/try" "$folder/disk"
	cp -r "$share" "$tree/try"
	truncate -s 4G "$folder/disk"
	mke2fs -q -t ext4 -d "$tree" "$folder/disk"
	local accelerator=tcg
	if grep -qE '\<(vmx|svm)\>' /proc/cpuinfo; then accelerator=kvm:tcg; fi
	timeout -k 10 "$LIMIT_S" qemu-system-x86_64 -machine "q35,accel=$accelerator" -smp 2 -m 2G -nic none -no-reboot \
		-display none -monitor none -snapshot -drive "file=$folder/disk,format=raw,if=virtio" \
		-kernel "$(echo "$tree"/boot/vmlinuz-*)" -initrd "$(echo "$tree"/boot/initrd.img-*)" \
		-append "root=/dev/vda rw console=ttyS0" \
		-serial "file:$folder/console.log" -serial "file:$share/checks.log" 2>"$folder/qemu.log"
	sed -i 's/\r$//' "$share/checks.log"
}

echo "booting a $kind (console: $folder/console.log)"
"boot_$kind" || echo "the $kind: $(tail -n 1 "$folder/console.log")"
cat "$share/checks.log"
[[ $(tail -n 1 "$share/checks.log") == "all is well" ]]
