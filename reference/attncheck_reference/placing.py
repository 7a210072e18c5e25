"""What happens to queries and keys between their projection and their scores: normalisation and rotation.

N batch, T queries, S keys, h heads, g key/value heads, d head width of queries and keys, E features of all heads
"""

import torch
from torch import Tensor, nn

from attncheck_reference.norms import norm
from attncheck_reference.positions import Rotary
from attncheck_reference.refusals import one_of

OVER = ("head", "each", "all")


class Placing(nn.Module):
    """The steps `norm_features`, `norm_heads` and `rotate` of a multi-head attention.

    rotary: turns queries at positions 0 .. T-1 and keys at 0 .. S-1; "half" or "interleaved" is the usual one.
    qk_norm: "rms", "layer" or "unit" normalises queries and keys (Henry et al. 2020, "Query-Key Normalization for
    Transformers", section 3; Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion Parameters", section 2).
    qk_norm_over: the d features of a "head", by one weight (d) for all heads, or of "each" head, by weights (h,1,d)
    and (g,1,d) of their own; or "all" h*d features together, before they are split.
    qk_norm_first: before the rotation, as most have it, or after it.
    Keys beside those given (`extra_keys`) are neither normalised nor turned: they are learned as they are.
    """

    rotary: Rotary | None
    norm_over: str
    norm_first: bool
    q_norm: nn.Module
    k_norm: nn.Module

    def set_placing(
        self, h: int, g: int, d: int, rotary: Rotary | str | None, kind: str, over: str, first: bool, eps: float | None
    ) -> None:
        one_of("qk_norm_over", over, OVER)
        if over == "all" and not first:
            raise ValueError("qk_norm_first=False: expected True where all features are normalised before the split")
        self.rotary = Rotary(d, pairing=rotary) if isinstance(rotary, str) else rotary
        if self.rotary is not None and self.rotary.width != d:
            raise ValueError(f"rotary of width {self.rotary.width}: expected the head width {d}")
        self.norm_over, self.norm_first = over, first
        for name, heads in (("q_norm", h), ("k_norm", g)):
            shape = {"head": (d,), "each": (heads, 1, d), "all": (heads * d,)}[over]
            setattr(self, name, norm("qk_norm", kind, *shape, eps=eps, unit=True))

    def norm_features(self, q_NTE: Tensor, k_NSE: Tensor) -> tuple[Tensor, Tensor]:
        """Over the features of all heads, before they are split."""
        return (self.q_norm(q_NTE), self.k_norm(k_NSE)) if self.norm_over == "all" else (q_NTE, k_NSE)

    def place(self, q_NhTd: Tensor, k_NgSd: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys as they meet: normalised by head and turned to their positions, or the other way round."""
        if self.norm_first:
            return self.rotate(*self.norm_heads(q_NhTd, k_NgSd))
        return self.norm_heads(*self.rotate(q_NhTd, k_NgSd))

    def norm_heads(self, q_NhTd: Tensor, k_NgSd: Tensor) -> tuple[Tensor, Tensor]:
        """Over the features of one head."""
        return (q_NhTd, k_NgSd) if self.norm_over == "all" else (self.q_norm(q_NhTd), self.k_norm(k_NgSd))

    def rotate(self, q_NhTd: Tensor, k_NgSd: Tensor) -> tuple[Tensor, Tensor]:
        if self.rotary is None:
            return q_NhTd, k_NgSd
        t_T, s_S = (torch.arange(x.shape[-2], device=x.device) for x in (q_NhTd, k_NgSd))
        return self.rotary.rotate(q_NhTd, t_T), self.rotary.rotate(k_NgSd, s_S)
