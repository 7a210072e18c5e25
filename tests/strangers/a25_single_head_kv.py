from typing import NamedTuple, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


class AttentionOutput(NamedTuple):
    context: torch.Tensor  # (batch, query length, dim_v)
    weights: torch.Tensor  # (batch, query length, key length)


class ScaledDotAttention(nn.Module):
    r"""One head, as in the first section of the post.

    .. math:: \mathrm{softmax}(Q K^T / \sqrt{d_k}) V

    ``dim_k`` is the width in which queries and keys are compared and
    ``dim_v`` the width of what comes out; they need not agree.

    Args:
        dim_in: width of the tokens
        dim_k: width of queries and keys
        dim_v: width of values
        dropout: on the attention weights
    """

    def __init__(self, dim_in: int, dim_k: int, dim_v: int, dropout: float = 0.0):
        super().__init__()
        self.dim_k = dim_k
        self.to_q = nn.Linear(dim_in, dim_k)
        self.to_k = nn.Linear(dim_in, dim_k)
        self.to_v = nn.Linear(dim_in, dim_v)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: torch.Tensor,
        memory: Optional[torch.Tensor] = None,
        key_mask: Optional[torch.Tensor] = None,
    ) -> AttentionOutput:
        """
        x: (batch, T, dim_in)
        memory: (batch, S, dim_in), x itself if not given
        key_mask: (batch, S), True for real tokens and False for padding
        """
        if memory is None:
            memory = x
        q = self.to_q(x)
        k = self.to_k(memory)
        v = self.to_v(memory)

        scores = torch.bmm(q, k.transpose(1, 2)) / self.dim_k ** (1 / 2)
        if key_mask is not None:
            scores = scores.masked_fill(~key_mask.bool().unsqueeze(1), torch.finfo(scores.dtype).min)
        weights = F.softmax(scores, dim=-1)
        context = torch.bmm(self.dropout(weights), v)
        return AttentionOutput(context, weights)


def lengths_to_mask(lengths: torch.Tensor, max_len: Optional[int] = None) -> torch.Tensor:
    """(batch,) -> (batch, max_len), True on the first ``lengths[i]`` places."""
    max_len = max_len or int(lengths.max())
    return torch.arange(max_len, device=lengths.device)[None, :] < lengths[:, None]
