"""Sound attention of other shapes: head widths, groups of heads, shared maps, layouts, memories, results."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from designs import Plain
from torch import Tensor, nn


class WideValues(nn.Module):
    """Values wider than queries and keys, in any number of heads; the output has the width of the input."""

    def __init__(self, d_model: int, n_heads: int, d_k: int = 5, d_v: int = 9) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.w_q, self.w_k = nn.Linear(d_model, n_heads * d_k), nn.Linear(d_model, n_heads * d_k)
        self.w_v, self.w_o = nn.Linear(d_model, n_heads * d_v), nn.Linear(n_heads * d_v, d_model)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        q = self.w_q(query).unflatten(-1, (self.n_heads, self.d_k)).transpose(1, 2)
        k = self.w_k(key).unflatten(-1, (self.n_heads, self.d_k)).transpose(1, 2)
        v = self.w_v(value).unflatten(-1, (self.n_heads, self.d_v)).transpose(1, 2)
        scores = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return self.w_o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class GroupedQuery(Plain):
    """Each key head serves as many neighbouring query heads."""

    groups = 2

    def extra(self) -> None:
        dim = self.q_proj.in_features
        self.groups = math.gcd(self.groups, self.num_heads)
        self.k_proj, self.v_proj = (nn.Linear(dim, self.groups * self.dh) for _ in range(2))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        k, v = (x.repeat_interleave(self.num_heads // self.groups, 1) for x in (k, v))
        return super().attend(q, k, v, mask)


class MultiQuery(GroupedQuery):
    """One key head for all."""

    groups = 1


class SharedKeyValue(Plain):
    """The projected keys are the values too."""

    def extra(self) -> None:
        del self.v_proj

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, kv = self.heads(self.q_proj(x)), self.heads(self.k_proj(x))
        return self.o_proj(self.attend(q, kv, kv, mask).transpose(1, 2).flatten(2))


class SequenceFirst(Plain):
    """(T,N,D) in and out."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x.transpose(0, 1), mask).transpose(0, 1)


class CrossOnly(Plain):
    """Always reads a memory, of which a token mask tells the real ones."""

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(self.q_proj(x)), self.heads(self.k_proj(memory)), self.heads(self.v_proj(memory))
        mask = None if memory_mask is None else memory_mask[:, None, None, :]
        return self.o_proj(self.attend(q, k, v, mask).transpose(1, 2).flatten(2))


class WithWeights(Plain):
    """Keeps the weights, for the classes below to return."""

    def soft(self, scores: Tensor) -> Tensor:
        self.weights = super().soft(scores)
        return self.weights


class AveragedWeights(WithWeights):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return super().forward(x, mask), self.weights.mean(1)


class InADict(WithWeights):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        output = super().forward(x, mask)
        return {"attentions": self.weights, "output": output}


class Pair(NamedTuple):
    context: Tensor
    weights: Tensor


class InANamedTuple(WithWeights):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Pair:
        return Pair(super().forward(x, mask), self.weights)


@dataclass
class Result:
    hidden_states: Tensor
    attentions: Tensor | None = None


class InADataclass(WithWeights):
    def forward(self, x: Tensor, mask: Tensor | None = None, output_attentions: bool = False) -> Result:
        out = super().forward(x, mask)
        return Result(out, self.weights if output_attentions else None)
