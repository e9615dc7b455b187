#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries hb-k8s in a real cluster of one node on a simulated GPU: Kubernetes 1.20 (API server, scheduler, controllers, kubelet), built
# from Debian 12's source package with Debian's Go, and Debian's etcd, containerd and runc (tests/k8s/try_cluster.py has the tests).
# usage: packaging/try_kubernetes.sh [--build] [FOLDER]     --build: builds Kubernetes and tries nothing; does not need root
# Needs Debian 12, root, the network, gcc with a static libc, 4 GB, and cgroups (v1 or hybrid) that can be changed; the build takes
# about half an hour on two cores. HB_BUILD is the build of this tree (default: build). Installs nothing: what runs is in
# namespaces of its own. FOLDER keeps what was downloaded and built for the next run; without FOLDER it is temporary.
cd "$(dirname "$0")/.."
. tools/setup.sh
. packaging/debians.sh

top=$PWD
mode=--try
if [[ ${1:-} == --build || ${1:-} == --make ]]; then
	mode=$1
	shift
fi
if [[ $mode == --try ]]; then
	((EUID == 0)) || die "only root can run a kubelet: sudo $0"
	command -v gcc openssl >/dev/null || die "gcc or openssl is missing"
fi
hb_folder_or_temporary "${1:-}"
programs=(kubelet kube-apiserver kube-scheduler kube-controller-manager)
source=$folder/src/k8s.io/kubernetes
export GOROOT=$folder/root/usr/lib/go-1.19 GOPATH=$folder GOCACHE=$folder/cache GOPROXY=off GO111MODULE=off CGO_ENABLED=0

# Debian's packages without installing them, and the source of Kubernetes, which has all that it needs.
download() {
	local mirror directory file
	mirror=$(hb_debian_mirror)
	apt-get download golang-1.19-go golang-1.19-src containerd runc etcd-server
	for file in ./*.deb; do dpkg-deb --extract "$file" root; done
	curl -fsS "$mirror/dists/bookworm/main/source/Sources.xz" | xz -dc | awk '/^Package: / {p = $2 == "kubernetes"} p {print}' >package.txt
	directory=$(sed -n 's/^Directory: //p' package.txt)
	sed -n '/^Checksums-Sha256/,/^[^ ]*$/s/^ \([0-9a-f]*\) [0-9]* \(.*\.tar\..*\)/\1  \2/p' package.txt >sums.txt
	[[ -s sums.txt ]] || die "$mirror has no source package kubernetes"
	while read -r _ file; do
		[[ -f $file ]] || curl -fsS -O "$mirror/$directory/$file"
	done <sums.txt
	sha256sum --check --quiet sums.txt
	[[ -d $source/cmd ]] || tar -xzf kubernetes_*.orig.tar.gz -C "$source" --strip-components=1
}

# One file of the API server is not in the source package, because it is generated.
generate() {
	local packages
	[[ ! -f pkg/generated/openapi/zz_generated.openapi.go ]] || return 0
	PATH=$GOROOT/bin:$PATH
	go build -o "$folder/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
	packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg plugin staging/src/k8s.io | sed 's|^staging/src/|vendor/|' | xargs -n1 dirname |
		grep -v -e vendor/k8s.io/code-generator -e vendor/k8s.io/sample-apiserver -e testdata | LC_ALL=C sort -u | sed 's|^|k8s.io/kubernetes/|')
	"$folder/openapi-gen" --logtostderr -i "${packages//$'\n'/,}" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
		-h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$folder/violations.report"
}

build() {
	local version=k8s.io/component-base/version
	for program in "${programs[@]}"; do
		[[ -x $folder/programs/$program ]] || "$GOROOT/bin/go" build -trimpath -o "$folder/programs/" \
			-ldflags "-s -w -X $version.gitVersion=v1.20.2 -X $version.gitMajor=1 -X $version.gitMinor=20" "./cmd/$program"
	done
	cp "$folder"/root/usr/bin/{containerd,containerd-shim-runc-v2,ctr,etcd} "$folder/root/usr/sbin/runc" "$folder/programs"
	touch "$folder/is-complete"
}

# A process of its own, because bash ignores errors in what precedes `||`.
if [[ $mode == --make ]]; then
	mkdir -p "$folder/programs" "$source" "$folder/root"
	cd "$folder"
	download
	cd "$source"
	generate
	build
	exit
fi
if [[ ! -f $folder/is-complete ]]; then
	echo "building Kubernetes 1.20 (log: $folder/build.log)"
	"$top/packaging/try_kubernetes.sh" --make "$folder" >"$folder/build.log" 2>&1 || die "Kubernetes was not built: $(tail -n 5 "$folder/build.log")"
fi
[[ $mode == --try ]] || exit 0
HB_BUILD=$(realpath "${HB_BUILD:-build}") PYTHONPATH=tests/end-to-end tests/k8s/try_cluster.py "$folder/programs"
