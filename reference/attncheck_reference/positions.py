"""Where a token stands: rotated queries and keys, and biases that fall with distance. Tables are in tables.py.

N batch, T queries, S keys, h heads, d head width, P pairs of features
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attncheck_reference.refusals import one_of
from attncheck_reference.tables import BucketBias, OffsetBias, TableBias, offsets

__all__ = ["Alibi", "BucketBias", "OffsetBias", "Rotary", "TableBias", "alibi_slopes", "bias_of", "offsets"]


@dataclass(frozen=True)
class Rotary:
    """Pairs of features turned by an angle that grows with the position (Su et al. 2021, "RoFormer", equation 34).

    Pair i of P turns by position * base^(-i/P), so that q.k depends on the distance of the two positions only.
    width: d.  part: how many of the leading features are turned, all where None.
    pairing: "half", feature i with i + P (GPT-NeoX), or "interleaved", 2i with 2i + 1 (the paper).
    """

    width: int
    base: float = 10000.0
    pairing: str = "half"
    part: int | None = None

    def __post_init__(self) -> None:
        one_of("pairing", self.pairing, ("half", "interleaved"))
        if not 0 < self.turned <= self.width or self.turned % 2:
            raise ValueError(f"{self.turned} of {self.width} features are turned: expected an even number of them")

    @property
    def turned(self) -> int:
        return self.width if self.part is None else self.part

    def rotate(self, x_NhTd: Tensor, positions_T: Tensor) -> Tensor:
        """x with each token turned to its position; angles in float64, whatever x is."""
        if x_NhTd.shape[-1] != self.width:
            raise ValueError(f"x has {x_NhTd.shape[-1]} features a head: expected {self.width}")
        angle_TP = positions_T.double()[:, None] * self.frequencies().to(positions_T.device)
        cos_TP, sin_TP = angle_TP.cos().to(x_NhTd), angle_TP.sin().to(x_NhTd)
        a_NhTP, b_NhTP = self.pairs(x_NhTd[..., : self.turned])
        turned = self.joined(a_NhTP * cos_TP - b_NhTP * sin_TP, a_NhTP * sin_TP + b_NhTP * cos_TP)
        return torch.cat((turned, x_NhTd[..., self.turned :]), -1)

    def frequencies(self) -> Tensor:
        P = self.turned // 2
        return torch.tensor([self.base ** (-i / P) for i in range(P)], dtype=torch.float64)

    def pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        P = self.turned // 2
        return (x[..., :P], x[..., P:]) if self.pairing == "half" else (x[..., 0::2], x[..., 1::2])

    def joined(self, a_NhTP: Tensor, b_NhTP: Tensor) -> Tensor:
        if self.pairing == "half":
            return torch.cat((a_NhTP, b_NhTP), -1)
        return torch.stack((a_NhTP, b_NhTP), -1).flatten(-2)


def alibi_slopes(heads: int) -> Tensor:
    """(h) slopes: 2^(-8i/n), i = 1..n (Press et al. 2022, "Train Short, Test Long", section 3).

    Where h is no power of two, those of the power n below it, and then every other one of 2n, as the authors' code.
    """
    n = 1 << (heads.bit_length() - 1)
    powers = [-8 * i / n for i in range(1, n + 1)] + [-4 * i / n for i in range(1, 2 * (heads - n), 2)]
    return torch.tensor([2.0**power for power in powers], dtype=torch.float64)


class Alibi(nn.Module):
    """A bias that falls linearly with distance, by a slope of each head (Press et al. 2022, section 3).

    form: "symmetric", -slope * |t - s|, or "signed", slope * (s - t): the same where keys are not after queries.
    slopes: (h), kept as a buffer; those of the paper where None.
    """

    slopes: Tensor

    def __init__(self, heads: int, form: str = "symmetric", slopes: Tensor | None = None) -> None:
        super().__init__()
        one_of("form", form, ("symmetric", "signed"))
        slopes = alibi_slopes(heads) if slopes is None else slopes.detach().clone()
        if slopes.shape != (heads,):
            raise ValueError(f"slopes.shape={tuple(slopes.shape)}: expected ({heads},)")
        self.form = form
        self.register_buffer("slopes", slopes)

    def forward(self, T: int, S: int) -> Tensor:
        offset_TS = offsets(T, S, self.slopes.device).to(self.slopes)
        bias_hTS: Tensor = self.slopes[:, None, None] * (offset_TS if self.form == "signed" else -offset_TS.abs())
        return bias_hTS


def bias_of(kind: nn.Module | str | None, heads: int) -> nn.Module | None:
    """The bias itself, or the usual one of a name: "alibi", or "buckets" of T5."""
    if not isinstance(kind, str):
        return kind
    one_of("position_bias", kind, ("alibi", "buckets"))
    return Alibi(heads) if kind == "alibi" else BucketBias(32, heads)
