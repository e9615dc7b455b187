#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the system service from the folder in which Hummingbird was unpacked: user, group, configuration and unit, as the
# Debian package does. Starts nothing. Part of the tarball. usage: sudo share/hummingbird/install-service [--remove]
set -e
prefix=$(cd "$(dirname "$0")/../.." && pwd -P)
unit=/etc/systemd/system/hummingbird.service
say() { echo "hummingbird: $*"; }
reload() { [ ! -d /run/systemd/system ] || systemctl daemon-reload; }

[ "$(id -u)" = 0 ] || { say "only root can install a service: sudo $0" >&2; exit 1; }
if [ "$1" = --remove ]; then
	[ ! -d /run/systemd/system ] || systemctl disable --now hummingbird || true
	"$prefix/share/hummingbird/maintain" end-mps
	rm -f "$unit"
	reload
	say "the service is removed. The user and the group hummingbird, /etc/hummingbird and /var/lib/hummingbird remain."
	exit 0
fi
case $prefix/ in
/home/* | /root/* | /tmp/* | /var/tmp/*)
	say "the service does not see files in $prefix; move the folder, to /opt say" >&2
	exit 1
	;;
esac
"$prefix/share/hummingbird/maintain" add-user
mkdir -p /etc/hummingbird "$(dirname "$unit")"
[ -e /etc/hummingbird/hummingbird.yaml ] ||
	install -m644 "$prefix/etc/hummingbird/hummingbird.yaml" /etc/hummingbird/hummingbird.yaml
sed "s|=/usr/sbin/hbd|=$prefix/sbin/hbd|" "$prefix/lib/systemd/system/hummingbird.service" >"$unit"
reload
say "to share GPUs between all users: systemctl enable --now hummingbird, and add each user to the group hummingbird"
