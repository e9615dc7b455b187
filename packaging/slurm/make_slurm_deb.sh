#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hummingbird-slurm_VERSION_ARCH.deb: the plugin of Slurm and the scripts for sites without it.
# usage: packaging/slurm/make_slurm_deb.sh [OUTPUT FOLDER]. Needs gcc, dpkg-dev and libslurm-dev of the Slurm release that will load it.
cd "$(dirname "$0")/../.."
. tools/setup.sh

out=$(realpath "${1:-$OLDPWD}")
slurm=$(dpkg-query -W -f '${source:Upstream-Version}' libslurm-dev 2>/dev/null) || die "libslurm-dev is missing: install it"
# Slurm refuses plugins of another major release, which is the first two numbers.
[[ $slurm =~ ^([0-9]+)\.([0-9]+) ]] || die "libslurm-dev has the version '$slurm', which is no release of Slurm"
major=${BASH_REMATCH[0]}
next=${BASH_REMATCH[1]}.$(printf %02d $((10#${BASH_REMATCH[2]} + 1)))
version=$(sed -n "s/^ *version: '\([0-9.]*\)'.*/\1/p" meson.build | head -1)
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -std=gnu17 -O2 -Wall -shared -fPIC -s -o "$work/hb_spank.so" src/slurm/hb_spank.c
tree=$work/tree
install -Dm644 "$work/hb_spank.so" "$tree/usr/lib/hummingbird-slurm/hb_spank.so"
install -Dm755 -t "$tree/usr/share/hummingbird-slurm" packaging/slurm/{prolog,task_prolog,epilog}.sh
install -Dm644 src/slurm/hb_spank.c "$tree/usr/share/hummingbird-slurm/hb_spank.c"
install -Dm644 docs/slurm.md "$tree/usr/share/doc/hummingbird-slurm/slurm.md"
install -Dm644 LICENSE "$tree/usr/share/doc/hummingbird-slurm/copyright"
mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<END
Package: hummingbird-slurm
Version: $version+slurm$major
Architecture: $architecture
Maintainer: Hummingbird developers <hummingbird@localhost>
Depends: hummingbird, slurmd (>= $major), slurmd (<< $next)
Section: admin
Priority: optional
Description: GPU sharing between jobs of Slurm
 The SPANK plugin hb_spank.so makes job steps tenants of Hummingbird, with the
 priority of their partition or QOS. Scripts do the same for sites that load no
 plugins. Nothing is active before plugstack.conf names the plugin.
END
find "$tree" -type d -exec chmod 755 {} +
dpkg-deb --build --root-owner-group "$tree" "$out/hummingbird-slurm_$version+slurm${major}_$architecture.deb"
