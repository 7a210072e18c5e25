"""Attention in small named steps: score, scale, cap, add_positions, mask, extend, weigh, softmax, dropout, mix.

Vaswani et al. 2017, "Attention Is All You Need", equation 1 and section 3.2.2; grouped queries after Ainslie et
al. 2023, "GQA", section 2.2. Nothing is fused and nothing is clever: this is the code that others are held against.

N batch, T queries, S keys, D width, h heads, g key/value heads, d head width of queries and keys, e of values,
X keys with the extra ones, which are the last
"""

import math

import torch
from torch import Tensor, nn

from attncheck_reference.masks import CORNERS, DEAD_ROWS, MASKED, check_allowed, check_bias, combined, pattern
from attncheck_reference.positions import bias_of
from attncheck_reference.refusals import check_split, one_of


class DotProductAttention(nn.Module):
    """softmax(q k^T / sqrt(d)) v for heads that are already split.

    causal: query t sees keys up to t (`corner="top-left"`) or up to t + S - T (`"bottom-right"`).
    window: (L, R), query t sees keys t+L .. t+R.  scale: factor of the scores, 1/sqrt(d) where None;
    a tensor (h,1,1) has one for each head (Liu et al. 2022, "Swin Transformer V2", equation 2).
    softcap: c, scaled scores become c * tanh(score / c) (Gemma Team 2024, "Gemma 2", section 2).
    masked: "also", a given mask adds to causality and window, or "instead", it takes their place.
    dead_rows: what a query without an allowed key gives: "refuse" (ValueError), "nan", "zero" or "uniform".
    position_bias: a module whose forward(T, S) gives (h,T,S), added to the scaled and capped scores of the S keys
    given; "alibi" or "buckets" is the usual one of that name.
    sink: a learned logit of each head takes part in softmax and is dropped, so that weights sum to less than 1 and no
    row is dead (Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", section 3.3, where it is
    0; learned in OpenAI 2025, "gpt-oss", section 2.2).
    """

    def __init__(
        self,
        heads: int,
        kv_heads: int | None = None,
        *,
        causal: bool = False,
        corner: str = "top-left",
        window: tuple[int, int] | None = None,
        scale: float | Tensor | None = None,
        softcap: float | None = None,
        masked: str = "also",
        dropout: float = 0.0,
        dead_rows: str = "refuse",
        position_bias: nn.Module | str | None = None,
        sink: bool = False,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"heads={heads}, kv_heads={kv_heads}: expected both >= 1, heads a multiple of kv_heads")
        one_of("corner", corner, CORNERS)
        one_of("dead_rows", dead_rows, DEAD_ROWS)
        one_of("masked", masked, MASKED)
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout={dropout}: expected 0 <= dropout < 1")
        if softcap is not None and not softcap > 0:
            raise ValueError(f"softcap={softcap}: expected a number above 0, or None")
        if isinstance(scale, Tensor) and scale.shape != (heads, 1, 1):
            raise ValueError(f"scale.shape={tuple(scale.shape)}: expected ({heads}, 1, 1), or a number")
        self.heads, self.kv_heads, self.dead_rows = heads, kv_heads, dead_rows
        self.causal, self.corner, self.window = causal, corner, window
        self.factor = scale.detach().clone() if isinstance(scale, Tensor) else scale
        self.softcap, self.masked = softcap, masked
        self.drop = nn.Dropout(dropout)
        self.extra_keys = 0
        self.position_bias = bias_of(position_bias, heads)
        self.sink = nn.Parameter(torch.randn(heads)) if sink else None

    def forward(
        self,
        q_NhTd: Tensor,
        k_NgSd: Tensor,
        v_NgSe: Tensor,
        allowed: Tensor | None = None,
        bias: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the output (N,h,T,e) and, if asked, the weights (N,h,T,S) before dropout.

        allowed: bool, True = may attend, (T,S) or broadcastable to (N,h,T,S).
        bias: float, broadcastable to (N,h,T,S), added to the scaled scores; -inf forbids.
        """
        check_split(q_NhTd, k_NgSd, v_NgSe, self.heads, self.kv_heads)
        mixed_NhTe, weights_NhTS = self.attend(q_NhTd, k_NgSd, v_NgSe, allowed, bias)
        return mixed_NhTe, weights_NhTS if need_weights else None

    def attend(
        self, q_NhTd: Tensor, k_NgSd: Tensor, v_NgSe: Tensor, allowed: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        k_NhSd, v_NhSe = self.spread(k_NgSd), self.spread(v_NgSe)
        shape_NhTS = (q_NhTd.shape[0], self.heads, q_NhTd.shape[-2], k_NhSd.shape[-2])
        check_allowed(allowed, shape_NhTS, q_NhTd.device)
        check_bias(bias, shape_NhTS)
        scores_NhTS = self.cap(self.scale(self.score(q_NhTd, k_NhSd), q_NhTd.shape[-1]))
        scores_NhTS = self.add_positions(scores_NhTS)
        if bias is not None:
            scores_NhTS = scores_NhTS + bias.masked_fill(bias == -torch.inf, 0.0)
        instead = self.masked == "instead" and (allowed is not None or bias is not None)
        pattern_TS = None if instead else self.pattern(*shape_NhTS[2:], q_NhTd.device)
        allowed = combined(pattern_TS, allowed, bias)
        scores_NhTX, v_NhXe = self.extend(q_NhTd, self.mask(scores_NhTS, allowed), v_NhSe)
        weights_NhTX = self.settle_dead_rows(self.weigh(scores_NhTX), allowed)
        return self.mix(self.dropout(weights_NhTX), v_NhXe), weights_NhTX[..., : shape_NhTS[-1]]

    def spread(self, x_NgSd: Tensor) -> Tensor:
        """Query head i reads key/value head i // (h / g)."""
        return x_NgSd.repeat_interleave(self.heads // self.kv_heads, dim=1)

    def score(self, q_NhTd: Tensor, k_NhSd: Tensor) -> Tensor:
        return q_NhTd @ k_NhSd.mT

    def scale(self, scores_NhTS: Tensor, d: int) -> Tensor:
        if isinstance(self.factor, Tensor):
            return scores_NhTS * self.factor.to(scores_NhTS)
        return scores_NhTS * (1 / math.sqrt(d) if self.factor is None else self.factor)

    def cap(self, scores_NhTS: Tensor) -> Tensor:
        return scores_NhTS if self.softcap is None else self.softcap * torch.tanh(scores_NhTS / self.softcap)

    def add_positions(self, scores_NhTS: Tensor) -> Tensor:
        if self.position_bias is None:
            return scores_NhTS
        bias_hTS: Tensor = self.position_bias(*scores_NhTS.shape[-2:])
        return scores_NhTS + bias_hTS.to(scores_NhTS)

    def pattern(self, T: int, S: int, device: torch.device) -> Tensor | None:
        """The built-in mask (T,S), None where every key is in sight."""
        return pattern(T, S, self.causal, self.corner, self.window, device)

    def mask(self, scores_NhTS: Tensor, allowed: Tensor | None) -> Tensor:
        return scores_NhTS if allowed is None else scores_NhTS.masked_fill(~allowed, -torch.inf)

    def extend(self, q_NhTd: Tensor, scores_NhTS: Tensor, v_NhSe: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and values of extra keys, after the mask, so that every query sees them. A kernel has none."""
        return scores_NhTS, v_NhSe

    def weigh(self, scores_NhTX: Tensor) -> Tensor:
        """Softmax, in which the sink takes its share."""
        if self.sink is None:
            return self.softmax(scores_NhTX)
        sink_NhT1 = self.sink.to(scores_NhTX)[:, None, None].expand(*scores_NhTX.shape[:-1], 1)
        return self.softmax(torch.cat((scores_NhTX, sink_NhT1), -1))[..., :-1]

    def softmax(self, scores_NhTX: Tensor) -> Tensor:
        return scores_NhTX.softmax(dim=-1)

    def settle_dead_rows(self, weights_NhTS: Tensor, allowed: Tensor | None) -> Tensor:
        """A softmax over nothing is 0/0; what stands there instead is a choice, so it has a name."""
        always = self.extra_keys or self.sink is not None
        dead = None if allowed is None or always else ~allowed.any(-1, keepdim=True)
        if dead is None or self.dead_rows == "nan" or not bool(dead.any()):
            return weights_NhTS
        if self.dead_rows == "refuse":
            row = [int(i) for i in dead.squeeze(-1).nonzero()[0]]
            raise ValueError(f"allowed is all False in row {row}: every query needs a key, or pass dead_rows='zero'")
        return weights_NhTS.masked_fill(dead, 0.0 if self.dead_rows == "zero" else 1 / weights_NhTS.shape[-1])

    def dropout(self, weights_NhTX: Tensor) -> Tensor:
        dropped_NhTX: Tensor = self.drop(weights_NhTX)
        return dropped_NhTX

    def mix(self, weights_NhTX: Tensor, v_NhXe: Tensor) -> Tensor:
        return weights_NhTX @ v_NhXe
