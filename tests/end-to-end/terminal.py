# SPDX-License-Identifier: Apache-2.0
"""A terminal for tests: runs a program in a pty and keeps the screen that a person
would see. Knows the escape sequences that ncurses uses for vt100 and xterm; any other
is an error, so that the screen is always exact.

    with Terminal([HB, "top"], environment) as terminal:
        terminal.wait_for("COMMAND")
        terminal.type("q")
        status = terminal.ended()
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

LIMIT = 120
SEQUENCE = re.compile(rb"\x1b(?:\[([?>]?)([0-9;]*)([a-zA-Z@`])|([()][0AB])|([=>78MDEH])|\](?:[^\x07]*)\x07)")


class Screen:
    def __init__(self, columns, rows):
        self.resize(columns, rows)
        self.colors = set()  # SGR parameters that have occurred
        self.alternate = False

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.saved = (0, 0)
        self.top, self.bottom = 0, rows - 1

    def lines(self):
        return ["".join(line).rstrip() for line in self.cells]

    def put(self, character):
        if self.column >= self.columns:
            self.column, self.row = 0, min(self.row + 1, self.rows - 1)
        self.cells[self.row][self.column] = character
        self.column += 1

    def scroll(self, by):
        blank = [" "] * self.columns
        region = self.cells[self.top:self.bottom + 1]
        moved = region[by:] + [blank[:] for _ in range(by)] if by > 0 else \
            [blank[:] for _ in range(-by)] + region[:by]
        self.cells[self.top:self.bottom + 1] = moved

    def down(self):
        if self.row == self.bottom:
            self.scroll(1)
        else:
            self.row = min(self.row + 1, self.rows - 1)

    def up(self):
        if self.row == self.top:
            self.scroll(-1)
        else:
            self.row = max(self.row - 1, 0)

    def control(self, byte):
        if byte == 0x0a:
            self.down()
        elif byte == 0x0d:
            self.column = 0
        elif byte == 0x08:
            self.column = max(self.column - 1, 0)
        elif byte == 0x09:
            self.column = min((self.column // 8 + 1) * 8, self.columns - 1)
        else:
            assert byte in (0x00, 0x07, 0x0e, 0x0f), f"control {byte:#x}"

    def erase(self, mode, whole):
        here = self.column if self.column < self.columns else self.columns - 1
        first, last = [(here, self.columns), (0, here + 1), (0, self.columns)][mode]
        self.cells[self.row][first:last] = [" "] * (last - first)
        if whole:
            for row in [range(self.row + 1, self.rows), range(self.row), range(self.rows)][mode]:
                self.cells[row] = [" "] * self.columns

    def move(self, final, n):
        if final == "A":
            self.row = max(self.row - n, 0)
        elif final == "B":
            self.row = min(self.row + n, self.rows - 1)
        elif final == "C":
            self.column = min(self.column + n, self.columns - 1)
        elif final == "D":
            self.column = max(self.column - n, 0)
        elif final in "G`":
            self.column = min(n, self.columns) - 1
        elif final == "d":
            self.row = min(n, self.rows) - 1

    def edit(self, final, n):
        line = self.cells[self.row]
        if final == "X":
            line[self.column:self.column + n] = [" "] * min(n, self.columns - self.column)
        elif final == "P":
            self.cells[self.row] = (line[:self.column] + line[self.column + n:] + [" "] * n)[:self.columns]
        elif final == "@":
            self.cells[self.row] = (line[:self.column] + [" "] * n + line[self.column:])[:self.columns]
        elif final == "b":
            for _ in range(n):
                self.put(line[self.column - 1])
        elif final in "LM":
            saved, self.top = self.top, self.row
            self.scroll(n if final == "M" else -n)
            self.top = saved

    def csi(self, private, parameters, final):
        numbers = [int(word) if word else 0 for word in parameters.split(";")] if parameters else []
        n = numbers[0] if numbers and numbers[0] else 1
        if private:
            assert final in "hl", f"private {final}"
            if 1049 in numbers:
                self.alternate = final == "h"
        elif final in "Hf":
            row, column = (numbers + [1, 1])[:2] if numbers else (1, 1)
            self.row, self.column = min(max(row, 1), self.rows) - 1, min(max(column, 1), self.columns) - 1
        elif final in "ABCDGd`":
            self.move(final, n)
        elif final in "JK":
            self.erase(numbers[0] if numbers else 0, final == "J")
        elif final in "XP@bLM":
            self.edit(final, n)
        elif final == "r":
            self.top, self.bottom = (numbers[0] - 1, numbers[1] - 1) if len(numbers) == 2 else (0, self.rows - 1)
            self.row = self.column = 0
        elif final == "S":
            self.scroll(n)
        elif final == "T":
            self.scroll(-n)
        elif final == "m":
            self.colors |= set(numbers or [0])
        else:
            assert final in "hltn", f"CSI {parameters}{final}"

    def escape(self, final):
        if final == "M":
            self.up()
        elif final == "D":
            self.down()
        elif final == "7":
            self.saved = (self.row, self.column)
        elif final == "8":
            self.row, self.column = self.saved
        else:
            assert final in "=>H", f"escape {final}"

    def feed(self, data):
        """Returns the rest of the input: an escape sequence or a UTF-8 character that is not complete yet."""
        at = 0
        while at < len(data):
            byte = data[at]
            if byte == 0x1b:
                match = SEQUENCE.match(data, at)
                if not match:
                    assert len(data) - at < 32, f"sequence {data[at:at + 16]!r}"
                    return data[at:]
                if match[3]:
                    self.csi(match[1].decode(), match[2].decode(), match[3].decode())
                elif match[5]:
                    self.escape(match[5].decode())
                at = match.end()
                continue
            if byte >= 0xc0:
                size = 2 if byte < 0xe0 else 3 if byte < 0xf0 else 4
                if len(data) - at < size:
                    return data[at:]
                self.put(data[at:at + size].decode())
                at += size
                continue
            if byte < 0x20:
                self.control(byte)
            else:
                self.put(chr(byte))
            at += 1
        return b""


class Terminal:
    def __init__(self, command, environment, columns=100, rows=24, term="xterm-256color"):
        self.screen = Screen(columns, rows)
        self.rest = b""
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment | {"TERM": term})
        self.tell_size(columns, rows)

    def tell_size(self, columns, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        self.read(0)
        self.screen.resize(columns, rows)
        self.tell_size(columns, rows)
        os.kill(self.pid, signal.SIGWINCH)

    def read(self, seconds):
        """Reads output until the time is over. Returns False when the program has closed its terminal."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.rest = self.screen.feed(self.rest + data)
        return bool(data)

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def text(self):
        return "\n".join(self.screen.lines())

    def wait_until(self, what, condition):
        end = time.monotonic() + LIMIT
        while True:
            value = condition()
            if value:
                return value
            if not self.read(0.05) or time.monotonic() > end:
                raise AssertionError(f"never: {what}; the screen:\n{self.text()}")

    def wait_for(self, word):
        return self.wait_until(f"'{word}' is shown", lambda: word in self.text())

    def wait_without(self, word):
        return self.wait_until(f"'{word}' is gone", lambda: word not in self.text())

    def ended(self):
        end = time.monotonic() + LIMIT
        while self.read(0.05) and time.monotonic() < end:
            pass
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
