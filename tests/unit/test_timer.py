"""A limit in time: it interrupts Python code, also code that swallows exceptions, and leaves the signal as it was."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from attncheck.subject import TimedOut
from attncheck.timer import limited


@pytest.fixture(autouse=True)
def own_alarm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def loop(seconds: float = 5.0) -> None:
    """A loop that would end by itself, so that a timer that fails does not hang the tests."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_loop_is_interrupted() -> None:
    start = time.monotonic()
    with pytest.raises(TimedOut, match=r"the loop took longer than 0\.05 s"), limited(0.05, "the loop"):
        loop()
    assert time.monotonic() - start < 2


def test_a_loop_that_swallows_exceptions_is_interrupted() -> None:
    end = time.monotonic() + 5
    with pytest.raises(TimedOut), limited(0.05, "the loop"):
        while time.monotonic() < end:
            with contextlib.suppress(Exception):
                time.sleep(0.001)


def test_one_that_swallows_everything_once_is_interrupted_again() -> None:
    swallowed = []
    with pytest.raises(TimedOut), limited(0.05, "the loop"):
        try:
            loop()
        except BaseException as error:
            swallowed.append(error)
        loop()
    assert [type(e) for e in swallowed] == [TimedOut]


def test_what_is_quick_enough_is_left_alone() -> None:
    with limited(0.2, "it"):
        done = 1 + 1
    time.sleep(0.3)
    assert done == 2


@pytest.mark.parametrize("fails", [False, True])
def test_the_handler_is_restored(fails: bool) -> None:
    def mine(number: int, frame: object) -> None:
        raise AssertionError

    signal.signal(signal.SIGALRM, mine)
    try:
        with limited(5, "it"):
            assert signal.getsignal(signal.SIGALRM) is not mine
            if fails:
                raise KeyError
    except KeyError:
        pass
    assert signal.getsignal(signal.SIGALRM) is mine
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_timer_that_ran_before_runs_on() -> None:
    """As that of pytest-timeout, or a limit around this one."""
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 50.0, 3.0)
    with limited(5, "it"):
        time.sleep(0.05)
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    assert 40 < left <= 49.96
    assert interval == pytest.approx(3.0)


def test_an_outer_limit_that_was_over_meanwhile_rings_after_the_inner() -> None:
    with pytest.raises(TimedOut, match="outer"), limited(0.05, "outer"):
        with limited(5, "inner"):
            time.sleep(0.1)
        loop()


def test_no_limit_at_zero_seconds_and_in_other_threads() -> None:
    with limited(0, "it"):
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
    told = []

    def run() -> None:
        with limited(5, "it"):
            told.append(signal.getitimer(signal.ITIMER_REAL)[0])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert told == [0.0]
