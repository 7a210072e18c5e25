"""Learned biases of the scores, by how far apart query and key stand or by where: forward(T, S) -> (h, T, S).

T queries, S keys, h heads, B buckets, L longest length
"""

import math

import torch
from torch import Tensor, nn

from attncheck_reference.refusals import check_lengths, one_of


def offsets(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """s - t (T,S): how far behind the query the key stands; both count from 0."""
    return torch.arange(S, device=device) - torch.arange(T, device=device)[:, None]


class BucketBias(nn.Module):
    """A bias for each bucket of distances: near ones alone, far ones by ratio (Raffel et al. 2020, "T5", section 2.1).

    Of B buckets the first half is for the distances 0 .. B/2 - 1, one each. The others split B/2 .. max_distance
    into ranges of one ratio; what is farther falls into the last.
    bidirectional: keys after the query have as many buckets of their own, behind those of keys before it or at it;
    otherwise they count as distance 0.
    """

    def __init__(self, buckets: int, heads: int, bidirectional: bool = True, max_distance: int = 128) -> None:
        super().__init__()
        self.side = buckets // 2 if bidirectional else buckets
        if self.side < 2 or (bidirectional and buckets % 2):
            raise ValueError(f"buckets={buckets}: expected at least two a side, and as many on both")
        if max_distance <= self.side // 2:
            raise ValueError(f"max_distance={max_distance}: expected more than the {self.side // 2} that stand alone")
        self.bidirectional, self.max_distance = bidirectional, max_distance
        self.table = nn.Parameter(torch.randn(buckets, heads))

    def starts(self) -> list[int]:
        """The least distance of every bucket of one side but the first, which starts at 0."""
        alone = self.side // 2
        ranges = self.side - alone
        ratio = self.max_distance / alone
        # Powers that are whole numbers must not be rounded up past themselves.
        return [*range(1, alone + 1), *(math.ceil(alone * ratio ** (i / ranges) - 1e-9) for i in range(1, ranges))]

    def bucket(self, offset_TS: Tensor) -> Tensor:
        distance_TS = offset_TS.abs() if self.bidirectional else -offset_TS.clamp(max=0)
        starts = torch.tensor(self.starts(), device=offset_TS.device)
        bucket_TS = torch.bucketize(distance_TS, starts, right=True)
        return bucket_TS + self.side * (offset_TS > 0) if self.bidirectional else bucket_TS

    def forward(self, T: int, S: int) -> Tensor:
        return self.table[self.bucket(offsets(T, S, self.table.device))].permute(2, 0, 1)


class OffsetBias(nn.Module):
    """A bias for every offset s - t, from -(L - 1) to L - 1, in this order; of t - s where `reverse`.

    clamp: "clip", farther offsets count as the farthest (Shaw et al. 2018, "Self-Attention with Relative Position
    Representations", section 3.2), or "none", longer inputs are refused.
    """

    def __init__(self, length: int, heads: int, reverse: bool = False, clamp: str = "none") -> None:
        super().__init__()
        one_of("clamp", clamp, ("none", "clip"))
        self.length, self.reverse, self.clamp = length, reverse, clamp
        self.table = nn.Parameter(torch.randn(2 * length - 1, heads))

    def forward(self, T: int, S: int) -> Tensor:
        if self.clamp == "none":
            check_lengths(T, S, self.length)
        farthest = self.length - 1
        offset_TS = offsets(T, S, self.table.device).clamp(-farthest, farthest)
        return self.table[(-offset_TS if self.reverse else offset_TS) + farthest].permute(2, 0, 1)


class TableBias(nn.Module):
    """A bias for every pair of positions: table (h,L,L), of which the first T queries and S keys are taken.

    index: (L,L), which of the n entries of a table (n,h) a pair of positions has, so that pairs share them, as those
    at one offset in a window do (Liu et al. 2021, "Swin Transformer", equation 4).
    entries: n; as many as the index names where None.
    """

    index: Tensor | None

    def __init__(self, length: int, heads: int, index: Tensor | None = None, entries: int | None = None) -> None:
        super().__init__()
        if index is not None and index.shape != (length, length):
            raise ValueError(f"index.shape={tuple(index.shape)}: expected ({length}, {length})")
        self.length = length
        self.register_buffer("index", None if index is None else index.detach().long().clone())
        if index is None:
            self.table = nn.Parameter(torch.randn(heads, length, length))
        else:
            self.table = nn.Parameter(torch.randn(int(index.max()) + 1 if entries is None else entries, heads))

    def forward(self, T: int, S: int) -> Tensor:
        check_lengths(T, S, self.length)
        if self.index is None:
            return self.table[:, :T, :S]
        return self.table[self.index[:T, :S]].permute(2, 0, 1)
