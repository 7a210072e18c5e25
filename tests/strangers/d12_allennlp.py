from typing import Optional

import torch
from torch.nn import Dropout, Linear


def masked_softmax(vector: torch.Tensor, mask: Optional[torch.BoolTensor], dim: int = -1) -> torch.Tensor:
    """
    Softmax over the entries that `mask` keeps. `mask` must broadcast against `vector`; rows
    that are masked entirely come out as zeros.
    """
    if mask is None:
        return torch.nn.functional.softmax(vector, dim=dim)
    lowest = torch.finfo(vector.dtype).min
    result = torch.nn.functional.softmax(vector.masked_fill(~mask, lowest), dim=dim)
    return result * mask


def weighted_sum(matrix: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
    return attention.bmm(matrix)


class MultiHeadSelfAttention(torch.nn.Module):
    """
    Multi-head scaled dot product self attention as a sequence-to-sequence encoder.

    # Parameters

    num_heads : `int`, required.
        The number of attention heads to use.
    input_dim : `int`, required.
        The size of the last dimension of the input tensor.
    attention_dim : `int`, required.
        The total dimension of the query and key projections, over all heads.
    values_dim : `int`, required.
        The total dimension which the input is projected to for the values, over all heads.
    output_projection_dim : `int`, optional (default = `None`)
        The dimensionality of the final output projection. If this is not passed
        explicitly, the projection has size `input_dim`.
    attention_dropout_prob : `float`, optional (default = `0.1`).
    """

    def __init__(
        self,
        num_heads: int,
        input_dim: int,
        attention_dim: int,
        values_dim: int,
        output_projection_dim: int = None,
        attention_dropout_prob: float = 0.1,
    ) -> None:
        super().__init__()
        if attention_dim % num_heads != 0 or values_dim % num_heads != 0:
            raise ValueError("attention_dim and values_dim must be divisible by num_heads")

        self._num_heads = num_heads
        self._input_dim = input_dim
        self._output_dim = output_projection_dim or input_dim
        self._attention_dim = attention_dim
        self._values_dim = values_dim

        self._combined_projection = Linear(input_dim, 2 * attention_dim + values_dim)
        self._scale = (attention_dim // num_heads) ** 0.5
        self._output_projection = Linear(values_dim, self._output_dim)
        self._attention_dropout = Dropout(attention_dropout_prob)

    def get_input_dim(self):
        return self._input_dim

    def get_output_dim(self):
        return self._output_dim

    def is_bidirectional(self):
        return False

    def _split_heads(self, tensor: torch.Tensor) -> torch.Tensor:
        # Shape (batch, length, dim) -> (batch * heads, length, dim / heads)
        batch, length, dim = tensor.size()
        tensor = tensor.view(batch, length, self._num_heads, dim // self._num_heads)
        return tensor.transpose(1, 2).reshape(batch * self._num_heads, length, -1)

    def forward(self, inputs: torch.Tensor, mask: torch.BoolTensor = None) -> torch.FloatTensor:
        """
        # Parameters

        inputs : `torch.FloatTensor`, required. (batch_size, timesteps, input_dim)
        mask : `torch.BoolTensor`, optional. (batch_size, timesteps), True for real tokens.

        # Returns

        (batch_size, timesteps, output_projection_dim)
        """
        batch_size, timesteps, _ = inputs.size()
        combined = self._combined_projection(inputs)
        queries, keys, values = combined.split([self._attention_dim, self._attention_dim, self._values_dim], dim=-1)
        queries_per_head = self._split_heads(queries)
        keys_per_head = self._split_heads(keys)
        values_per_head = self._split_heads(values)

        # shape (batch * heads, timesteps, timesteps)
        scores = torch.bmm(queries_per_head / self._scale, keys_per_head.transpose(1, 2))
        if mask is not None:
            mask = mask.bool().unsqueeze(1).repeat_interleave(self._num_heads, dim=0)
        attention = masked_softmax(scores, mask)
        attention = self._attention_dropout(attention)

        outputs = weighted_sum(values_per_head, attention)
        outputs = outputs.view(batch_size, self._num_heads, timesteps, -1)
        outputs = outputs.transpose(1, 2).reshape(batch_size, timesteps, self._values_dim)
        return self._output_projection(outputs)
