# Divided space-time ViT trained by self-distillation: the attention layer and the two axial wrappers.
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, num_heads=6, qkv_bias=False, qk_scale=None, attn_drop=0., proj_drop=0., with_qkv=True):
        super().__init__()
        self.num_heads = num_heads
        head_dim = dim // num_heads
        self.scale = qk_scale or head_dim ** -0.5
        self.with_qkv = with_qkv
        if self.with_qkv:
            self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
            self.proj = nn.Linear(dim, dim)
            self.proj_drop = nn.Dropout(proj_drop)
        self.attn_drop = nn.Dropout(attn_drop)

    def forward(self, x):
        B, N, C = x.shape
        if self.with_qkv:
            qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
        else:
            qkv = x.reshape(B, N, self.num_heads, C // self.num_heads).permute(0, 2, 1, 3)
            q, k, v = qkv, qkv, qkv

        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)

        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        if self.with_qkv:
            x = self.proj(x)
            x = self.proj_drop(x)
        return x, attn


class DividedAttention(nn.Module):
    """First over the frames of each patch, then over the patches of each frame. No class token here."""

    def __init__(self, dim, num_heads=6, qkv_bias=False, attn_drop=0., proj_drop=0.):
        super().__init__()
        self.norm_t = nn.LayerNorm(dim)
        self.temporal = Attention(dim, num_heads, qkv_bias, None, attn_drop, proj_drop)
        self.temporal_fc = nn.Linear(dim, dim)
        nn.init.zeros_(self.temporal_fc.weight)
        nn.init.zeros_(self.temporal_fc.bias)
        self.norm_s = nn.LayerNorm(dim)
        self.spatial = Attention(dim, num_heads, qkv_bias, None, attn_drop, proj_drop)

    def forward(self, x, T, return_attention=False):
        B, NT, C = x.shape
        P = NT // T
        # tokens come patch-major: (b, p t, c)
        xt = x.reshape(B * P, T, C)
        res, _ = self.temporal(self.norm_t(xt))
        x = x + self.temporal_fc(res).reshape(B, NT, C)

        xs = x.reshape(B, P, T, C).transpose(1, 2).reshape(B * T, P, C)
        res, attn = self.spatial(self.norm_s(xs))
        if return_attention:
            return attn
        return x + res.reshape(B, T, P, C).transpose(1, 2).reshape(B, NT, C)
