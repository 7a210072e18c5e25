import math

import torch
from torch import nn
from torch.nn import functional as F


class BloomConfig:
    model_type = "bloom"

    def __init__(self, hidden_size=64, n_layer=2, n_head=8, hidden_dropout=0.0, attention_dropout=0.0, **kwargs):
        self.hidden_size = hidden_size
        self.n_layer = n_layer
        self.n_head = n_head
        self.hidden_dropout = hidden_dropout
        self.attention_dropout = attention_dropout
        self.__dict__.update(kwargs)

    @property
    def num_attention_heads(self):
        return self.n_head


def build_alibi_tensor(attention_mask: torch.Tensor, num_heads: int, dtype: torch.dtype) -> torch.Tensor:
    """
    attention_mask (batch, length) of ones and zeros -> (batch * num_heads, 1, length).
    Positions are counted over real tokens only, so left padding does not shift the bias.
    """
    batch_size, seq_length = attention_mask.shape
    closest = 2 ** math.floor(math.log2(num_heads))
    base = 2 ** (-(2 ** -(math.log2(closest) - 3)))
    slopes = torch.tensor([base**i for i in range(1, closest + 1)], device=attention_mask.device)
    if closest != num_heads:
        extra = 2 ** (-(2 ** -(math.log2(2 * closest) - 3)))
        n = num_heads - closest
        more = torch.tensor([extra**i for i in range(1, 2 * n, 2)], device=attention_mask.device)
        slopes = torch.cat([slopes, more])
    positions = ((attention_mask.cumsum(dim=-1) - 1) * attention_mask)[:, None, :]
    alibi = slopes[..., None] * positions
    return alibi.reshape(batch_size * num_heads, 1, seq_length).to(dtype)


def dropout_add(x, residual, prob, training):
    return residual + F.dropout(x, p=prob, training=training)


class BloomAttention(nn.Module):
    def __init__(self, config: BloomConfig):
        super().__init__()
        self.hidden_size = config.hidden_size
        self.num_heads = config.n_head
        self.head_dim = self.hidden_size // self.num_heads
        self.hidden_dropout = config.hidden_dropout

        self.inv_norm_factor = 1.0 / math.sqrt(self.head_dim)
        self.beta = 1.0

        self.query_key_value = nn.Linear(self.hidden_size, 3 * self.hidden_size, bias=True)
        self.dense = nn.Linear(self.hidden_size, self.hidden_size)
        self.attention_dropout = nn.Dropout(config.attention_dropout)

    def _reshape(self, fused_qkv):
        # rows of the fused weight run head, (q k v), channel
        b, t, _ = fused_qkv.shape
        fused_qkv = fused_qkv.view(b, t, self.num_heads, 3, self.head_dim)
        q = fused_qkv[..., 0, :].transpose(1, 2)
        k = fused_qkv[..., 1, :].transpose(1, 2)
        v = fused_qkv[..., 2, :].transpose(1, 2)
        return q, k, v

    def forward(
        self,
        hidden_states: torch.Tensor,
        residual: torch.Tensor,
        alibi: torch.Tensor,
        attention_mask: torch.Tensor,
        head_mask: torch.Tensor = None,
        output_attentions: bool = False,
    ):
        """attention_mask: bool (batch, 1, length, length), True = do not look."""
        batch_size, q_length, _ = hidden_states.shape
        query_layer, key_layer, value_layer = self._reshape(self.query_key_value(hidden_states))

        q = query_layer.reshape(batch_size * self.num_heads, q_length, self.head_dim)
        k = key_layer.reshape(batch_size * self.num_heads, -1, self.head_dim).transpose(1, 2)
        v = value_layer.reshape(batch_size * self.num_heads, -1, self.head_dim)

        scores = alibi.baddbmm(batch1=q, batch2=k, beta=self.beta, alpha=self.inv_norm_factor)
        scores = scores.view(batch_size, self.num_heads, q_length, -1)
        scores = scores.masked_fill(attention_mask, torch.finfo(scores.dtype).min)

        probs = F.softmax(scores, dim=-1, dtype=torch.float32).to(query_layer.dtype)
        probs = self.attention_dropout(probs)
        if head_mask is not None:
            probs = probs * head_mask

        context = torch.bmm(probs.view(batch_size * self.num_heads, q_length, -1), v)
        context = context.view(batch_size, self.num_heads, q_length, self.head_dim)
        context = context.permute(0, 2, 1, 3).reshape(batch_size, q_length, self.hidden_size)

        output = dropout_add(self.dense(context), residual, self.hidden_dropout, self.training)
        return (output, probs) if output_attentions else (output,)
