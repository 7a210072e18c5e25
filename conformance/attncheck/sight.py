"""Which output may see which key under a mask, and which outputs are judged at all.

N batch, h heads, T queries, S keys; rows are (N,h,T) for a kernel, (N,T) for an attention, which mixes its heads
"""

from __future__ import annotations

import torch
from torch import Tensor

from attncheck.subject import Case, Subject


def padded_queries(allowed: Tensor | None, case: Case) -> Tensor | None:
    """Queries (N,T) that are padding by a mask of tokens; None where no mask says so."""
    if not case.tied or allowed is None or allowed.dtype != torch.bool or allowed.ndim != 4 or allowed.shape[-2] != 1:
        return None
    return ~allowed[:, 0, 0].cpu()


class Sight:
    """The view of every output of one call.

    Not judged, since what they give is a policy: queries without any key, and in self-attention under a padding mask
    the padded queries themselves.
    """

    def __init__(self, subject: Subject, allowed: Tensor | None, case: Case) -> None:
        self.visible_NhTS = subject.visible(allowed, case)
        self.by_head, self.tied = subject.kind == "kernel", case.tied
        alive_NhT = self.visible_NhTS.any(-1)
        self.judged = alive_NhT if self.by_head else alive_NhT.all(1)
        padded_NT = padded_queries(allowed, case)
        if padded_NT is not None:
            self.judged = self.judged & ~(padded_NT[:, None] if self.by_head else padded_NT)

    def seeing(self, keys: list[int], every_head: bool = False) -> Tensor:
        """Outputs that may see any of `keys`, in some head or in all; not those whose own token is among them."""
        seen = self.visible_NhTS[..., keys].any(-1)
        return self._others(seen if self.by_head else seen.all(1) if every_head else seen.any(1), keys)

    def blind(self, keys: list[int]) -> Tensor:
        """Outputs that may see none of `keys` in any head, without those whose own token is among them."""
        seen = self.visible_NhTS[..., keys].any(-1)
        return self._others(~seen if self.by_head else ~seen.any(1), keys)

    def _others(self, rows: Tensor, keys: list[int]) -> Tensor:
        rows = rows & self.judged
        if self.tied:
            rows[..., keys] = False
        return rows
