"""Port of our tf.keras attention layer to PyTorch.

The call signature is kept as it was in the Keras code so that the model files did not
have to be touched: note that ``value`` comes before ``key``.
"""
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    """MultiHeadAttention layer.

    Args:
      num_heads: Number of attention heads.
      key_dim: Size of each attention head for query and key.
      input_dim: Size of the last axis of the inputs.
      value_dim: Size of each attention head for value (default: key_dim).
      dropout: Dropout probability on the attention scores.
      use_bias: Whether the dense layers use bias vectors.
      output_dim: Size of the last axis of the output (default: input_dim).

    Call arguments:
      query: `(B, T, dim)`.
      value: `(B, S, dim)`.
      key: `(B, S, dim)`. If not given, `value` is used for both.
      attention_mask: boolean `(B, T, S)`; 1 indicates attention, 0 no attention. Broadcasting
        over missing batch dimensions and the head dimension is done here.
      return_attention_scores: return `(output, scores)` with scores `(B, N, T, S)`.
      use_causal_mask: apply a causal mask so that a position sees only those before it
        and itself.
    """

    def __init__(self, num_heads, key_dim, input_dim, value_dim=None, dropout=0.0,
                 use_bias=True, output_dim=None):
        super().__init__()
        self._num_heads = num_heads
        self._key_dim = key_dim
        self._value_dim = value_dim or key_dim
        self._query_dense = nn.Linear(input_dim, num_heads * key_dim, bias=use_bias)
        self._key_dense = nn.Linear(input_dim, num_heads * key_dim, bias=use_bias)
        self._value_dense = nn.Linear(input_dim, num_heads * self._value_dim, bias=use_bias)
        self._output_dense = nn.Linear(num_heads * self._value_dim, output_dim or input_dim, bias=use_bias)
        self._dropout_layer = nn.Dropout(dropout)
        for layer in (self._query_dense, self._key_dense, self._value_dense, self._output_dense):
            nn.init.xavier_uniform_(layer.weight)
            if use_bias:
                nn.init.zeros_(layer.bias)

    def _compute_causal_mask(self, query, value):
        """Lower triangle of shape `(1, T, S)`."""
        ones = torch.ones(1, query.shape[1], value.shape[1], dtype=torch.bool, device=query.device)
        return ones.tril()

    def _compute_attention_mask(self, query, value, attention_mask, use_causal_mask):
        if attention_mask is not None:
            attention_mask = attention_mask.bool()
        if use_causal_mask:
            causal = self._compute_causal_mask(query, value)
            attention_mask = causal if attention_mask is None else attention_mask & causal
        return attention_mask

    def _masked_softmax(self, scores, attention_mask):
        if attention_mask is not None:
            if attention_mask.dim() < scores.dim():
                attention_mask = attention_mask.unsqueeze(-3)
            scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min / 2)
        return torch.softmax(scores, dim=-1)

    def _compute_attention(self, query, key, value, attention_mask=None):
        query = query * (self._key_dim ** -0.5)
        scores = torch.einsum("BTNH,BSNH->BNTS", query, key)
        scores = self._masked_softmax(scores, attention_mask)
        output = torch.einsum("BNTS,BSNH->BTNH", self._dropout_layer(scores), value)
        return output, scores

    def forward(self, query, value, key=None, attention_mask=None,
                return_attention_scores=False, use_causal_mask=False):
        if key is None:
            key = value
        attention_mask = self._compute_attention_mask(query, value, attention_mask, use_causal_mask)
        q = self._query_dense(query).unflatten(-1, (self._num_heads, self._key_dim))
        k = self._key_dense(key).unflatten(-1, (self._num_heads, self._key_dim))
        v = self._value_dense(value).unflatten(-1, (self._num_heads, self._value_dim))
        output, scores = self._compute_attention(q, k, v, attention_mask)
        output = self._output_dense(output.flatten(-2))
        if return_attention_scores:
            return output, scores
        return output
