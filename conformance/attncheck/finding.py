"""What a failed check says: claim, evidence, influence map, likely cause, reproduction.

N batch, T queries, S keys, h heads
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attncheck.compare import Failure
from attncheck.registry import Check
from attncheck.reproduce import script
from attncheck.subject import Answer, Case, Subject

LARGEST = 12  # of an influence map


@dataclass(frozen=True)
class Cause:
    """The fault whose output equals the target's on the same weights; no fault where none does."""

    fault: str | None = None
    text: str = "not looked for: the target's weights could not be shared with the reference"


@dataclass(frozen=True)
class Finding:
    """See `attncheck-report/1`."""

    claim: str
    evidence: str
    case: dict[str, Any]
    influence: list[list[int]] | None
    expected: list[list[int]] | None
    likely_cause: str
    fault: str | None
    reproduce: str
    severity: str = "high"


def found(check: Check, spec: str, subject: Subject, case: Case, failure: Failure, cause: Cause) -> Finding:
    influence, expected = influence_of(subject, failure)
    wrong = failure.after or failure.before
    command = f"pytest '{f'attncheck:{spec}::{check.id}'}'"
    return Finding(
        claim=check.claim,
        evidence=failure.evidence,
        case=described(case.but(mode=wrong.case.mode) if wrong is not None else case, subject),
        influence=influence,
        expected=expected,
        likely_cause=cause.text,
        fault=cause.fault,
        reproduce=command + "\n\n" + script(check.id, check.claim, failure),
        severity=check.severity,
    )


def described(case: Case, subject: Subject) -> dict[str, Any]:
    """The case as plain data."""
    sizes = {"N": case.N, "h": subject.heads, "T": case.T, "S": case.S, "D": subject.widths[0]}
    rest = {"dtype": str(subject.dtype).removeprefix("torch."), "strided": case.strided, "seed": case.seed}
    axes = {k: v if isinstance(v, int | float | bool) else str(v) for k, v in {**case.options, **case.axes}.items()}
    return {**sizes, "sources": case.sources, "mode": case.mode, **rest, **axes}


def influence_of(subject: Subject, failure: Failure) -> tuple[list[list[int]] | None, list[list[int]] | None]:
    """Which key moves which query's output (T,S) in the first sample, and which may; none where it would not help."""
    before = failure.before
    if not isinstance(before, Answer) or before.out.ndim < 3 or before.out.shape[-2] != before.inputs.query.shape[-2]:
        return None, None
    case = before.case
    fits = before.allowed is None or before.allowed.shape[-1] in (1, case.S)
    if not fits or max(case.T, case.S) > LARGEST or {x.shape[-2] for x in before.inputs.tensors()[1:]} != {case.S}:
        return None, None
    moved_TS = torch.zeros(case.T, case.S, dtype=torch.long)
    for s in range(case.S):
        after = before.subject.attempt(before.inputs.edited([s], seed=s), before.allowed, case)
        if not isinstance(after, Answer) or after.out.shape != before.out.shape:
            return None, None
        moved_TS[:, s] = _rows(before.out, after.out)
    expected_TS = subject.visible(before.allowed, case)[0].any(0).long()
    told = (moved_TS.tolist(), expected_TS.tolist())
    return told if told[0] != told[1] else (None, None)


def _rows(before: Tensor, after: Tensor) -> Tensor:
    moved = (before[0] != after[0]).any(-1)
    return moved.long() if moved.ndim == 1 else moved.any(0).long()
