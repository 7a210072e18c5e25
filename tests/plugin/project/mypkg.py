"""A user's project: one sound attention, and the ways in which a target can be broken."""

import os
import sys

import torch
from torch import Tensor, nn

from attncheck.subject import Convention


class Sound(nn.Module):
    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None = None) -> Tensor:
        scores = self.q(query) @ self.k(key).mT / query.shape[-1] ** 0.5
        if allowed is not None:
            scores = self.hidden(scores, allowed if allowed.ndim == 2 else allowed[:, 0])
        return scores.softmax(-1) @ self.v(value)

    def hidden(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return scores.masked_fill(~allowed, -torch.inf)


class Leaky(Sound):
    def hidden(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return scores


class Hangs(Sound):
    def hidden(self, scores: Tensor, allowed: Tensor) -> Tensor:
        while True:
            pass


class Exits(Sound):
    def hidden(self, scores: Tensor, allowed: Tensor) -> Tensor:
        sys.exit("enough")


class Dies(Sound):
    def hidden(self, scores: Tensor, allowed: Tensor) -> Tensor:
        os._exit(3)


class Prints(Sound):
    def hidden(self, scores: Tensor, allowed: Tensor) -> Tensor:
        import warnings

        print("printed by the target")
        warnings.warn("warned by the target", stacklevel=1)
        return super().hidden(scores, allowed)


class Unbuildable(Sound):
    def __init__(self) -> None:
        raise RuntimeError("no constructor")


class Endless(Sound):
    def __init__(self) -> None:
        while True:
            pass


class Uncallable(Sound):
    def forward(self, *args: Tensor) -> Tensor:
        raise RuntimeError("no forward")


class Wordy(Sound):
    def forward(self, *args: Tensor) -> str:
        return "not a tensor"


class Quits(Sound):
    def forward(self, *args: Tensor) -> Tensor:
        sys.exit(0)


class Adapter:
    width, heads = 12, 1
    masks: tuple[str, ...] = ("TS", "N11S", "N1TS")

    def __init__(self, module: nn.Module, **init: object) -> None:
        self.module = module
        self.conventions = {"mask": Convention("allowed", "observed", "key 2 moved the output only where True")}
        self.built = f"{type(module).__name__}({init})"

    def call(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
        return self.module(query, key, value, allowed), None


class Maskless(Adapter):
    masks = ()


def adapting(module: type[nn.Module], adapter: type[Adapter] = Adapter) -> object:
    def make(**init: object) -> Adapter:
        torch.manual_seed(0)
        return adapter(module(**init), **init)

    return make


sound, leaky, hangs, exits, dies = map(adapting, (Sound, Leaky, Hangs, Exits, Dies))
unbuildable, endless, uncallable, wordy, quits = map(adapting, (Unbuildable, Endless, Uncallable, Wordy, Quits))
prints = adapting(Prints)
maskless = adapting(Sound, Maskless)
text_adapter = str
