import math

import torch
from torch import nn


class T5Attention(nn.Module):
    """T5 attention: no scaling of the scores (absorbed by the initialisation), bucketed relative bias."""

    def __init__(self, d_model=32, d_kv=6, num_heads=4, dropout_rate=0.1, is_decoder=False,
                 has_relative_attention_bias=True, relative_attention_num_buckets=8,
                 relative_attention_max_distance=20):
        super().__init__()
        self.is_decoder = is_decoder
        self.has_relative_attention_bias = has_relative_attention_bias
        self.num_buckets = relative_attention_num_buckets
        self.max_distance = relative_attention_max_distance
        self.d_model = d_model
        self.key_value_proj_dim = d_kv
        self.n_heads = num_heads
        self.dropout = dropout_rate
        self.inner_dim = self.n_heads * self.key_value_proj_dim

        self.q = nn.Linear(d_model, self.inner_dim, bias=False)
        self.k = nn.Linear(d_model, self.inner_dim, bias=False)
        self.v = nn.Linear(d_model, self.inner_dim, bias=False)
        self.o = nn.Linear(self.inner_dim, d_model, bias=False)
        if has_relative_attention_bias:
            self.relative_attention_bias = nn.Embedding(self.num_buckets, self.n_heads)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.q.weight, std=(self.d_model * self.key_value_proj_dim) ** -0.5)
        nn.init.normal_(self.k.weight, std=self.d_model ** -0.5)
        nn.init.normal_(self.v.weight, std=self.d_model ** -0.5)
        nn.init.normal_(self.o.weight, std=self.inner_dim ** -0.5)

    @staticmethod
    def _relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
        buckets = 0
        if bidirectional:
            num_buckets //= 2
            buckets = (relative_position > 0).long() * num_buckets
            relative_position = relative_position.abs()
        else:
            relative_position = -torch.clamp(relative_position, max=0)
        max_exact = num_buckets // 2
        is_small = relative_position < max_exact
        large = max_exact + (
            torch.log(relative_position.float().clamp(min=1) / max_exact)
            / math.log(max_distance / max_exact) * (num_buckets - max_exact)
        ).long()
        large = torch.clamp(large, max=num_buckets - 1)
        return buckets + torch.where(is_small, relative_position, large)

    def compute_bias(self, query_length, key_length, device=None):
        context_position = torch.arange(query_length, device=device)[:, None]
        memory_position = torch.arange(key_length, device=device)[None, :]
        bucket = self._relative_position_bucket(
            memory_position - context_position,
            bidirectional=not self.is_decoder,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
        )
        return self.relative_attention_bias(bucket).permute(2, 0, 1).unsqueeze(0)

    def forward(self, hidden_states, mask=None, key_value_states=None, position_bias=None):
        """mask: additive float, broadcastable to (batch, n_heads, q_len, k_len)."""
        bsz, q_len = hidden_states.shape[:2]
        kv = hidden_states if key_value_states is None else key_value_states

        def shape(states):
            return states.view(bsz, -1, self.n_heads, self.key_value_proj_dim).transpose(1, 2)

        q, k, v = shape(self.q(hidden_states)), shape(self.k(kv)), shape(self.v(kv))
        scores = torch.matmul(q, k.transpose(3, 2))

        if position_bias is None:
            if self.has_relative_attention_bias:
                position_bias = self.compute_bias(q_len, k.shape[2], scores.device)
            else:
                position_bias = torch.zeros((1, self.n_heads, q_len, k.shape[2]),
                                            device=scores.device, dtype=scores.dtype)
            if mask is not None:
                position_bias = position_bias + mask
        scores = scores + position_bias
        weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        weights = nn.functional.dropout(weights, p=self.dropout, training=self.training)
        out = torch.matmul(weights, v).transpose(1, 2).contiguous().view(bsz, q_len, self.inner_dim)
        return self.o(out), position_bias
