import torch
import torch.nn as nn


def zero_module(module):
    """Zero out the parameters of a module and return it."""
    for p in module.parameters():
        p.detach().zero_()
    return module


class QKVAttention(nn.Module):
    def __init__(self, channels, num_heads, qkv_bias=True, attn_drop=0.0, proj_drop=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(channels, channels * 3, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj_out = zero_module(nn.Linear(channels, channels))
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x, attn_mask=None):
        """attn_mask: bool (B, T, T) or (T, T), True where a query (rows) may see a key (columns)."""
        B, T, C = x.shape
        q, k, v = self.qkv(x).reshape(B, T, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        # scaling both sides is more stable in half precision than dividing afterwards
        scale = (C // self.num_heads) ** -0.25
        attn = (q * scale) @ (k * scale).transpose(-2, -1)
        if attn_mask is not None:
            if attn_mask.dim() == 3:
                attn_mask = attn_mask.unsqueeze(1)
            attn = attn.masked_fill(attn_mask.logical_not(), torch.finfo(attn.dtype).min)
        attn = self.attn_drop(attn.softmax(dim=-1))
        x = (attn @ v).transpose(1, 2).reshape(B, T, C)
        return self.proj_drop(self.proj_out(x))


class AttentionBlock(nn.Module):
    """
    Pre-norm self-attention with a residual connection. The block is the identity when
    training starts. Keyword arguments of the call, such as attn_mask, go to the attention.
    """

    def __init__(self, channels, num_heads=4, norm_layer=nn.LayerNorm, **attn_kwargs):
        super().__init__()
        self.norm = norm_layer(channels)
        self.attention = QKVAttention(channels, num_heads, **attn_kwargs)

    def forward(self, x, **kwargs):
        h = self.norm(x)
        return x + self.attention(h, **kwargs)
