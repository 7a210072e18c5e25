"""Causality: what comes later cannot change what was said earlier, and what came earlier does matter.

N batch, T queries, S keys
"""

import torch
from torch import Tensor

from attncheck.allowed import keys_to_edit, triangle
from attncheck.compare import answered, changed, fail, premise, unchanged
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import WITH_GRAD, Case, Subject


def several(case: Case) -> bool:
    return case.T > 1 and case.S > 1


def causal_mask(subject: Subject, case: Case) -> Tensor | None:
    """None where the target is causal by itself, so that its own triangle is tried and not ours."""
    return triangle(case) if subject.causality == "no" else None


@check(
    "causal.future-edit",
    needs=("causality",),
    where=several,
    faults=(
        "causal.diagonal-plus-one", "causal.ignored", "causal.dropped-with-weights", "causal.leaks-without-grad",
        "causal.leaks-in-evaluation",
        "causal.upside-down",
        "causal.last-head-leaks", "heads.merged-without-transpose", "mask.transposed", "softmax.query-axis",
    ),
)  # fmt: skip
def future_edit(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The output at a position does not change when a later token is edited.

    Exact: a blocked key has weight 0. Edits single tokens, both ends and one between, and the second half at once.

    Why: A model that sees the token that it must predict has a wonderful loss and generates nonsense. One path is
    enough: weights asked for, evaluation, or no gradients.
    Fix: Allow key s for query t where s <= t, torch.ones(T, S).tril() with diagonal 0, and apply it on every path.
    Where the kernel's causal flag is used, check that no mask or option turns it off.
    Blind: Edits single tokens at both ends and one between, and the second half at once. Edits are of ordinary
    size, so that a fill of -1e4 holds; in training with dropout, and through gradients only, it does not look.
    Earns: It alone can be asked of a causal target that takes no mask, returns no weights and keeps its parameters
    to itself, on the paths without gradients.
    """
    allowed = causal_mask(subject, case)
    sight = Sight(subject, allowed, case)
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, allowed, case))
    for positions in [[s] for s in keys_to_edit(case) if s] + [list(range(case.S // 2, case.S))]:
        after = answered(subject.attempt(inputs.edited(positions, case.seed), allowed, case))
        if sight.seeing(positions).any():
            premise((before.out != after.out).any(), f"editing keys {positions} changed no output at all")
        rows = sight.blind(positions)
        if rows.any():
            edited = f"keys {positions[0]} to {positions[-1]} are" if len(positions) > 1 else f"key {positions[0]} is"
            unchanged(before, after, rows, f"{edited} later and must not be seen, but when edited")


@check(
    "causal.future-gradient",
    needs=("causality",),
    where=several,
    modes=WITH_GRAD,
    faults=("causal.leaks-in-gradient", "causal.diagonal-plus-one", "causal.ignored"),
)
def future_gradient(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The gradient of an output with respect to later tokens is exactly zero.

    Exact. Sees leaks through paths whose value cancels.

    Why: A path that adds nothing to the output, as a straight-through estimate or a term that cancels, still trains
    the past on the future.
    Fix: Find the operation that mixes positions outside of the masked product (a mean over time, a normalisation
    over time, a detach() that covers one branch only) and mask it, or take it out.
    Blind: Leaks through detached values and on the path without gradients, which `causal.future-edit` sees; where
    the values are a tensor of their own, gradients with respect to them.
    Earns: it sees a leak whose value cancels, as of a straight-through path, from the output alone.
    """
    allowed = causal_mask(subject, case)
    sees_TS = subject.visible(allowed, case).flatten(0, 1).any(0)
    answer = answered(subject.attempt(subject.draw(case).fresh(), allowed, case))
    source = answer.inputs.key
    premise(answer.output.requires_grad, "the output carries no gradient")
    live = False
    for t in range(case.T):
        (grad,) = torch.autograd.grad(
            answer.output[..., t, :].sum(), source, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        row_S = grad.abs().flatten(0, -3).amax((0, -1)).cpu() if grad.ndim > 3 else grad.abs().amax((0, -1)).cpu()
        live = live or bool(row_S.any())
        hidden_S = ~sees_TS[t] & sees_TS[t].any()
        if answer.inputs.tied:
            hidden_S[t] = False
        if bool((row_S[hidden_S] != 0).any()):
            s = int((row_S.masked_fill(~hidden_S, 0)).argmax())
            fail(
                f"the output of query {t} has gradient {float(row_S[s]):.2g} with respect to key {s}, later than it",
                answer,
                test=f"(grad,) = torch.autograd.grad(before[..., {t}, :].sum(), key)\n"
                f"assert not grad[..., {s}, :].any()",
            )
    premise(live, "no output has a gradient")


@check(
    "causal.past-matters",
    needs=("causality",),
    where=several,
    faults=("causal.forgets-position-zero", "causal.window-of-two", "causal.strict"),
)
def past_matters(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Every earlier token that a query may see changes its output, the first and the own one included.

    In self-attention the own token is always alive through its query, so there the own key is not judged.

    Why: A triangle that is one too strict, or a cache that loses its first token, hides context that should be
    there. The model still trains, only worse.
    Fix: Use diagonal 0, so that a query sees its own key, and look for a window or a slice that is one too short.
    Blind: How much a key acts, and keys other than both ends and one between. In self-attention the own token acts
    through its query, so that its key is not judged.
    Earns: It is the other half of `causal.future-edit`, and is asked of causal targets that take no mask, where
    `mask.allowed-keys` cannot be.
    """
    allowed = causal_mask(subject, case)
    sight = Sight(subject, allowed, case)
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, allowed, case))
    for s in keys_to_edit(case):
        rows = sight.seeing([s])
        if rows.any():
            after = answered(subject.attempt(inputs.edited([s], case.seed), allowed, case))
            changed(before, after, rows, f"key {s} may be seen, but when it was edited")
