"""A finding as a script that needs torch and the target alone."""

from __future__ import annotations

from torch import Tensor

from attncheck.compare import REFUSAL, Failure
from attncheck.subject import Answer, Refusal


def script(check: str, claim: str, failure: Failure) -> str:
    """Python that ends with an AssertionError, or the target's own exception, while the fault is there."""
    before, after = failure.before, failure.after
    source = getattr(before.subject.adapter, "source", None) if before is not None else None
    if before is None or source is None:
        return (
            "# no script: the adapter has no source(masks) that builds the target, so that only the command above can"
        )
    masks = [answer.allowed for answer in (before, after) if answer is not None]
    lines = [f'"""{check}: {claim}."""', "import torch", "", *source(masks).splitlines(), *before.subject.setup, ""]
    lines += [*_mode(before), *before.inputs.code, _mask(before)]
    if failure.test == REFUSAL:
        return "\n".join([*lines, "", "try:", *(f"    {line}" for line in _call("before", before)), *REFUSED, ""])
    lines += _call("before", before)
    lines += [] if after is None else [*_changed(before, after), *_call("after", after)]
    return "\n".join([*lines, "", *(failure.test or "# the call above raises").splitlines(), ""])


REFUSED = """\
except Exception as refusal:
    print("refused, as it should be:", refusal)
else:
    raise AssertionError(f"answered with shape {tuple(before.shape)}, expected an exception")""".splitlines()


def _changed(before: Answer | Refusal, after: Answer) -> list[str]:
    """What is set up anew for the second call: the mode, the inputs or only their edit, the mask."""
    mode = _mode(after) if _mode(after) != _mode(before) else []
    mask = [_mask(after)] if _mask(after) != _mask(before) else []
    # A copy, or one that was built anew.
    mask += after.subject.setup[len(before.subject.setup) :]
    done = len(before.inputs.code)
    edited_only = after.inputs.code[:done] == before.inputs.code
    return [*mode, *(after.inputs.code[done:] if edited_only else after.inputs.code), *mask]


def _mode(answer: Answer | Refusal) -> list[str]:
    mode = answer.case.mode
    train = [] if answer.subject.module is None else [f"target.train({mode.startswith('train')})"]
    return [*train, *([] if mode == "eval" else [f"torch.set_grad_enabled({not mode.endswith('no-grad')})"])]


def _mask(answer: Answer | Refusal) -> str:
    allowed: Tensor | None = answer.allowed
    if allowed is None:
        return "allowed = None"
    if allowed.is_floating_point():
        numbers = str(allowed.tolist()).replace("inf", "float('inf')")
        return f"allowed = torch.tensor({numbers}).to({allowed.dtype})  # added to the scores, {tuple(allowed.shape)}"
    view = "" if allowed.is_contiguous() else ".mT.contiguous().mT"
    return (
        f"allowed = torch.tensor({allowed.long().tolist()}).bool(){view}  # True = may attend, {tuple(allowed.shape)}"
    )


def _call(name: str, answer: Answer | Refusal) -> list[str]:
    seed = [f"torch.manual_seed({answer.seed})"] if answer.case.mode.startswith("train") else []
    options = "".join(f", {k}={v!r}" for k, v in answer.case.options.items())
    return [*seed, f"{name}, {name}_weights = call(query, key, value, allowed{options})"]
