#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The steps that the scripts of all packages and install-service share. Runs as root. usage: maintain add-user|end-mps
set -e
case $1 in
add-user)
	getent group hummingbird >/dev/null || groupadd --system hummingbird
	getent passwd hummingbird >/dev/null ||
		useradd --system --gid hummingbird --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin \
			--comment "Hummingbird GPU sharing daemon" hummingbird
	;;
end-mps)
	# An MPS server that the daemon has left behind accepts no new programs and ends with the last one.
	PATH=$(cd "$(dirname "$0")/../.." && pwd -P)/sbin:$PATH
	end_server() {
		[ -e "/run/hummingbird/$1/control" ] || return 0
		echo quit | CUDA_MPS_PIPE_DIRECTORY=/run/hummingbird/$1 setsid "$2" >/dev/null 2>&1 &
		# The tool waits for the last program. It must have started before the package manager removes its file.
		timeout 5 tail --pid=$! -f /dev/null || true
	}
	end_server mps nvidia-cuda-mps-control
	end_server sim-mps hb-sim-mps-control
	;;
*)
	echo "usage: $0 add-user|end-mps" >&2
	exit 1
	;;
esac
