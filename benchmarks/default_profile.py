"""What a run costs on a target, after torch and pytest are imported, and how much of it is spent inside the target.

    python benchmarks/default_profile.py [SPEC] [--runs 5]

Prints, for each profile, the median seconds of collection (import, build, probe) and of all checks, and the share of
the checks' time inside the target's own call; and with --each the seconds of each check. Figures are wall time of one
process with one torch thread.
"""

import argparse
import statistics
import time
from pathlib import Path

import pytest  # noqa: F401  its import is not what is measured
import torch

from attncheck import engine, wiring
from attncheck.registry import checks_of
from attncheck.settings import Request
from attncheck.subject import Subject


def one_run(spec: str, profile: str, each: dict[str, list[float]]) -> tuple[float, float, float]:
    inside = timed_calls()
    start = time.perf_counter()
    target = wiring.prepare(Request(spec), [Path()])
    if target.error:
        raise SystemExit(target.error)
    collected = time.perf_counter()
    inside.clear()
    for check in checks_of(target.kind):
        each.setdefault(check.id, []).append(engine.run(check, target, profile).seconds)
    end = time.perf_counter()
    return collected - start, end - collected, sum(inside) / (end - collected)


def timed_calls() -> list[float]:
    """Wrap Subject.attempt's call of the adapter, and collect the seconds spent in it."""
    seconds: list[float] = []
    original = Subject.__dict__.get("_plain_attempt") or Subject.attempt
    Subject._plain_attempt = original  # type: ignore[attr-defined]

    def attempt(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        start = time.perf_counter()
        try:
            return original(self, *args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - start)

    Subject.attempt = attempt  # type: ignore[method-assign]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", nargs="?", default="torch.nn.MultiheadAttention")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--each", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for profile in ("quick", "default"):
        each: dict[str, list[float]] = {}
        runs = [one_run(options.spec, profile, each) for _ in range(options.runs)]
        first = runs[0]
        collect, run, share = (statistics.median(r[i] for r in runs) for i in range(3))
        print(f"{options.spec} {profile}: collection {collect:.2f} s, checks {run:.2f} s, {share:.0%} inside it")
        print(f"  first run of the process: collection {first[0]:.2f} s, checks {first[1]:.2f} s")
        for check, seconds in each.items() if options.each else ():
            print(f"  {check:28} {statistics.median(seconds):.3f} s")


if __name__ == "__main__":
    main()
