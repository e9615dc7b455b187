#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wheel installs into a new virtual environment, works from there, and leaves nothing when it is removed.
# usage: test_wheel.sh SOURCE BUILD
set -euo pipefail

source=$1 build=$2
work=$(mktemp -d)
daemon='' server=''
# shellcheck disable=SC2086 # an empty one is none
trap 'kill $daemon $server 2>/dev/null || true; rm -rf "$work"' EXIT
fail() {
	echo "$*"
	exit 1
}

DESTDIR=$work/tree meson install -C "$build" --no-rebuild --quiet
prefix=$(dirname "$(dirname "$(find "$work/tree" -path '*/bin/hb')")")
wheel=$("$source/packaging/make_wheel.py" "$prefix" "$work" --version 1.2.3 --platform linux_x86_64)
again=$(mkdir "$work/again" && "$source/packaging/make_wheel.py" "$prefix" "$work/again" --version 1.2.3 --platform linux_x86_64)
cmp "$wheel" "$again" || fail "the same installation gives two different wheels"

/usr/bin/python3 -m venv "$work/venv"
pip=("$work/venv/bin/python" -m pip --disable-pip-version-check)
find "$work/venv" -type f -not -path '*/__pycache__/*' | sort >"$work/before"
"${pip[@]}" install --quiet --no-index --no-deps "$wheel"
[[ $("${pip[@]}" show hummingbird-gpu) == *"Version: 1.2.3"* ]] || fail "pip does not know its version"

# As in an activated environment of a user without other settings.
export PATH="$work/venv/bin:/usr/bin:/bin" XDG_RUNTIME_DIR=$work HB_SIM_GPU=$work/gpu HOME=$work
unset LD_LIBRARY_PATH PYTHONPATH HB_BUILD HB_SOURCE
cd "$work"
[[ $(command -v hb) == "$work/venv/bin/hb" ]] || fail "hb is not on the path"
hb --version
tenant=$work/venv/libexec/hummingbird/cuda-tenant
hb run --gpu sim --priority low -- "$tenant" train 500 20 >"$work/train" 2>&1 || { cat "$work/train"; fail "a job does not run"; }
grep -q '"right": true' "$work/train" || { cat "$work/train"; fail "the job did not compute"; }
# shellcheck disable=SC2016 # for the program's shell
path=$(hb run --gpu sim --priority high -- sh -c 'echo "$LD_LIBRARY_PATH"' 2>/dev/null)
[[ $path == "$work/venv/lib"*/hummingbird* ]] || fail "programs do not get the library of the wheel, but $path"
for process in /proc/[0-9]*; do
	[[ $(readlink "$process/exe") != "$work/venv/bin/hbd" ]] || daemon=${process#/proc/}
done
[[ -n $daemon ]] || fail "hb run did not start the daemon of the wheel"
hb sim --high resnet50_b1@60/s --low llama8_train_b4 --seconds 1 >/dev/null || fail "hb sim does not find its data"
python -c 'import hummingbird; hummingbird.hint(0.001)' || fail "the Python module is not installed"

: >"$work/serve" # it is read before the server has opened it
hb serve --models "$source/examples/models" --gpu none --http 127.0.0.1:0 --grpc none >"$work/serve" 2>&1 &
server=$!
for ((i = 0; i < 300; i++)); do
	port=$(sed -n 's/^http: port //p' "$work/serve")
	[[ -n $port ]] && python - "$port" 2>"$work/client" <<-END && break
		import sys, urllib.request
		body = b'{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}]}'
		answer = urllib.request.urlopen("http://127.0.0.1:%s/v2/models/softmax/infer" % sys.argv[1], body).read()
		assert b"[0.25,0.25,0.25,0.25]" in answer, answer
	END
	sleep 0.1
done
((i < 300)) || { cat "$work/serve" "$work/client"; fail "a model in Python does not answer"; }
kill "$server" "$daemon"
wait "$server" || true

"${pip[@]}" uninstall --quiet --yes hummingbird-gpu
find "$work/venv" -type f -not -path '*/__pycache__/*' | sort >"$work/after"
diff "$work/before" "$work/after" || fail "uninstalling leaves files"
