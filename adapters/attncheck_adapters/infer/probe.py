"""What a target does, found by calling it: output, layout, masks and their meaning, causality.

Every probe compares how far outputs move when one token is edited. N batch, T queries, S keys, h heads
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attncheck.inputs import Inputs, drawn
from attncheck.subject import TimedOut
from attncheck_adapters.infer import extras
from attncheck_adapters.infer.code import TURNED, handed_over
from attncheck_adapters.infer.form import Form
from attncheck_adapters.infer.results import axes_turned

N_, T_, S_ = 3, 5, 7


Call = Callable[..., tuple[Tensor, Tensor | None]]


class Probe:
    """Calls of one target under a form that is still being found."""

    def __init__(
        self, target: Any, form: Form, widths: tuple[int, int, int], heads: tuple[int, int] | None, dtype: torch.dtype,
        n_heads: int = 1,
    ):  # fmt: skip
        self.target, self.form, self.widths, self.heads, self.dtype = target, form, widths, heads, dtype
        self.seed, self.shift, self.grad = 0, 0, False
        self.n_heads = n_heads
        self.tried: dict[str, None] = {}  # ways of a plain call that were refused, in words

    def sources(self) -> tuple[str, ...]:
        """Ways of calling it: what its arguments allow and its widths fit."""
        found = self.form.sources()
        same = self.widths[0] == self.widths[1]
        return found if same else tuple(s for s in found if s not in ("self", "clones"))

    def inputs(self, sources: str, N: int = N_, T: int = T_, S: int = S_, seed: int = 3) -> Inputs:
        S = T if sources in ("self", "clones") else S
        h, g = ((self.heads[0],), (self.heads[1],)) if self.heads else ((), ())
        shapes = [(N, *x, n, w) for x, n, w in zip((h, g, g), (T, S, S), self.widths, strict=True)]
        return drawn(sources, shapes, seed, self.dtype, torch.device("cpu"))

    def raw(self, inputs: Inputs, **given: Any) -> Any:
        """The target's own result, in evaluation without gradients; an exception is a result too."""
        names, form = self.form.names, self.form
        given = {
            **extras.evaluated(form, inputs.query, inputs.key, self.shift),
            **self.unmasked(inputs, given),
            **given,
        }
        for role, x in zip(("query", "key", "value"), inputs.tensors(), strict=True):
            if role in names:
                given[names[role]] = x
        if "memory" in names and (inputs.sources != "self" or "memory" not in form.extra.get("optional", ())):
            given[names["memory"]] = inputs.key
        tokens = {id(x): x for x in inputs.tensors()}
        if form.layout in TURNED:
            tokens = {key: x.transpose(*axes_turned(form.layout)) for key, x in tokens.items()}
        torch.default_generator.manual_seed(self.seed)
        try:
            with torch.set_grad_enabled(self.grad):
                if form.extra.get("reset") is not None:
                    getattr(self.target, form.extra["reset"])()
                if form.extra.get("unbatched"):
                    each = [{k: tokens[id(v)][n] if id(v) in tokens else v for k, v in given.items()}
                            for n in range(len(inputs.query))]  # fmt: skip
                    return _stacked([self.target(**one) for one in each])
                return self.target(**{k: tokens.get(id(v), v) for k, v in given.items()})
        except (KeyboardInterrupt, TimedOut):
            raise
        except BaseException as error:
            return error

    def unmasked(self, inputs: Inputs, given: Mapping[str, Any]) -> dict[str, Any]:
        """What stands for no mask where the argument has no default: None, or a mask that blocks nothing."""
        names = [self.form.names[role] for role in self.form.extra.get("required", ())]
        blank: dict[str, Any] = {name: None for name in names if name not in given}
        if self.form.plain is not None and self.form.plain[0] in blank:
            argument, axes, encoding = self.form.plain
            nothing = torch.ones(1, 1, 1, inputs.key.shape[-2], dtype=torch.bool)
            blank[argument] = handed_over(nothing, axes, encoding, self.n_heads, inputs)
        return blank

    def output(self, inputs: Inputs, **given: Any) -> Tensor | None:
        """The output, batch first; None where the call was refused."""
        result = self.raw(inputs, **given)
        if isinstance(result, BaseException):
            return None
        try:
            output: Tensor = eval(self.form.output, {"result": result, "weights": self.asked(given)})
        except (TypeError, KeyError, IndexError, AttributeError):
            return None
        if not isinstance(output, Tensor):
            return None
        return output.transpose(*axes_turned(self.form.layout)) if self.form.layout in TURNED else output

    def asked(self, given: Mapping[str, Any]) -> bool:
        """Whether the call asks for weights; a flag that is not given has its default."""
        return bool(given.get(self.form.names.get("weights", ""), self.form.extra.get("asks", False)))

    def movement(self, inputs: Inputs, **given: Any) -> Tensor | None:
        """How far each output moves when each key is edited, (N,T,S); None where the call is refused."""
        before = self.output(inputs, **given)
        if before is None or before.shape[:-1] != inputs.query.shape[:-1]:
            return None
        columns = []
        for s in range(inputs.key.shape[-2]):
            after = self.output(inputs.edited([s], seed=s), **given)
            if after is None or after.shape != before.shape:
                return None
            moved = (after - before).abs().nan_to_num(0.0).amax(-1)
            columns.append(moved if moved.ndim == 2 else moved.amax(1))
        return torch.stack(columns, -1)


def _stacked(results: list[Any]) -> Any:
    """The results of single samples as that of a batch."""
    first = results[0]
    if isinstance(first, Tensor):
        return torch.stack(results)
    if isinstance(first, dict):
        return {k: _stacked([r[k] for r in results]) for k in first}
    if isinstance(first, tuple | list):
        return tuple(_stacked(list(parts)) for parts in zip(*results, strict=True))
    return first
