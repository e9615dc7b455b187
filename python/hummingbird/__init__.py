# SPDX-License-Identifier: Apache-2.0
"""Announces the requests of a high-priority service to Hummingbird.

    import hummingbird

    with hummingbird.request(deadline=0.010):     # 10 ms from now; optional
        hummingbird.hint(0.0003)                  # the first kernel is due in about 0.3 ms
        answer = model(decode(body))

These functions do the same as those of hummingbird/client.h. They have an effect if
the process runs under `hb run --priority high` and has loaded CUDA; otherwise
they do nothing. The calls are optional: Hummingbird also predicts requests without
them. Times are seconds from now. A request belongs to a thread: in asyncio, use
request() only around code that does not await.
"""
import contextlib
import ctypes
import os
import time

__all__ = ["hint", "request", "request_begin", "request_end"]

_calls = None


def _find():
    """Finds the shim's functions. None = libcuda is not loaded yet; () = libcuda is not the shim."""
    global _calls
    if _calls is not None:
        return _calls
    try:
        # NOLOAD: only the application decides whether CUDA is loaded.
        library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None
    try:
        begin, hint_at, end = library.hb_shim_request_begin, library.hb_shim_hint, library.hb_shim_request_end
    except AttributeError:
        _calls = ()
        return _calls
    begin.argtypes = hint_at.argtypes = [ctypes.c_int64]
    end.argtypes = []
    begin.restype = hint_at.restype = end.restype = None
    _calls = (begin, hint_at, end)
    return _calls


def request_begin(deadline=None):
    """Reports that this thread begins a request that must be answered within `deadline` seconds (None: the service's objective)."""
    calls = _find()
    if calls:
        calls[0](0 if deadline is None else time.monotonic_ns() + round(deadline * 1e9))


def hint(delay=0.0003):
    """Announces that the first kernel of a request will start after `delay` seconds."""
    calls = _find()
    if calls:
        calls[1](time.monotonic_ns() + round(delay * 1e9))


def request_end():
    """Reports that the request of this thread has been answered."""
    calls = _find()
    if calls:
        calls[2]()


@contextlib.contextmanager
def request(deadline=None):
    """Calls request_begin() before a block and request_end() after it."""
    request_begin(deadline)
    try:
        yield
    finally:
        request_end()
