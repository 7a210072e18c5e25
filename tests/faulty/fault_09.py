"""PyTorch port of keras.layers.MultiHeadAttention (einsum version)."""
import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    """
    Args:
        num_heads: number of attention heads
        key_dim: size of each head for query and key
        value_dim: size of each head for value (key_dim if None)
        query_dim / value_in_dim: widths of the inputs, which Keras finds out in build()
        dropout: dropout probability of the attention scores
        seed: seed of the dropout, as in Keras 3

    call arguments as in Keras: query (B, T, dim), value (B, S, dim), key (B, S, dim) optional,
    attention_mask (B, T, S) bool, True = attend.
    """

    def __init__(self, num_heads, key_dim, query_dim, value_in_dim=None, value_dim=None, dropout=0.0,
                 use_bias=True, seed=None):
        super().__init__()
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim or key_dim
        self.rate = dropout
        self.use_bias = use_bias
        value_in_dim = value_in_dim or query_dim
        self.query_kernel = self._weight(query_dim, num_heads, key_dim, fan=(query_dim, num_heads * key_dim))
        self.key_kernel = self._weight(value_in_dim, num_heads, key_dim, fan=(value_in_dim, num_heads * key_dim))
        self.value_kernel = self._weight(value_in_dim, num_heads, self.value_dim,
                                         fan=(value_in_dim, num_heads * self.value_dim))
        self.output_kernel = self._weight(num_heads, self.value_dim, query_dim,
                                          fan=(num_heads * self.value_dim, query_dim))
        if use_bias:
            self.query_bias = nn.Parameter(torch.zeros(num_heads, key_dim))
            self.key_bias = nn.Parameter(torch.zeros(num_heads, key_dim))
            self.value_bias = nn.Parameter(torch.zeros(num_heads, self.value_dim))
            self.output_bias = nn.Parameter(torch.zeros(query_dim))
        self.generator = None
        if seed is not None:
            self.generator = torch.Generator().manual_seed(seed)

    @staticmethod
    def _weight(*shape, fan):
        limit = math.sqrt(6.0 / sum(fan))
        return nn.Parameter(torch.empty(*shape).uniform_(-limit, limit))

    def _dropout(self, scores):
        if not self.training or self.rate == 0.0:
            return scores
        keep = torch.rand(scores.shape, generator=self.generator, device=scores.device) >= self.rate
        return scores * keep

    def forward(self, query, value, key=None, attention_mask=None, return_attention_scores=False):
        key = value if key is None else key
        q = torch.einsum("btd,dnh->btnh", query, self.query_kernel)
        k = torch.einsum("bsd,dnh->bsnh", key, self.key_kernel)
        v = torch.einsum("bsd,dnh->bsnh", value, self.value_kernel)
        if self.use_bias:
            q, k, v = q + self.query_bias, k + self.key_bias, v + self.value_bias

        q = q * (1.0 / math.sqrt(float(self.key_dim)))
        scores = torch.einsum("btnh,bsnh->bnts", q, k)
        if attention_mask is not None:
            # masked softmax
            adder = (1.0 - attention_mask.to(scores.dtype)) * torch.finfo(scores.dtype).min / 2
            scores = scores + adder.unsqueeze(1)
        scores = torch.softmax(scores, dim=-1)
        final_scores = self._dropout(scores)
        output = torch.einsum("bnts,bsnh->btnh", final_scores, v)
        output = torch.einsum("btnh,nhd->btd", output, self.output_kernel)
        if self.use_bias:
            output = output + self.output_bias
        if return_attention_scores:
            return output, scores
        return output
