"""Causality over lengths: prefixes, other numbers of keys than queries, windows. N batch, T queries, S keys"""

import torch
from torch import Tensor

from attncheck.allowed import triangle
from attncheck.compare import Inapplicable, answered, close, fail, premise, tolerance_of
from attncheck.registry import check
from attncheck.subject import Answer, Case, Subject, pattern_of


@check(
    "causal.prefix",
    needs=("causality",),
    where=lambda case: case.T > 2 and case.tied,
    faults=("causal.mask-of-first-length", "causal.forgotten-past-sixteen", "value.mean-mixed-in"),
)
def prefix(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The output on a prefix is the prefix of the output, for lengths that go up and down on one instance.

    Numeric, since shapes differ. On a new instance where the target can be built anew.

    Why: generation runs on prefixes of what training saw; if they differ, the model generates from other numbers.
    Fix: build the triangle for the length of this call, or cut it from one that is long enough.
    Blind: lengths beyond those of the cases.
    Earns: it is the only causal check that compares lengths.
    """
    if subject.causality.startswith("prefix"):
        raise Inapplicable("the first tokens see each other")
    instance = subject.rebuilt() or subject
    builtin, inputs = subject.causality != "no", subject.draw(case)
    answers: dict[int, Answer] = {}
    for length in (2, case.T, max(case.T - 1, 1), case.T // 2 + 1):
        short = case.but(T=length, S=length)
        mask = None if builtin else triangle(short)
        answers[length] = answered(instance.attempt(inputs.cut("query key value", -2, length), mask, short))
    whole, first = answers.pop(case.T), answers.pop(2)
    # In the order of the calls, so that what is kept from the first one shows again.
    what = f"the first 2 of {case.T} tokens against these alone, which were called before"
    close(whole.narrowed(0, 2), first.out, tolerance_of(whole), what, (first, "before"), part="after[..., :2, :]")
    for length, answer in answers.items():
        want, told = whole.out[..., :length, :], f"before[..., :{length}, :]"
        what = f"the first {length} tokens alone against the same in all {case.T}"
        close(answer, want, tolerance_of(whole), what, (whole, told))


def exactly_seen(answer: Answer, want_TS: Tensor, what: str) -> None:
    """The keys that act on each query, found by editing one after another, are the wanted ones and no others."""
    subject, case = answer.subject, answer.case
    for s in range(case.S):
        after = answered(subject.attempt(answer.inputs.edited([s], case.seed), answer.allowed, case))
        moved = (answer.out != after.out).any(-1)
        acts_T = moved.flatten(0, -2).any(0)
        wrong_T = acts_T != want_TS[:, s]
        if answer.inputs.tied:
            wrong_T = wrong_T & (torch.arange(case.T) != s)
        if wrong_T.any():
            t = int(wrong_T.nonzero()[0])
            sees = "sees" if acts_T[t] else "does not see"
            same = "assert torch.equal" if acts_T[t] else "assert not torch.equal"
            fail(f"{what}: query {t} of {case.T} {sees} key {s} of {case.S}", answer, after,
                 f"{same}(before[..., {t}, :], after[..., {t}, :])")  # fmt: skip


@check(
    "causal.corner",
    needs=("causality", "memory"),
    where=lambda case: case.T != case.S and case.S > 1,
    faults=("causal.other-corner", "causal.corner-wrong-for-few-keys", "mask.dropped-across"),
)
def corner(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """With more or fewer keys than queries the triangle hangs from the declared corner.

    A target without causality of its own is given the triangle of the top left.

    Why: one query against a long cache sees the first key alone if the corner is the top left, all if the
    bottom right.
    Fix: build the triangle for absolute positions: key s may be seen by query t if s <= t + S - T (or s <= t).
    Blind: nothing is expected of a row that the pattern itself leaves without a key.
    Earns: it says which corner it is.
    """
    builtin = subject.causality != "no"
    said = subject.causality if builtin else "top-left"
    allowed = None if builtin else triangle(case)
    want_TS = subject.pattern(case.T, case.S) & (True if allowed is None else allowed)
    premise(not bool(want_TS.all()), "the triangle hides nothing at this size")
    answer = answered(subject.attempt(subject.draw(case), allowed, case))
    exactly_seen(answer, want_TS, f"the corner should be {said}")


@check(
    "causal.window",
    needs=("window",),
    strength=1,
    axes={"length": ("W-1", "W", "W+1", "2W+1")},
    where=lambda case: case.S > 1,
    faults=("window.one-too-wide", "window.one-too-narrow", "window.ignored-when-long", "window.wrong-side"),
)
def window(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A query sees exactly the keys of its window, for lengths around its width.

    Why: some APIs count the own token, some only those to the left, and a width that is one off trains as well.
    Fix: compare positions: t - W < s <= t for a window of W keys that ends at the own one.
    Blind: ring buffers of a cache.
    Earns: it is the only one that chooses lengths by the width of the window.
    """
    said = subject.says("window") or "none"
    left, _, right = said.partition(":")
    width = int(right) - int(left) + 1 if right else int(left)
    T = {"W-1": width - 1, "W": width, "W+1": width + 1, "2W+1": 2 * width + 1}[case["length"]]
    if T < 2 or T > 64:
        raise Inapplicable(f"{T} positions are too few or too many")
    case = case.but(N=2, T=T, S=T)
    answer = answered(subject.attempt(subject.draw(case), None, case))
    exactly_seen(answer, pattern_of(subject.causality, said, T, T), f"the window is {said}")
