"""Cross-attention: queries from one sequence, keys and values from another. N batch, T queries, S keys"""

import torch

from attncheck.compare import Inapplicable, answered, changed, premise, unchanged
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import Case, Subject


def apart(case: Case) -> bool:
    return not case.tied and case.S > 1


@check(
    "cross.source",
    needs=("memory",),
    where=apart,
    faults=(
        "cross.roles-swapped", "cross.queries-averaged", "projection.memory-ignored", "projection.value-input-ignored",
    ),
)  # fmt: skip
def source(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Queries come from x alone, keys and values from the memory: each input acts where it should.

    Exact: a query that is edited changes its own output and no other; the memory changes every output.

    Why: a decoder that takes its queries from the encoder, or its values from the keys, has the right shapes.
    Fix: q = Wq x, k = Wk memory, v = Wv memory.
    Blind: which projection is applied, which numeric.oracle sees.
    Earns: it needs no oracle.
    """
    if subject.says("memory") == "joined":
        raise Inapplicable("its queries are keys beside the memory")
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, None, case))
    t = case.seed % case.T
    after = answered(subject.attempt(inputs.renewed("query", [t], case.seed), None, case))
    own_NT = (torch.arange(case.T) == t)[None].expand(case.N, -1)
    judged = Sight(subject, None, case).judged
    sees_two_T = subject.pattern(case.T, case.S).sum(-1) > 1
    if bool(sees_two_T[t]):
        changed(before, after, judged & _rows(own_NT, judged), f"query {t} was edited, and there")
    if case.T > 1:
        unchanged(before, after, judged & _rows(~own_NT, judged), f"only query {t} was edited, but")
    everywhere = list(range(case.S))
    for name in ("key", "value") if case.sources == "separate" else ("key",):
        after = answered(subject.attempt(inputs.renewed(name, everywhere, case.seed), None, case))
        what = f"the whole {'memory' if case.sources == 'memory' else name} was edited, but"
        changed(before, after, judged & _rows(sees_two_T[None].expand(case.N, -1), judged), what)


def _rows(rows_NT: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return rows_NT if like.ndim == 2 else rows_NT[:, None].expand(like.shape)


@check(
    "cross.not-causal",
    needs=("memory",),
    where=apart,
    axes={"mask": ("none", "N11S")},
    faults=("cross.silently-causal", "causal.where-not-asked"),
)
def not_causal(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The first query sees the last key of the memory, and a padding mask of the source acts on the source axis.

    Why: a dispatcher that is causal by default makes cross-attention causal as soon as no mask is given.
    Fix: pass is_causal=False wherever keys do not come from the queries' own sequence.
    Blind: targets that are declared causal or windowed.
    Earns: it is the only one that calls without a mask and looks at single keys of a memory.
    """
    if not bool(subject.pattern(case.T, case.S).all()):
        raise Inapplicable("the target is causal or windowed")
    allowed = None
    if case["mask"] == "N11S":
        # The first half of the source is padding, so that only later keys are left.
        allowed = (torch.arange(case.S) >= case.S // 2).expand(case.N, 1, 1, case.S)
    sight, inputs, last = Sight(subject, allowed, case), subject.draw(case), case.S - 1
    before = answered(subject.attempt(inputs, allowed, case))
    after = answered(subject.attempt(inputs.edited([last], case.seed), allowed, case))
    rows = sight.seeing([last])
    premise(rows.all(), "not every query may see the last key")
    changed(before, after, rows, f"key {last}, the last of the memory, may be seen by every query, but when edited")
    hidden = [s for s in range(case.S) if allowed is not None and not bool(allowed[0, 0, 0, s])]
    if hidden:
        after = answered(subject.attempt(inputs.edited(hidden, case.seed), allowed, case))
        unchanged(before, after, sight.blind(hidden), f"keys {hidden} of the source are padding, but when edited")
