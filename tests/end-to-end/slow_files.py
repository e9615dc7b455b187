# SPDX-License-Identifier: Apache-2.0
"""A file system (FUSE) whose answers the test withholds, as a hostile client would.

The client is a child of the process that serves the file system: its own requests are answered at once, those of other
processes can be held back. When the serving process ends, the kernel lets everybody go who waits. Needs root and
/dev/fuse. Imported by the tests of this folder."""
import ctypes
import errno
import os
import select
import signal
import struct
import traceback

LOOKUP, GETATTR, OPEN, READ, WRITE, RELEASE, FLUSH, INIT = 1, 3, 14, 15, 16, 18, 25, 26
NO_ANSWER = (2, 36, 42)  # FORGET, INTERRUPT, BATCH_FORGET
WRITEBACK_CACHE = 1 << 16  # writes stay in the page cache until somebody closes a file
FOPEN_DIRECT_IO = 1
FILE_BYTES = 1 << 16
CLONE_NEWNS, MS_REC_PRIVATE, PR_SET_PDEATHSIG = 0x20000, 0x44000, 1

libc = ctypes.CDLL(None, use_errno=True)


class CannotMount(Exception):
    pass


def attributes(node):
    mode = 0o40755 if node == 1 else 0o100666
    return struct.pack("<6Q10I", node, FILE_BYTES, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 512, 0)


class SlowFiles:
    """Files of any name exist in `folder`, for the client only. Operations in `hold` of other processes wait."""

    def __init__(self, folder, hold):
        self.folder, self.hold, self.held = folder, hold, []
        try:
            self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise CannotMount(f"/dev/fuse: {error.strerror}") from None
        # The mount is visible in this process and its child only.
        if libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC_PRIVATE, None) or libc.mount(
                b"hb-test", folder.encode(), b"fuse", 0,
                b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % self.device):
            raise CannotMount(f"mount: {os.strerror(ctypes.get_errno())}")
        self.client = None
        self.served, self.from_client = os.pipe()  # the client lets the held operations go with a byte
        self.news, self.to_client = os.pipe()  # a byte: an operation is held

    def run(self, user, client):
        """Serves the files, and runs client(self) as this user in a child."""
        self.client = os.fork()
        if self.client == 0:
            os.close(self.device)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            try:
                client(self)
            except BaseException:  # pylint: disable=broad-except
                traceback.print_exc()
            os._exit(0)
        self.serve()

    def wait_until_held(self, limit_s):
        """For the client."""
        return bool(select.select([self.news], [], [], limit_s)[0])

    def release(self):
        """For the client: everything is answered, now and later."""
        os.write(self.from_client, b".")

    def path(self, name):
        return os.path.join(self.folder, name)

    def reply(self, unique, body=b"", error=0):
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
        except OSError:
            pass  # the process that asked has given up

    def answer(self, operation, unique, node, data):
        if operation == INIT:
            self.reply(unique, struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, WRITEBACK_CACHE, 16, 12, 65536, 1,
                                           0, 0, 0, *([0] * 7)))
        elif operation == LOOKUP:
            self.reply(unique, struct.pack("<QQQQII", 2, 0, 1000, 1000, 0, 0) + attributes(2))
        elif operation == GETATTR:
            self.reply(unique, struct.pack("<QII", 0, 0, 0) + attributes(node))
        elif operation == OPEN:
            direct = struct.unpack_from("<I", data, 40)[0] & os.O_APPEND  # opened for appending: without the page cache
            self.reply(unique, struct.pack("<QII", 1, FOPEN_DIRECT_IO if direct else 0, 0))
        elif operation == READ:
            size = struct.unpack_from("<I", data, 40 + 16)[0]
            self.reply(unique, bytes(size))
        elif operation == WRITE:
            self.reply(unique, struct.pack("<II", struct.unpack_from("<I", data, 40 + 16)[0], 0))
        elif operation in (FLUSH, RELEASE):
            self.reply(unique)
        elif operation not in NO_ANSWER:
            self.reply(unique, error=errno.ENOSYS)

    def is_held(self, operation, pid):
        """The kernel names the thread that asked; for writes from the page cache it names none."""
        return operation in self.hold and pid != self.client

    def serve_one(self):
        data = os.read(self.device, 1 << 17)
        _, operation, unique, node, _, _, pid = struct.unpack_from("<IIQQIII", data)
        if not self.is_held(operation, pid):
            self.answer(operation, unique, node, data)
            return
        if not self.held:
            os.write(self.to_client, b".")
        self.held.append((operation, unique, node, data))

    def serve(self):
        while True:
            ready = select.select([self.device, self.served], [], [])[0]
            if self.served in ready:
                os.read(self.served, 1)
                self.hold = ()
                for request in self.held:
                    self.answer(*request)
            if self.device in ready:
                self.serve_one()
