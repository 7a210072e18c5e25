"""Port of a Keras `MultiHeadAttention` layer; names and argument order follow the original."""

import math

import torch
from torch import nn


class EinsumDense(nn.Module):
    """A dense layer given by an einsum equation."""

    def __init__(self, equation, kernel_shape, bias_shape=None):
        super().__init__()
        self.equation = equation
        self.kernel = nn.Parameter(torch.empty(kernel_shape))
        self.bias = nn.Parameter(torch.zeros(bias_shape)) if bias_shape is not None else None
        fan_in = kernel_shape[0] if equation.endswith("hd") else kernel_shape[0] * kernel_shape[1]
        fan_out = self.kernel.numel() // fan_in
        limit = math.sqrt(6.0 / (fan_in + fan_out))
        nn.init.uniform_(self.kernel, -limit, limit)

    def forward(self, inputs):
        x = torch.einsum(self.equation, inputs, self.kernel)
        if self.bias is not None:
            x = x + self.bias
        return x


class MultiHeadAttention(nn.Module):
    """MultiHeadAttention layer.

    Args:
        num_heads: Number of attention heads.
        key_dim: Size of each attention head for query and key.
        input_dim: Last axis of query, value and key (Keras reads it from the first batch).
        value_dim: Size of each attention head for value, `key_dim` if not given.
        dropout: Dropout probability.
        use_bias: Whether the dense layers use biases.

    Call arguments:
        query: `(B, T, dim)`.
        value: `(B, S, dim)`.
        key: `(B, S, dim)`. If not given, `value` is used for both.
        attention_mask: boolean `(B, T, S)`; 1 indicates attention, 0 no attention.
        return_attention_scores: whether to return `(output, scores)`.
        use_causal_mask: whether tokens may only attend to earlier ones.
    """

    def __init__(self, num_heads, key_dim, input_dim, value_dim=None, dropout=0.0, use_bias=True):
        super().__init__()
        self._num_heads = num_heads
        self._key_dim = key_dim
        self._value_dim = value_dim if value_dim else key_dim
        bias = lambda *shape: shape if use_bias else None
        h, k, v = num_heads, key_dim, self._value_dim
        self._query_dense = EinsumDense("btc,chd->bthd", (input_dim, h, k), bias(h, k))
        self._key_dense = EinsumDense("btc,chd->bthd", (input_dim, h, k), bias(h, k))
        self._value_dense = EinsumDense("btc,chd->bthd", (input_dim, h, v), bias(h, v))
        self._output_dense = EinsumDense("bthd,hdc->btc", (h, v, input_dim), bias(input_dim))
        self._dropout_layer = nn.Dropout(dropout)

    def _masked_softmax(self, attention_scores, attention_mask=None):
        # scores: (B, N, T, S)
        if attention_mask is not None:
            fill = torch.finfo(attention_scores.dtype).min
            attention_scores = attention_scores.masked_fill(~attention_mask.unsqueeze(1), fill)
        return torch.softmax(attention_scores, dim=-1)

    def _compute_attention(self, query, key, value, attention_mask=None):
        query = query * (1.0 / math.sqrt(float(self._key_dim)))
        attention_scores = torch.einsum("bshd,bthd->bhts", key, query)
        attention_scores = self._masked_softmax(attention_scores, attention_mask)
        dropped = self._dropout_layer(attention_scores)
        return torch.einsum("bhts,bshd->bthd", dropped, value), attention_scores

    def forward(self, query, value, key=None, attention_mask=None,
                return_attention_scores=False, use_causal_mask=False):
        if key is None:
            key = value
        if attention_mask is not None:
            attention_mask = attention_mask.bool()
        if use_causal_mask:
            causal = torch.ones(1, query.shape[1], value.shape[1], dtype=torch.bool, device=query.device).tril()
            attention_mask = causal if attention_mask is None else attention_mask & causal

        query = self._query_dense(query)
        key = self._key_dense(key)
        value = self._value_dense(value)
        output, scores = self._compute_attention(query, key, value, attention_mask)
        output = self._output_dense(output)
        if return_attention_scores:
            return output, scores
        return output
