#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hummingbird-slurm_VERSION_ARCH.deb: the plugin of Slurm and the scripts for sites without it. Two builds of one commit
# give the same package.
# usage: packaging/slurm/make_slurm_deb.sh [OUTPUT FOLDER]. Needs gcc, dpkg-dev and libslurm-dev of the Slurm release that will load it.
cd "$(dirname "$0")/../.."
. tools/setup.sh

out=$(hb_path "${1:-.}")
slurm=$(dpkg-query -W -f '${source:Upstream-Version}' libslurm-dev 2>/dev/null) || die "libslurm-dev is missing: install it"
# Slurm refuses plugins of another major release, which is the first two numbers.
[[ $slurm =~ ^([0-9]+)\.([0-9]+) ]] || die "libslurm-dev has the version '$slurm', which is no release of Slurm"
major=${BASH_REMATCH[0]}
next=${BASH_REMATCH[1]}.$(printf %02d $((10#${BASH_REMATCH[2]} + 1)))
version=$(hb_version)+slurm$major
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(hb_source_date)
export SOURCE_DATE_EPOCH
gcc -std=gnu17 -O2 -Wall -shared -fPIC -s -o "$work/hb_spank.so" src/slurm/hb_spank.c
tree=$work/tree
install -Dm644 "$work/hb_spank.so" "$tree/usr/lib/hummingbird-slurm/hb_spank.so"
install -Dm755 -t "$tree/usr/share/hummingbird-slurm" packaging/slurm/{prolog,task_prolog,epilog}.sh packaging/slurm/set_weights.py
install -Dm644 src/slurm/hb_spank.c "$tree/usr/share/hummingbird-slurm/hb_spank.c"
install -Dm644 docs/slurm.md "$tree/usr/share/doc/hummingbird-slurm/slurm.md"
install -Dm644 packaging/debian/copyright "$tree/usr/share/doc/hummingbird-slurm/copyright"
hb_debian_changelog hummingbird-slurm "$version" | gzip -9n >"$tree/usr/share/doc/hummingbird-slurm/changelog.gz"
chmod 644 "$tree/usr/share/doc/hummingbird-slurm/changelog.gz"
# dpkg-shlibdeps reads the source's control file, and has no entry for what Slurm itself provides.
mkdir "$work/debian"
touch "$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O hb_spank.so 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<END
Package: hummingbird-slurm
Version: $version
Architecture: $architecture
Maintainer: $(hb_maintainer)
Depends: $libraries, hummingbird, slurmd (>= $major), slurmd (<< $next)
Recommends: python3
Section: admin
Priority: optional
Description: GPU sharing between jobs of Slurm
 The SPANK plugin hb_spank.so makes job steps tenants of Hummingbird, with the
 priority of their partition or QOS. Scripts do the same for sites that load no
 plugins. Nothing is active before plugstack.conf names the plugin.
END
find "$tree" -type d -exec chmod 755 {} +
dpkg-deb --build --root-owner-group "$tree" "$out/hummingbird-slurm_${version}_$architecture.deb"
