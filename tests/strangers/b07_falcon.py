import math

import torch
import torch.nn as nn


class RWConfig:
    model_type = "falcon"

    def __init__(
        self,
        vocab_size=65024,
        hidden_size=568,
        n_head=71,
        n_layer=32,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias=False,
        multi_query=True,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        # older checkpoints say n_embed
        self.hidden_size = kwargs.pop("n_embed", None) or hidden_size
        self.n_head = n_head
        self.n_layer = n_layer
        self.hidden_dropout = hidden_dropout
        self.attention_dropout = attention_dropout
        self.bias = bias
        self.multi_query = multi_query

    @property
    def head_dim(self):
        return self.hidden_size // self.n_head


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


class RotaryEmbedding(nn.Module):
    """Tables grow when a longer sequence than any before comes in."""

    def __init__(self, head_dim, base=10000):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.seq_len_cached = 0
        self.cos_cached = None
        self.sin_cached = None

    def cos_sin(self, seq_len, device, dtype):
        if seq_len > self.seq_len_cached or self.cos_cached.device != device:
            self.seq_len_cached = seq_len
            t = torch.arange(seq_len, device=device, dtype=torch.float32)
            freqs = torch.outer(t, self.inv_freq.float().to(device))
            emb = torch.cat((freqs, freqs), dim=-1)
            self.cos_cached = emb.cos()[None, None]
            self.sin_cached = emb.sin()[None, None]
        return self.cos_cached[:, :, :seq_len].to(dtype), self.sin_cached[:, :, :seq_len].to(dtype)

    def forward(self, q, k):
        cos, sin = self.cos_sin(q.shape[-2], q.device, q.dtype)
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class Attention(nn.Module):
    def __init__(self, config: RWConfig):
        super().__init__()
        self.hidden_size = config.hidden_size
        self.num_heads = config.n_head
        self.head_dim = config.head_dim
        if self.head_dim * self.num_heads != self.hidden_size:
            raise ValueError(f"hidden_size {self.hidden_size} not divisible by n_head {self.num_heads}")
        self.num_kv = 1 if config.multi_query else self.num_heads

        self.maybe_rotary = RotaryEmbedding(self.head_dim)
        self.inv_norm_factor = 1.0 / math.sqrt(self.head_dim)
        self.query_key_value = nn.Linear(
            self.hidden_size, (self.num_heads + 2 * self.num_kv) * self.head_dim, bias=config.bias
        )
        self.dense = nn.Linear(self.hidden_size, self.hidden_size, bias=config.bias)
        self.attention_dropout = nn.Dropout(config.attention_dropout)

    def _split_heads(self, fused_qkv):
        batch, length, _ = fused_qkv.shape
        fused_qkv = fused_qkv.view(batch, length, self.num_heads + 2 * self.num_kv, self.head_dim)
        return fused_qkv.split([self.num_heads, self.num_kv, self.num_kv], dim=2)

    def forward(self, hidden_states, attention_mask=None, output_attentions=False):
        """attention_mask: bool (batch, 1, len, len), True where looking is forbidden."""
        batch, length, _ = hidden_states.shape
        query, key, value = self._split_heads(self.query_key_value(hidden_states))
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        query, key = self.maybe_rotary(query, key)

        # the single key head broadcasts over all the query heads
        attention_scores = (query @ key.transpose(-1, -2)) * self.inv_norm_factor
        if attention_mask is not None:
            attention_scores = attention_scores.masked_fill(
                attention_mask, torch.finfo(attention_scores.dtype).min
            )
        attention_probs = torch.softmax(attention_scores.float(), dim=-1).to(query.dtype)
        attention_probs = self.attention_dropout(attention_probs)

        context = attention_probs @ value
        context = context.permute(0, 2, 1, 3).reshape(batch, length, self.hidden_size)
        outputs = (self.dense(context),)
        if output_attentions:
            outputs += (attention_probs,)
        return outputs
