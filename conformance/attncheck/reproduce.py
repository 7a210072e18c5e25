"""A finding as a script that needs torch and the target alone."""

from __future__ import annotations

from torch import Tensor

from attncheck.compare import Failure
from attncheck.subject import Answer, Refusal


def script(check: str, claim: str, failure: Failure) -> str:
    """Python that ends with an AssertionError, or the target's own exception, while the fault is there."""
    before = failure.before
    source = getattr(before.subject.adapter, "source", None) if before is not None else None
    if before is None or source is None:
        return "# no script: the target was given as an object, so that only the command above can build it"
    head = [f'"""{check}: {claim}."""', "import torch", "", *source().splitlines(), *before.subject.setup]
    body = _call("before", before)
    if failure.after is not None:
        body += _call("after", failure.after)
    tail = failure.test.splitlines() if failure.test else ["# the call above raises"]
    return "\n".join([*head, "", *body, "", *tail, ""])


def _call(name: str, answer: Answer | Refusal) -> list[str]:
    options = "".join(f", {k}={v!r}" for k, v in answer.case.options.items())
    mode = answer.case.mode
    train = [] if answer.subject.module is None else [f"target.train({mode.startswith('train')})"]
    return [
        *train,
        f"torch.set_grad_enabled({not mode.endswith('no-grad')})",
        *answer.inputs.code,
        f"allowed = {_literal(answer.allowed)}",
        f"{name}, {name}_weights = call(query, key, value, allowed{options})",
    ]


def _literal(allowed: Tensor | None) -> str:
    if allowed is None:
        return "None"
    return f"torch.tensor({allowed.long().tolist()}).bool()  # True = may attend, {tuple(allowed.shape)}"
