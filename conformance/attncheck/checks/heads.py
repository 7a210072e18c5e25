"""Heads: each reads all features, none is lost, and each has the right key head.

N batch, h heads, g key/value heads, T queries, S keys, D width
"""

import torch
from torch import Tensor

from attncheck.compare import Inapplicable, answered, fail, premise, unchanged
from attncheck.registry import check
from attncheck.subject import WITH_GRAD, Answer, Case, Subject


def with_weights(subject: Subject, case: Case) -> Answer:
    """An unmasked answer with the weights (N,h,T,S) of each head, on a path that carries gradients."""
    case = case.but(options={**case.options, "weights": True}) if "weights" in case.options else case
    answer = answered(subject.attempt(subject.draw(case).fresh(), None, case))
    shape = (case.N, subject.heads, case.T, case.S)
    if answer.weights is None or answer.weights.shape != shape or not answer.weights.requires_grad:
        raise Inapplicable("returns no weights of single heads that carry a gradient")
    return answer


def of_head(answer: Answer, head: int) -> Tensor:
    """One number that depends on all weights of a head."""
    assert answer.weights is not None
    weights = answer.weights[:, head]
    direction = torch.randn(weights.shape, generator=torch.Generator().manual_seed(9)).to(weights)
    return (weights * direction).sum()


def several(case: Case) -> bool:
    return case.S > 2 and case.T > 1


@check(
    "heads.full-input",
    kinds=("attention",),
    strength=1,
    where=several,
    modes=WITH_GRAD,
    faults=("heads.see-own-slice",),
)
def full_input(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Each head projects all features of a token, not its own slice of them.

    Judged by the gradient of each head's weights with respect to the inputs; where weights are not returned, by the
    projections that reproduce the target's output.

    Why: splitting before projecting gives every head D / h features to look at, and a model of far fewer parameters.
    Fix: project the whole width to h * d first, then split.
    Blind: values of a target that is not read by the reference.
    Earns: it says what numeric.oracle can only call a difference.
    """
    if subject.heads == 1:
        raise Inapplicable("has one head")
    if oracle is not None:
        _projections_are_full(subject, oracle, answered(subject.attempt(subject.draw(case), None, case)))
    answer = with_weights(subject, case)
    for head in range(subject.heads):
        for name, x in answer.inputs.distinct():
            (grad,) = torch.autograd.grad(of_head(answer, head), x, retain_graph=True, allow_unused=True)
            if grad is not None and bool(grad.any()):
                blind = (grad.flatten(0, -2) == 0).all(0)
                _none_blind(answer, blind, f"the weights of head {head} do not depend on", name, head)


def _none_blind(answer: Answer, blind_D: Tensor, what: str, name: str, head: int) -> None:
    if bool(blind_D.any()):
        features = blind_D.nonzero().flatten().tolist()
        test = (
            f"(grad,) = torch.autograd.grad(before_weights[:, {head}].square().sum(), {name})\nassert grad.any(1).all()"
        )
        fail(f"{what} the features {features} of the {name}", answer, test=test)


def _projections_are_full(subject: Subject, oracle: Subject, answer: Answer) -> None:
    for name, weight in oracle.adapter.weights().items():
        if name not in ("q.weight", "k.weight", "v.weight"):
            continue
        heads = subject.heads if name == "q.weight" else oracle.kv_heads
        blind = (weight.unflatten(0, (heads, -1)) == 0).all(1)
        if heads > 1 and bool(blind.any()):
            head = int(blind.any(1).nonzero()[0])
            features = blind[head].nonzero().flatten().tolist()
            test = "raise AssertionError('the projections that give these outputs have zeros there')"
            fail(f"{name} of head {head} does not read the features {features}", answer, test=test)


@check(
    "heads.independent",
    strength=1,
    where=several,
    modes=WITH_GRAD,
    faults=("heads.averaged", "heads.first-repeated", "heads.last-dropped", "weights.first-head-for-all"),
)
def independent(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Heads are concatenated: none is repeated, averaged away or dropped; in a kernel, none touches another.

    Judged by the returned weights of the heads, which differ, and by the gradient of linear maps, whose parts
    that belong to different heads differ as well. For a kernel exactly, by editing the queries of one head.

    Why: a model with one head repeated trains almost as well, and costs as much.
    Fix: merge by transpose(1, 2).reshape(N, T, h * d), and index heads nowhere.
    Blind: targets whose projections are no nn.Linear and that return no weights.
    Earns: it needs no oracle.
    """
    if subject.heads == 1:
        raise Inapplicable("has one head")
    if subject.kind == "kernel":
        _edit_one_head(subject, case)
        return
    answer = answered(subject.attempt(subject.draw(case), None, case))
    _weights_differ(answer)
    _linear_parts_differ(answer)


def _edit_one_head(subject: Subject, case: Case) -> None:
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, None, case))
    head = case.seed % subject.heads
    edited = inputs.map(
        lambda name, x: (
            (x.index_fill(1, torch.tensor([head]), 0.5), f"{name}.index_fill(1, torch.tensor([{head}]), 0.5)")
            if name == "query"
            else (x, "")
        )
    )
    after = answered(subject.attempt(edited, None, case))
    moved_h = (before.out != after.out).any(-1).any(-1).any(0)
    premise(moved_h.any(), "editing the queries of a head changed nothing")
    rows = (torch.arange(subject.heads) != head)[None, :, None].expand(before.out.shape[:-1])
    unchanged(before, after, rows, f"the queries of head {head} were edited")
    if not bool(moved_h[head]):
        fail(f"editing the queries of head {head} does not change its output", before, after,
             f"assert not torch.equal(before[:, {head}], after[:, {head}])")  # fmt: skip


def _weights_differ(answer: Answer) -> None:
    weights, heads = answer.weights, answer.subject.heads
    if weights is None or weights.ndim != 4 or weights.shape[1] != heads or answer.case.S < 2:
        return
    for head in range(1, heads):
        if torch.equal(weights[:, 0], weights[:, head]):
            fail(f"the weights of head {head} are those of head 0", answer,
                 test=f"assert not torch.equal(before_weights[:, 0], before_weights[:, {head}])")  # fmt: skip


def _linear_parts_differ(answer: Answer) -> None:
    """A repeated head leaves equal gradients on the columns of the map that reads the heads; a dropped one leaves 0."""
    module, heads = answer.subject.module, answer.subject.heads
    linears = [] if module is None else [(n, m) for n, m in module.named_modules() if isinstance(m, torch.nn.Linear)]
    if not linears and answer.weights is None:
        raise Inapplicable("no weights are returned, and no nn.Linear is there")
    direction = torch.randn(answer.output.shape, generator=torch.Generator().manual_seed(9)).to(answer.output)
    for name, linear in linears:
        if linear.in_features % heads or not linear.weight.requires_grad or not answer.output.requires_grad:
            continue
        total = (answer.output * direction).sum()
        (grad,) = torch.autograd.grad(total, linear.weight, retain_graph=True, allow_unused=True)
        if grad is None or not bool(grad.any()):
            continue
        first, *others = grad.chunk(heads, 1)
        for head, part in enumerate(others, 1):
            if torch.equal(part, first) or not bool(part.any()):
                told = "the same as for head 0" if bool(part.any()) else "0"
                fail(f"the gradient of {name}.weight is {told} for the features of head {head}", answer,
                     test=_GRADIENT.format(name=name, heads=heads, head=head))  # fmt: skip


_GRADIENT = """\
weight = target.get_submodule({name!r}).weight
(grad,) = torch.autograd.grad(before.square().sum(), weight)
parts = grad.chunk({heads}, 1)
assert parts[{head}].any() and not torch.equal(parts[0], parts[{head}])"""


@check(
    "heads.order",
    strength=1,
    where=several,
    modes=WITH_GRAD,
    faults=("heads.tiled-groups",),
)
def order(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """With fewer key heads than query heads, query head i reads key head i // (h / g).

    For a kernel by editing the keys of one head; else by which parameters the weights of two heads share.

    Why: tiling (0,1,0,1) instead of repeating (0,0,1,1) fits every shape, and makes a loaded checkpoint give garbage.
    Fix: repeat_interleave along the head axis, or expand (N,g,h/g,...) and flatten.
    Blind: targets that return no weights by head; there numeric.oracle looks.
    Earns: it names the heads.
    """
    h, g = subject.heads, subject.kv_heads
    if g == h or g == 1:
        raise Inapplicable("has as many key heads as query heads, or one")
    want_hh = torch.arange(h)[:, None] // (h // g) == torch.arange(h) // (h // g)
    answer, share_hh = _shared_in_kernel(subject, case) if subject.kind == "kernel" else _shared(subject, case)
    if bool(share_hh.all()):
        raise Inapplicable("all heads share something, so that groups cannot be told")
    wrong = (share_hh != want_hh).nonzero()
    if len(wrong):
        i, j = wrong[0].tolist()
        shares = "share" if bool(share_hh[i, j]) else "do not share"
        want = bool(want_hh[i, j])
        lines = _KERNEL_SHARES if subject.kind == "kernel" else _SHARES
        test = lines.format(h=h, g=g, i=i, j=j, want=want)
        fail(f"query heads {i} and {j} {shares} a key head, with h={h} and g={g}", answer, test=test)


_KERNEL_SHARES = """\
reads = []
for head in range({g}):
    at = torch.tensor([head])
    after, _ = call(query, key.index_fill(1, at, 0.5), value.index_fill(1, at, 0.5), allowed)
    reads.append((before != after).any(-1).any(-1).any(0))
reads = torch.stack(reads)
assert bool((reads[:, {i}] & reads[:, {j}]).any()) == {want}"""
_SHARES = """\
parameters, touched = [p for p in target.parameters() if p.requires_grad], []
for head in range({h}):
    weights = before_weights[:, head]
    total = (weights * torch.randn(weights.shape, generator=torch.Generator().manual_seed(9))).sum()
    grads = torch.autograd.grad(total, parameters, retain_graph=True, allow_unused=True)
    touched.append(torch.cat([(g != 0).flatten() for g in grads if g is not None]).double())
common = touched[{i}] @ touched[{j}]
assert bool(common > 0.1 * min(t.sum() for t in touched)) == {want}"""


def _shared_in_kernel(subject: Subject, case: Case) -> tuple[Answer, Tensor]:
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, None, case))
    reads = []
    for head in range(subject.kv_heads):
        index = torch.tensor([head])
        edited = inputs.map(
            lambda name, x, at=index: (x, "") if name == "query" else (x.index_fill(1, at, 0.5), "")  # type: ignore[misc]
        )
        after = answered(subject.attempt(edited, None, case))
        reads.append((before.out != after.out).any(-1).any(-1).any(0))
    reads_gh = torch.stack(reads).double()
    return before, reads_gh.T @ reads_gh > 0


def _shared(subject: Subject, case: Case) -> tuple[Answer, Tensor]:
    assert subject.module is not None
    answer = with_weights(subject, case)
    parameters = [p for p in subject.module.parameters() if p.requires_grad]
    touched = []
    for head in range(subject.heads):
        grads = torch.autograd.grad(of_head(answer, head), parameters, retain_graph=True, allow_unused=True)
        touched.append(torch.cat([(g != 0).flatten() for g in grads if g is not None]))
    if len({len(t) for t in touched}) > 1:
        raise Inapplicable("the heads are made of different parameters")
    # Gradients of rounding size touch what they should not; a share is many elements in common.
    touched_hP = torch.stack(touched).double()
    common_hh = touched_hP @ touched_hP.T
    return answer, common_hh > 0.1 * common_hh.diagonal().min()
