# SPDX-License-Identifier: Apache-2.0
"""The health check of the image with `hb serve`: asks the server through its Unix socket whether it is ready, because the
network's port may want TLS. usage: serve_health.py SOCKET. Exit status 0 = ready."""
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(4)
    connection.connect(sys.argv[1])
    connection.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = connection.makefile("rb").readline().decode().strip()
print(answer)
sys.exit(answer.split()[1:2] != ["200"])
