import math

import torch
from torch import nn


class T5Config:
    def __init__(self, d_model=512, d_kv=64, num_heads=8, relative_attention_num_buckets=32,
                 relative_attention_max_distance=128, dropout_rate=0.1, is_decoder=False,
                 initializer_factor=1.0, **kwargs):
        self.d_model = d_model
        self.d_kv = d_kv
        self.num_heads = num_heads
        self.relative_attention_num_buckets = relative_attention_num_buckets
        self.relative_attention_max_distance = relative_attention_max_distance
        self.dropout_rate = dropout_rate
        self.is_decoder = is_decoder
        self.initializer_factor = initializer_factor


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    """Exact buckets near by, logarithmic ones further off, everything from max_distance on in the last."""
    buckets = torch.zeros_like(relative_position)
    if bidirectional:
        num_buckets //= 2
        buckets = buckets + (relative_position > 0).long() * num_buckets
        relative_position = relative_position.abs()
    else:
        relative_position = (-relative_position).clamp(min=0)

    max_exact = num_buckets // 2
    ratio = torch.log(relative_position.clamp(min=1).float() / max_exact) / math.log(max_distance / max_exact)
    far = (max_exact + (ratio * (num_buckets - max_exact)).long()).clamp(max=num_buckets - 1)
    return buckets + torch.where(relative_position < max_exact, relative_position, far)


class T5Attention(nn.Module):
    def __init__(self, config: T5Config, has_relative_attention_bias=True):
        super().__init__()
        self.is_decoder = config.is_decoder
        self.has_relative_attention_bias = has_relative_attention_bias
        self.num_buckets = config.relative_attention_num_buckets
        self.max_distance = config.relative_attention_max_distance
        self.n_heads = config.num_heads
        self.key_value_proj_dim = config.d_kv
        self.dropout = config.dropout_rate
        self.inner_dim = self.n_heads * self.key_value_proj_dim

        self.q = nn.Linear(config.d_model, self.inner_dim, bias=False)
        self.k = nn.Linear(config.d_model, self.inner_dim, bias=False)
        self.v = nn.Linear(config.d_model, self.inner_dim, bias=False)
        self.o = nn.Linear(self.inner_dim, config.d_model, bias=False)
        if has_relative_attention_bias:
            self.relative_attention_bias = nn.Embedding(self.num_buckets, self.n_heads)

        # there is no 1/sqrt(d) in forward, the init carries it
        f = config.initializer_factor
        nn.init.normal_(self.q.weight, std=f * (config.d_model * config.d_kv) ** -0.5)
        nn.init.normal_(self.k.weight, std=f * config.d_model**-0.5)
        nn.init.normal_(self.v.weight, std=f * config.d_model**-0.5)
        nn.init.normal_(self.o.weight, std=f * self.inner_dim**-0.5)

    def compute_bias(self, query_length, key_length, device=None):
        context = torch.arange(query_length, dtype=torch.long, device=device)[:, None]
        memory = torch.arange(key_length, dtype=torch.long, device=device)[None, :]
        bucket = relative_position_bucket(
            memory - context, not self.is_decoder, self.num_buckets, self.max_distance
        )
        return self.relative_attention_bias(bucket).permute(2, 0, 1).unsqueeze(0)

    def forward(self, hidden_states, mask=None, key_value_states=None, position_bias=None,
                layer_head_mask=None, output_attentions=False):
        # mask is additive, (batch, 1, 1, keys) or (batch, 1, queries, keys)
        batch_size, seq_length = hidden_states.shape[:2]
        source = hidden_states if key_value_states is None else key_value_states
        key_length = source.shape[1]

        def shape(states):
            return states.view(batch_size, -1, self.n_heads, self.key_value_proj_dim).transpose(1, 2)

        query_states = shape(self.q(hidden_states))
        key_states = shape(self.k(source))
        value_states = shape(self.v(source))

        scores = torch.matmul(query_states, key_states.transpose(3, 2))

        if position_bias is None:
            if self.has_relative_attention_bias:
                position_bias = self.compute_bias(seq_length, key_length, scores.device)
            else:
                position_bias = scores.new_zeros(1, self.n_heads, seq_length, key_length)
            if mask is not None:
                position_bias = position_bias + mask

        scores = scores + position_bias
        attn_weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        attn_weights = nn.functional.dropout(attn_weights, p=self.dropout, training=self.training)
        if layer_head_mask is not None:
            attn_weights = attn_weights * layer_head_mask

        attn_output = torch.matmul(attn_weights, value_states)
        attn_output = attn_output.transpose(1, 2).reshape(batch_size, seq_length, self.inner_dim)
        outputs = (self.o(attn_output), position_bias)  # the bias is handed on to the next layers
        if output_attentions:
            outputs = outputs + (attn_weights,)
        return outputs
