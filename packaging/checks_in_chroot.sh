#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs as root in the minimal Debian that try_release.sh has made: unpacks the tarball and installs the wheel (archives), or
# finds the RPM package installed (package), and uses them as a user without rights, on a simulated GPU. Prints one line for
# each check. Must not run anywhere else. usage: checks_in_chroot.sh archives|package
# shellcheck disable=SC2016 # what is in quotes is for the user's shell
set -uo pipefail
# Only there it is the first process and has this folder.
(($$ == 1)) && cd /share || exit 1
export LC_ALL=C
. ./checks.sh

# as_user WHAT SCRIPT: a script of user ann, who has hb on the path, must succeed.
as_user() {
	local what=$1
	runuser -u ann -- env PATH="$bin:/usr/bin:/bin" XDG_RUNTIME_DIR=/tmp/ann HB_SIM_GPU=/tmp/ann/gpu HOME=/home/ann TENANT="$tenant" \
		"${under[@]}" bash -euo pipefail -c "$2" >/tmp/output 2>&1 </dev/null
	judge $? "$what"
}
client='import json, ssl, sys, time, urllib.request
context = ssl.create_default_context(cafile="/share/cert.pem") if sys.argv[1].startswith("https") else None
body = b"{\"inputs\": [{\"name\": \"scores\", \"datatype\": \"FP32\", \"shape\": [1, 4], \"data\": [0, 0, 0, 0]}]}"
for left in range(200, -1, -1):
    try:
        answer = urllib.request.urlopen(sys.argv[1] + "/v2/models/softmax/infer", body, context=context).read()
        break
    except OSError:
        if not left: raise
        time.sleep(0.1)
assert json.loads(answer)["outputs"][0]["data"] == [0.25] * 4, answer'
printf '%s\n' "$client" >/tmp/client.py

# The checks that need programs on the path only.
try_programs() {
	as_user "the daemon schedules a service and a job" '
		hb run --gpu sim --priority low -- $TENANT train 500 0 >/tmp/ann/train & job=$!
		hb run --gpu sim --priority high --slo 10ms -- $TENANT infer --rate 40 --seconds 4 >/tmp/ann/infer & service=$!
		for ((i = 0; i < 200; i++)); do
			hb status --gpu sim >/tmp/ann/status 2>&1 || true
			[[ $(grep -c "compute slice *enforced" /tmp/ann/status) == 2 ]] && break
			sleep 0.1
		done
		wait $service
		kill -TERM $job
		cat /tmp/ann/{status,train,infer}
		((i < 200))
		grep -q p50_us /tmp/ann/infer'
	as_user "hb serve answers" '
		hb serve --models /tmp/examples/models --gpu none --http 127.0.0.1:8000 --grpc none & server=$!
		python3 /tmp/client.py http://127.0.0.1:8000
		kill $server'
	as_user "hb serve answers with TLS" '
		hb serve --models /tmp/examples/models --gpu none --http 127.0.0.1:8443 --grpc none \
			--tls-cert /share/cert.pem --tls-key /tmp/ann/key.pem & server=$!
		python3 /tmp/client.py https://127.0.0.1:8443
		kill $server'
	as_user "hb doctor finds everything that is required" 'hb doctor --gpu sim >/tmp/ann/doctor; tail -n 1 /tmp/ann/doctor | grep "everything that is required works"'
}

# Ends the user's programs and the daemon that they started.
end_programs() {
	local process
	for process in /proc/[0-9]*; do
		[[ $(stat -c %U "$process" 2>/dev/null) != ann ]] || kill "${process#/proc/}" 2>/dev/null
	done
}

id ann >/dev/null 2>&1 || useradd --create-home ann
install --directory --owner=ann --mode=0700 /tmp/ann
install --owner=ann --mode=0600 key.pem /tmp/ann
if [[ $1 == package ]]; then
	echo "the RPM package"
	bin=/usr/sbin:/usr/bin tenant=/usr/libexec/hummingbird/cuda-tenant under=()
	cp -r /usr/share/doc/hummingbird/examples /tmp/examples
	at_once "its unit is there" test -s /usr/lib/systemd/system/hummingbird.service
	at_once "its user is there" getent passwd hummingbird
	at_once "its configuration has no error" hb config check --system
	try_programs
	end_programs
	userdel hummingbird
	exit $bad
fi
rm -rf /opt/* /etc/systemd/system/hummingbird.service
at_once "the tarball unpacks" tar -C /opt -xf "$(echo hummingbird-*.tar.gz)"
((!bad)) || exit 1
name=$(basename /opt/hummingbird-*)
cp -r "/opt/$name/share/doc/hummingbird/examples" /tmp/examples
prefix=/opt/$name bin=/opt/$name/bin tenant=/opt/$name/libexec/hummingbird/cuda-tenant under=()

echo "the tarball in $prefix"
as_user "hb knows its version" '[[ hummingbird-$(hb --version | cut -d " " -f 2)-$(uname -m) == '"$name"' ]]'
as_user "the demonstration simulates" '
	cd /tmp/ann
	hb sim --high resnet50_b1@60/s --low llama8_train_b4 --sharing all --seconds 2 --seed 1 --report report.html
	grep -q "</svg>\|<script" report.html'
try_programs
as_user "hb top draws" 'export TERM=xterm; (sleep 2; printf q) | timeout 60 script --quiet --command "hb top --gpu sim" /dev/null >/tmp/ann/screen; grep -a GPU /tmp/ann/screen'
as_user "completion is there for each shell" 'source '"$prefix"'/share/bash-completion/completions/hb && complete -p hb'
at_once "its manual pages are there" test -s "$prefix/share/man/man1/hb-run.1"
mv "/opt/$name" /opt/moved
bin=/opt/moved/bin tenant=/opt/moved/libexec/hummingbird/cuda-tenant
as_user "it works in another folder" 'hb sim --high resnet50_b1@60/s --low llama8_train_b4 --seconds 1 && hb run --gpu sim --priority high -- $TENANT work 2'
at_once "the service installs" /opt/moved/share/hummingbird/install-service
at_once "its unit starts the daemon in its folder" grep -qx "ExecStart=/opt/moved/sbin/hbd --system --foreground" /etc/systemd/system/hummingbird.service
at_once "its configuration has no error" /opt/moved/bin/hb config check --system
at_once "its user is there" getent passwd hummingbird
at_once "the service is removed" /opt/moved/share/hummingbird/install-service --remove
at_once "its unit is gone" test ! -e /etc/systemd/system/hummingbird.service
userdel hummingbird

echo "the same on a kernel without the calls that are newer than Linux 5.3"
end_programs
under=(/share/as-old-kernel)
try_programs

echo "the wheel"
end_programs
rm -rf /opt/moved
under=()
bin=/home/ann/venv/bin tenant=/home/ann/venv/libexec/hummingbird/cuda-tenant
as_user "pip installs it" 'rm -rf ~/venv; python3 -m venv ~/venv && ~/venv/bin/pip install --no-index /share/*.whl'
as_user "the Python module is there" 'python3 -c "import hummingbird; hummingbird.hint(0.001)"'
try_programs
end_programs
exit $bad
