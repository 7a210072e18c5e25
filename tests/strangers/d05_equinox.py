import math
from typing import Optional

import torch
from torch import Tensor, nn


class MultiheadAttention(nn.Module):
    r"""Computes

    $$\text{MultiheadAttention}(Q, K, V) = \sum_i \text{Attention}(Q W^Q_i, K W^K_i, V W^V_i) W^O_i$$

    with keys and queries of `qk_size` per head and values of `vo_size` per head. Inputs carry any
    number of leading axes, none included: `(..., seq, size)`.
    """

    def __init__(
        self,
        num_heads: int,
        query_size: int,
        key_size: Optional[int] = None,
        value_size: Optional[int] = None,
        output_size: Optional[int] = None,
        qk_size: Optional[int] = None,
        vo_size: Optional[int] = None,
        use_query_bias: bool = False,
        use_key_bias: bool = False,
        use_value_bias: bool = False,
        use_output_bias: bool = False,
        dropout_p: float = 0.0,
    ):
        super().__init__()
        key_size = query_size if key_size is None else key_size
        value_size = query_size if value_size is None else value_size
        qk_size = query_size // num_heads if qk_size is None else qk_size
        vo_size = query_size // num_heads if vo_size is None else vo_size
        output_size = query_size if output_size is None else output_size

        self.num_heads = num_heads
        self.qk_size = qk_size
        self.query_proj = nn.Linear(query_size, num_heads * qk_size, bias=use_query_bias)
        self.key_proj = nn.Linear(key_size, num_heads * qk_size, bias=use_key_bias)
        self.value_proj = nn.Linear(value_size, num_heads * vo_size, bias=use_value_bias)
        self.output_proj = nn.Linear(num_heads * vo_size, output_size, bias=use_output_bias)
        self.dropout = nn.Dropout(dropout_p)

    def _project(self, proj: nn.Linear, x: Tensor) -> Tensor:
        return proj(x).unflatten(-1, (self.num_heads, -1))

    def forward(self, query: Tensor, key_: Tensor, value: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """**Arguments:**

        - `query`: `(..., q_seq, query_size)`
        - `key_`: `(..., kv_seq, key_size)`
        - `value`: `(..., kv_seq, value_size)`
        - `mask`: optional boolean, `(..., q_seq, kv_seq)` for the same mask in every head or
          `(..., num_heads, q_seq, kv_seq)`. `False` entries are not attended to.
        """
        if key_.shape[-2] != value.shape[-2]:
            raise ValueError("key and value must both be sequences of equal length.")

        query_heads = self._project(self.query_proj, query)
        key_heads = self._project(self.key_proj, key_)
        value_heads = self._project(self.value_proj, value)

        logits = torch.einsum("...shd,...Shd->...hsS", query_heads / math.sqrt(self.qk_size), key_heads)
        if mask is not None:
            if mask.dim() == logits.dim() - 1:
                mask = mask.unsqueeze(-3)
            logits = logits.masked_fill(mask.logical_not(), torch.finfo(logits.dtype).min)
        weights = self.dropout(logits.softmax(dim=-1))
        attn = torch.einsum("...hsS,...Shd->...shd", weights, value_heads)
        return self.output_proj(attn.flatten(-2))
