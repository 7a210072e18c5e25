import torch
from torch import nn
import torch.nn.functional as F


class EncoderSelfAttention(nn.Module):
    """Self attention of the encoder; uses the fused kernel unless the attention maps are wanted.

    src: (batch, seq, embed_dim)
    src_mask: (seq, seq) bool, True = blocked
    src_key_padding_mask: (batch, seq) bool, True = padding
    """

    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, need_weights=False):
        bsz, seq, dim = src.shape
        q, k, v = self.in_proj(src).chunk(3, dim=-1)
        q = q.reshape(bsz, seq, self.num_heads, self.head_dim).transpose(1, 2)
        k = k.reshape(bsz, seq, self.num_heads, self.head_dim).transpose(1, 2)
        v = v.reshape(bsz, seq, self.num_heads, self.head_dim).transpose(1, 2)
        p = self.dropout if self.training else 0.0

        bias = None
        if src_mask is not None:
            bias = torch.zeros(seq, seq, dtype=q.dtype, device=q.device)
            bias = bias.masked_fill(src_mask, torch.finfo(q.dtype).min)[None, None]

        if need_weights:
            logits = q @ k.transpose(-2, -1) / self.head_dim ** 0.5
            if bias is not None:
                logits = logits + bias
            weights = logits.softmax(-1)
            out = F.dropout(weights, p) @ v
        else:
            weights = None
            if src_key_padding_mask is not None:
                if bias is None:
                    bias = torch.zeros(1, 1, seq, seq, dtype=q.dtype, device=q.device)
                bias = bias.masked_fill(src_key_padding_mask[:, None, None, :], torch.finfo(q.dtype).min)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p)

        out = self.out_proj(out.transpose(1, 2).reshape(bsz, seq, dim))
        return out, weights
