"""Sound scores and softmaxes of other kinds, each a small step from `Plain`."""

import math

import torch
from designs import Alibi, Plain, SoftCap
from torch import Tensor, nn


class LearnedScale(Plain):
    """One factor of the scores, learned by its logarithm."""

    def extra(self) -> None:
        self.log_scale = nn.Parameter(torch.tensor(-0.3))

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT * self.log_scale.exp()


class MuP(Plain):
    """Scores divided by d instead of its root."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / self.dh


class RmsQKNorm(Plain):
    """Queries and keys normed by root mean square, with a learned gain for each feature."""

    def extra(self) -> None:
        self.q_norm, self.k_norm = nn.RMSNorm(self.dh), nn.RMSNorm(self.dh)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return super().score(self.q_norm(q), self.k_norm(k))


class CausalAlibi(Alibi):
    """Slopes over distance, and the future hidden beside the given mask."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return super().forward(x, past if mask is None else mask & past)


class CausalSoftCap(SoftCap):
    """Capped before the future is hidden, as it must be."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril())


class T5(Plain):
    """No scale, no biases, and a learned bias for each bucket of distance, growing by logarithm beyond 8."""

    def extra(self) -> None:
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.o_proj):
            linear.register_parameter("bias", None)
        self.relative_attention_bias = nn.Embedding(32, self.num_heads)

    def buckets(self, T: int) -> Tensor:
        offset = torch.arange(T) - torch.arange(T)[:, None]
        far = 8 + (offset.abs().clamp(min=8).float() / 8).log() / math.log(16) * 8
        near = torch.where(offset.abs() < 8, offset.abs(), far.long().clamp(max=15))
        return near + 16 * (offset > 0)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT + self.relative_attention_bias(self.buckets(q.shape[-2])).permute(2, 0, 1)


class Differential(Plain):
    """The difference of two softmaxes, so that a weight may be negative."""

    def extra(self) -> None:
        self.lam = nn.Parameter(torch.tensor(0.3))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        (q1, q2), (k1, k2) = q.chunk(2, -1), k.chunk(2, -1)
        return super().attend(q1, k1, v, mask) - self.lam * super().attend(q2, k2, v, mask)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / math.sqrt(q.shape[-1])


class SigmoidWeights(Plain):
    """Each key weighed on its own; the weights of a row sum to anything."""

    def soft(self, scores: Tensor) -> Tensor:
        return (scores - math.log(8)).sigmoid()


class GatedHeads(Plain):
    """Each query scales what its heads have gathered."""

    def extra(self) -> None:
        self.gate = nn.Linear(self.q_proj.in_features, self.num_heads)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(self.q_proj(x)), self.heads(self.k_proj(x)), self.heads(self.v_proj(x))
        mixed = self.attend(q, k, v, mask) * self.gate(x).sigmoid().mT[..., None]
        return self.o_proj(mixed.transpose(1, 2).flatten(2))
