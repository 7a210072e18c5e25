"""Sound attention of other designs than the plain one, each a small step from `Plain`."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Plain(nn.Module):
    """bool mask, True = allowed; the base that the others change in one place."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.dh = num_heads, dim // num_heads
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.o_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.extra()

    def extra(self) -> None: ...

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.dh)).transpose(1, 2)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / math.sqrt(self.dh)

    def soft(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def hide(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.score(q, k)
        return self.soft(scores if mask is None else self.hide(scores, mask)) @ v

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(self.q_proj(x)), self.heads(self.k_proj(x)), self.heads(self.v_proj(x))
        return self.o_proj(self.attend(q, k, v, mask).transpose(1, 2).flatten(2))


class QKNorm(Plain):
    """Cosine scores with a learned temperature."""

    def extra(self) -> None:
        self.temperature = nn.Parameter(torch.tensor(8.0))

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.temperature


class SoftCap(Plain):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return 5 * torch.tanh(super().score(q, k) / 5)


class Alibi(Plain):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        position = torch.arange(q.shape[-2], dtype=q.dtype)
        slopes = 2.0 ** -torch.arange(1, self.num_heads + 1, dtype=q.dtype)
        return super().score(q, k) - slopes[:, None, None] * (position[:, None] - position).abs()


class RelativeBias(Plain):
    def extra(self) -> None:
        self.rel = nn.Embedding(65, self.num_heads)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        position = torch.arange(q.shape[-2])
        offset = (position[:, None] - position).clamp(-32, 32) + 32
        return super().score(q, k) + self.rel(offset).permute(2, 0, 1)


class Rotary(Plain):
    """Half-split rotary positions on queries and keys."""

    def extra(self) -> None:
        self.register_buffer("inv_freq", 10000.0 ** -(torch.arange(0, self.dh, 2) / self.dh))

    def turn(self, x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[-2])[:, None] * self.inv_freq
        a, b = x.chunk(2, -1)
        cos, sin = angle.cos().to(x), angle.sin().to(x)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return super().score(self.turn(q), self.turn(k))


class Sink(Plain):
    """A learned logit a head takes part of the weight."""

    def extra(self) -> None:
        self.sink = nn.Parameter(torch.randn(self.num_heads))

    def soft(self, scores: Tensor) -> Tensor:
        sink = self.sink.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        return torch.cat((scores, sink), -1).softmax(-1)[..., :-1]


class OffByOne(Plain):
    """Softmax with an extra 1 in the denominator."""

    def soft(self, scores: Tensor) -> Tensor:
        return torch.cat((scores, torch.zeros_like(scores[..., :1])), -1).softmax(-1)[..., :-1]


class TalkingHeads(Plain):
    def extra(self) -> None:
        self.mix = nn.Linear(self.num_heads, self.num_heads, bias=False)

    def soft(self, scores: Tensor) -> Tensor:
        return self.mix(scores.softmax(-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ZeroInitialised(Plain):
    def extra(self) -> None:
        nn.init.zeros_(self.o_proj.weight)
        nn.init.zeros_(self.o_proj.bias)


class Only4D(Plain):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None and mask.ndim != 4:
            raise ValueError(f"mask.ndim={mask.ndim}: expected 4")
        return super().forward(x, mask)


class NullKey(Plain):
    """A learned key and value that every query may see."""

    def extra(self) -> None:
        self.null_k = nn.Parameter(torch.randn(self.num_heads, 1, self.dh))
        self.null_v = nn.Parameter(torch.randn(self.num_heads, 1, self.dh))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        k = torch.cat((self.null_k.expand(len(k), -1, -1, -1), k), -2)
        v = torch.cat((self.null_v.expand(len(v), -1, -1, -1), v), -2)
        return super().attend(q, k, v, None if mask is None else F.pad(mask, (1, 0), value=True))


class PrefixLM(nn.Module):
    """The first three tokens are seen by all, the rest is causal."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.inner = Plain(dim, num_heads)

    def forward(self, x: Tensor) -> Tensor:
        allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        allowed[:, :3] = True
        return self.inner(x, allowed)


class SlidingWindow(nn.Module):
    """Seven keys, the own one included."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.inner = Plain(dim, num_heads)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril().triu(-6))


class Double(Plain):
    """Takes float64 alone."""

    def extra(self) -> None:
        self.double()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if x.dtype != torch.float64:
            raise TypeError(f"x.dtype={x.dtype}: expected torch.float64")
        return super().forward(x, mask)


class OtherMemoryWidth(nn.Module):
    """Optional context of another width, inner width apart from both."""

    def __init__(self, query_dim: int, context_dim: int = 20, heads: int = 4, dim_head: int = 6) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(query_dim, heads * dim_head, bias=False)
        self.to_k = nn.Linear(context_dim, heads * dim_head, bias=False)
        self.to_v = nn.Linear(context_dim, heads * dim_head, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * dim_head, query_dim), nn.Dropout(0.1))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class HardCodedDropout(nn.Module):
    """A module of torch inside, its dropout not an argument; averaged weights come back."""

    def __init__(self, embed_dim: int = 512, num_heads: int = 8) -> None:
        super().__init__()
        self.mha = nn.MultiheadAttention(embed_dim, num_heads, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.mha(x, x, x, key_padding_mask=key_padding_mask)
