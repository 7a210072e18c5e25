"""Query, key and value, with the code that makes them, so that a finding can be replayed without attncheck.

N batch, T queries, S keys, D width; the axis of positions is the last but one for every kind
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

# Which names share one tensor, for each way of calling an attention.
GROUPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "self": (("query", "key", "value"),),
    "clones": (("query",), ("key",), ("value",)),
    "memory": (("query",), ("key", "value")),
    "separate": (("query",), ("key",), ("value",)),
}
TIED = ("self", "clones")
Change = Callable[[str, Tensor], tuple[Tensor, str]]


@dataclass(frozen=True)
class Inputs:
    """What an attention is called with. `code` is Python that rebuilds the three tensors from torch alone."""

    query: Tensor
    key: Tensor
    value: Tensor
    sources: str
    code: tuple[str, ...]

    @property
    def tied(self) -> bool:
        """Whether the key at a position and the query there are one token."""
        return self.sources in TIED

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    def distinct(self) -> list[tuple[str, Tensor]]:
        return [(group[0], getattr(self, group[0])) for group in GROUPS[self.sources]]

    def map(self, change: Change) -> Inputs:
        """Replace each distinct tensor by `change(name, tensor)`, which gives the tensor and its code."""
        made: dict[str, Any] = {}
        lines = []
        for group in GROUPS[self.sources]:
            before = getattr(self, group[0])
            after, code = change(group[0], before)
            made.update(dict.fromkeys(group, after))
            if after is not before:
                lines.append(f"{' = '.join(group)} = {code}")
        return replace(self, code=(*self.code, *lines), **made)

    def edited(self, positions: list[int], seed: int, size: float = 1.0) -> Inputs:
        """New random keys and values at `positions` in every sample; in self-attention the token itself is new."""
        return self._renewed(-2, positions, seed, size, spared=() if self.tied else ("query",))

    def renewed(self, names: str, positions: list[int], seed: int) -> Inputs:
        """New random numbers at `positions` of the named tensors, in every sample."""
        return self._renewed(-2, positions, seed, 1.0, tuple({"query", "key", "value"} - set(names.split())))

    def resampled(self, sample: int, seed: int) -> Inputs:
        """One sample of the batch is new: query, key and value."""
        return self._renewed(0, [sample], seed, 1.0, spared=())

    def _renewed(self, axis: int, index: list[int], seed: int, size: float, spared: tuple[str, ...]) -> Inputs:
        def change(name: str, x: Tensor) -> tuple[Tensor, str]:
            if name in spared:
                return x, ""
            shape = [*x.shape]
            shape[axis] = len(index)
            # Clones of one tensor stay equal; separate tensors get numbers of their own.
            # The offset keeps them apart from the numbers that `drawn` makes of the same seed.
            number = seed + 10 + (0 if self.tied else ("query", "key", "value").index(name))
            new = torch.randn(shape, generator=torch.Generator().manual_seed(number)) * size
            code = (
                f"{name}.index_copy({axis}, torch.tensor({index}), (torch.randn({shape}, "
                f"generator=torch.Generator().manual_seed({number})) * {size}).to({name}))"
            )
            return x.index_copy(axis, torch.tensor(index, device=x.device), new.to(x)), code

        return self.map(change)

    def scaled(self, factor: float) -> Inputs:
        """The query times `factor`; in self-attention that is every tensor."""
        return self.map(lambda name, x: (x * factor, f"{name} * {factor}") if self.tied or name == "query" else (x, ""))

    def reindexed(self, index: list[int], axis: int, names: str = "query key value") -> Inputs:
        """The samples (axis 0) or positions (axis -2) of the named tensors in another order."""
        return self.map(
            lambda name, x: (
                (
                    x.index_select(axis, torch.tensor(index, device=x.device)),
                    f"{name}.index_select({axis}, torch.tensor({index}))",
                )
                if name in names.split()
                else (x, "")
            )
        )

    def cut(self, names: str, axis: int, length: int) -> Inputs:
        """The named tensors shortened to their first `length` places along an axis; all of one that is tied."""

        def change(name: str, x: Tensor) -> tuple[Tensor, str]:
            return x.narrow(axis, 0, length).contiguous(), f"{name}.narrow({axis}, 0, {length}).contiguous()"

        return self.map(lambda name, x: change(name, x) if self.tied or name in names.split() else (x, ""))

    def widened(self, names: str, axis: int) -> Inputs:
        """The named tensors with their first place along an axis once more at the end."""

        def change(name: str, x: Tensor) -> tuple[Tensor, str]:
            return torch.cat(
                (x, x.narrow(axis, 0, 1)), axis
            ), f"torch.cat(({name}, {name}.narrow({axis}, 0, 1)), {axis})"

        return self.map(lambda name, x: change(name, x) if self.tied or name in names.split() else (x, ""))

    def to(self, dtype: torch.dtype) -> Inputs:
        return self.map(lambda name, x: (x.to(dtype), f"{name}.to({dtype})") if x.dtype != dtype else (x, ""))

    def strided(self) -> Inputs:
        """The same numbers in tensors whose last axis has stride 2."""
        return self.map(
            lambda name, x: (
                torch.stack((x, x), -1).flatten(-2)[..., ::2],
                f"torch.stack(({name}, {name}), -1).flatten(-2)[..., ::2]",
            )
        )

    def copied(self) -> Inputs:
        return self.map(lambda name, x: (x.detach().clone(), f"{name}.clone()"))

    def fresh(self) -> Inputs:
        """Leaves that collect gradients."""
        return self.map(
            lambda name, x: (x.detach().clone().requires_grad_(), f"{name}.detach().clone().requires_grad_()")
        )


def drawn(sources: str, shapes: list[tuple[int, ...]], seed: int, dtype: torch.dtype, device: torch.device) -> Inputs:
    """Random query, key and value of the given shapes; the same for the same seed, whatever was drawn before."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}
    code = [f"draw = torch.Generator().manual_seed({seed})"]
    for group in GROUPS[sources]:
        if sources == "clones" and made:
            made[group[0]] = made["query"].clone()
            code.append(f"{group[0]} = query.clone()")
            continue
        shape = shapes[("query", "key", "value").index(group[0])]
        made.update(dict.fromkeys(group, torch.randn(shape, generator=generator).to(device, dtype)))
        code.append(f"{' = '.join(group)} = torch.randn({shape}, generator=draw).to({dtype})")
    return Inputs(made["query"], made["key"], made["value"], sources, tuple(code))
