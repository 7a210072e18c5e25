"""Many random rewrites, by hand: `python tests/rewrites/survey.py FIRST LAST`.

Prints those that are accused and those whose weights are not read.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
from generate import rewrite

from attncheck import engine, wiring
from attncheck.registry import checks_of
from attncheck.settings import Request

FINE = ("passed", "inapplicable", "xfailed")


def told_of(seed: int, folder: Path) -> dict[str, str]:
    """What is said of one rewrite: the findings by check, and what stands in the way of the oracle."""
    file = folder / f"rewrite_{seed}.py"
    source, choices = rewrite(seed)
    file.write_text(source)
    target = wiring.prepare(Request(f"{file}:Attention"), [])
    if target.error is not None:
        return {"error": target.error}
    results = [engine.run(check, target) for check in checks_of(target.kind)]
    told = {r.check: r.finding.evidence if r.finding else str(r.reason) for r in results if r.status not in FINE}
    read = all(oracle is not None for oracle in target.oracles)
    return told if read else told | {"unread": str(choices)}


def main(first: int, last: int) -> None:
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            told = told_of(seed, Path(folder))
            counts.update(told.keys() or ["fine"])
            for what, text in told.items():
                print(f"{seed} {what}: {text}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
