"""A limit in time for code that is not ours."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

from attncheck.subject import TimedOut


@contextlib.contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """Raise TimedOut in the body after `seconds`, and again each second while it goes on.

    Interrupts Python code only, in the main thread of a platform with SIGALRM; elsewhere there is no limit.
    A timer that ran before, a limit around this one or that of another plugin, runs on afterwards.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread() or seconds <= 0:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimedOut(f"{what} took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    start = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - start), 1e-3), interval)
