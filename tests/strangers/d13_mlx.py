import math
from typing import Optional

import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    """Scaled dot product attention with multiple heads, after the layer in MLX.

    Args:
        dims (int): The model dimensions, also the default of all the others.
        num_heads (int): The number of heads.
        query_input_dims (int, optional): The input dimensions of the queries.
        key_input_dims (int, optional): The input dimensions of the keys.
        value_input_dims (int, optional): The input dimensions of the values. Default: key_input_dims.
        value_dims (int, optional): The dimensions of the values after the projection.
        value_output_dims (int, optional): The dimensions the new values will be projected to.
        bias (bool, optional): Whether or not to use a bias in the projections. Default: ``False``.
    """

    def __init__(
        self,
        dims: int,
        num_heads: int,
        query_input_dims: Optional[int] = None,
        key_input_dims: Optional[int] = None,
        value_input_dims: Optional[int] = None,
        value_dims: Optional[int] = None,
        value_output_dims: Optional[int] = None,
        bias: bool = False,
    ):
        super().__init__()
        if (dims % num_heads) != 0:
            raise ValueError(f"The input feature dimensions should be divisible by the number of heads ({dims} % {num_heads}) != 0")

        query_input_dims = query_input_dims or dims
        key_input_dims = key_input_dims or dims
        value_input_dims = value_input_dims or key_input_dims
        value_dims = value_dims or dims
        value_output_dims = value_output_dims or dims

        self.num_heads = num_heads
        self.query_proj = nn.Linear(query_input_dims, dims, bias=bias)
        self.key_proj = nn.Linear(key_input_dims, dims, bias=bias)
        self.value_proj = nn.Linear(value_input_dims, value_dims, bias=bias)
        self.out_proj = nn.Linear(value_dims, value_output_dims, bias=bias)

    def forward(self, queries, keys, values, mask=None):
        queries = self.query_proj(queries)
        keys = self.key_proj(keys)
        values = self.value_proj(values)

        num_heads = self.num_heads
        B, L, D = queries.shape
        _, S, _ = keys.shape
        queries = queries.reshape(B, L, num_heads, -1).permute(0, 2, 1, 3)
        keys = keys.reshape(B, S, num_heads, -1).permute(0, 2, 3, 1)
        values = values.reshape(B, S, num_heads, -1).permute(0, 2, 1, 3)

        # Dimensions are [batch x num heads x sequence x hidden dim]
        scale = math.sqrt(1 / queries.shape[-1])
        scores = (queries * scale) @ keys
        if mask is not None:
            scores = scores + mask.to(scores.dtype)
        scores = torch.softmax(scores, dim=-1)
        values_hat = (scores @ values).permute(0, 2, 1, 3).reshape(B, L, -1)

        return self.out_proj(values_hat)

    @staticmethod
    def create_additive_causal_mask(N: int, dtype: torch.dtype = torch.float32):
        indices = torch.arange(N)
        mask = indices[:, None] < indices[None]
        # usually inf but 1e9 is as good and softmax(full(1e9)) != nan
        mask = mask.to(dtype) * (-1e9 if dtype != torch.float16 else -6e4)
        return mask
