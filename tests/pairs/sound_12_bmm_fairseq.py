import torch
import torch.nn.functional as F
from torch import nn


class MultiheadAttention(nn.Module):
    """Multi-headed attention. Heads are folded into the batch axis and computed with bmm.

    Input is Batch x Time x Channel.
    key_padding_mask: (bsz, src_len) bool, True marks padding.
    attn_mask: (tgt_len, src_len) float, added to the logits.
    """

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == self.embed_dim, "embed_dim must be divisible by num_heads"
        self.scaling = self.head_dim ** -0.5
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def _fold(self, x):
        bsz, length, _ = x.size()
        return (
            x.view(bsz, length, self.num_heads, self.head_dim)
            .transpose(1, 2)
            .reshape(bsz * self.num_heads, length, self.head_dim)
        )

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        bsz, tgt_len, embed_dim = query.size()
        src_len = key.size(1)

        q = self._fold(self.q_proj(query) * self.scaling)
        k = self._fold(self.k_proj(key))
        v = self._fold(self.v_proj(value))

        attn_weights = torch.bmm(q, k.transpose(1, 2))
        assert list(attn_weights.size()) == [bsz * self.num_heads, tgt_len, src_len]

        if attn_mask is not None:
            attn_weights = attn_weights + attn_mask.unsqueeze(0)

        if key_padding_mask is not None:
            padding = key_padding_mask.repeat_interleave(self.num_heads, dim=0).unsqueeze(1)
            attn_weights = attn_weights.masked_fill(padding, torch.finfo(attn_weights.dtype).min)

        attn_probs = F.softmax(attn_weights, dim=-1)
        attn_probs = F.dropout(attn_probs, p=self.dropout, training=self.training)

        attn = torch.bmm(attn_probs, v)
        attn = (
            attn.view(bsz, self.num_heads, tgt_len, self.head_dim)
            .transpose(1, 2)
            .reshape(bsz, tgt_len, embed_dim)
        )
        return self.out_proj(attn)
