"""The masks that checks hand to a target: random ones without a dead row, and the causal triangle.

N batch, h heads, T queries, S keys; axes is one of MASK_AXES, as "N1TS"
"""

from __future__ import annotations

import torch
from torch import Tensor

from attncheck.compare import premise
from attncheck.subject import Case, Subject


def shape_of(axes: str, subject: Subject, case: Case) -> tuple[int, ...]:
    sizes = {"N": case.N, "h": subject.heads, "T": case.T, "S": case.S, "1": 1}
    return tuple(sizes[a] for a in axes)


def triangle(case: Case) -> Tensor:
    """The causal mask (T,S), query t sees keys 0 .. t."""
    return torch.ones(case.T, case.S, dtype=torch.bool).tril()


def several_keys(case: Case) -> bool:
    return case.S > 1


def keys_to_edit(case: Case) -> list[int]:
    """Both ends and one between, another one in each case."""
    return sorted({0, case.S - 1, case.seed % case.S})


def mask_of(subject: Subject, case: Case) -> Tensor | None:
    """The mask that the case's own axis names: none, causal, a finite bias, or random over these axes."""
    named = case["mask"]
    if named == "bias":
        return finite_bias(case) if subject.takes_bias and case.options.get("mask", "additive") == "additive" else None
    if named == "none" or (named == "causal" and "TS" not in subject.masks):
        return None
    return triangle(case) if named == "causal" else random_mask(named, subject, case)


def finite_bias(case: Case) -> Tensor:
    """Floats (T,S) that are added to the scores, and block nothing."""
    return torch.randn(case.T, case.S, generator=torch.Generator().manual_seed(case.seed + 2))


def real_tokens(case: Case, subject: Subject) -> Tensor:
    """A padding mask (N,1,1,S): by turns the right, the left end and the middle of a sample is padding.

    The last sample, if it is not the only one, has none. Where only lengths can be said, the right end alone.
    """
    real_NS = torch.ones(case.N, case.S, dtype=torch.bool)
    width = max(case.S // 3, 1)
    for n in range(case.N if case.N == 1 else case.N - 1):
        turn = 0 if subject.prefix_only else (n + case.seed) % 3
        start = (case.S - width, 0, (case.S - width) // 2)[turn]
        real_NS[n, start : start + width] = False
    return real_NS[:, None, None]


def random_mask(axes: str, subject: Subject, case: Case) -> Tensor:
    """Half of the keys, so that every query keeps a key that it can see, and most lose one.

    A mask without a query axis is shared by all queries, so the key that it must keep is one that all can see.
    """
    premise(can_keep_a_key(axes, subject, case), f"{subject.label} hides every key from some query")
    seen_TS = _sure_keys(axes, subject, case)
    if subject.prefix_only and axes == "N11S":
        lengths = torch.randint(1, max(case.S, 2), (case.N, 1), generator=torch.Generator().manual_seed(case.seed + 1))
        return (torch.arange(case.S) < lengths)[:, None, None]
    draw = torch.Generator().manual_seed(case.seed + 1)
    shape = shape_of(axes, subject, case)
    score = torch.rand(shape, generator=draw)
    keep = score.masked_fill(~seen_TS, -1.0).argmax(-1, keepdim=True)
    mask = (torch.rand(shape, generator=draw) < 0.5).scatter(-1, keep, True)
    lose = score.masked_fill(~seen_TS, 2.0).argmin(-1, keepdim=True)
    return mask.scatter(-1, lose, False).scatter(-1, keep, True)


def can_keep_a_key(axes: str, subject: Subject, case: Case) -> bool:
    """Whether a mask of these axes exists that leaves each query a key."""
    return bool(_sure_keys(axes, subject, case).any(-1).all())


def _sure_keys(axes: str, subject: Subject, case: Case) -> Tensor:
    """The keys that a mask may count on: those that each query sees, or all queries where one row serves all."""
    pattern_TS = subject.pattern(case.T, case.S)
    return pattern_TS.all(0, keepdim=True) if axes == "N11S" else pattern_TS


def full_mask(mask: Tensor, subject: Subject, case: Case) -> Tensor:
    """The same mask written out over all axes (N,h,T,S)."""
    return mask.expand(case.N, subject.heads, case.T, case.S).contiguous()
