"""Random right rewrites: no finding, and the weights are found. `survey.py` tries many more."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from attncheck import engine, wiring
from attncheck.registry import checks_of
from attncheck.settings import Request
from attncheck.spec import locate

GENERATE = Path(__file__).with_name("generate.py")
rewrite, TABLES = locate(f"{GENERATE}:rewrite", []), locate(f"{GENERATE}:TABLES", [])
# Chosen so that together they make every choice, and one is compiled.
SEEDS = (621, 684, 741, 775, 858, 995, 1080, 1121, 1648, 1718, 1859, 1958)
FINE = ("passed", "inapplicable", "xfailed")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny calls stall on more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_finding_on_a_right_rewrite(seed: int, tmp_path: Path) -> None:
    file = tmp_path / f"rewrite_{seed}.py"
    file.write_text(rewrite(seed)[0])
    target = wiring.prepare(Request(f"{file}:Attention"), [])
    assert target.error is None, target.error
    results = {check.id: engine.run(check, target) for check in checks_of(target.kind)}
    told = {id: r.finding.evidence if r.finding else r.reason for id, r in results.items() if r.status not in FINE}
    assert not told, rewrite(seed)[1]
    assert results["numeric.oracle"].status == "passed", rewrite(seed)[1]
    assert None not in target.oracles, rewrite(seed)[1]


def test_every_choice_is_made() -> None:
    made = [rewrite(seed)[1] for seed in SEEDS]
    assert {what: {m[what] for m in made if what in m} for what in TABLES} == {w: set(t) for w, t in TABLES.items()}
