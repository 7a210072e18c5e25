import torch
from torch import nn


class TalkingHeadsAttention(nn.Module):
    """Talking-heads attention (Shazeer et al., 2020), as used in CaiT: the logits and then the
    probabilities are mixed across heads by small learned matrices."""

    def __init__(self, dim, num_heads=4, qkv_bias=True, qk_scale=None, attn_drop=0., proj_drop=0.):
        super().__init__()
        self.num_heads = num_heads
        head_dim = dim // num_heads
        self.scale = qk_scale or head_dim ** -0.5

        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)
        self.proj_l = nn.Linear(num_heads, num_heads)
        self.proj_w = nn.Linear(num_heads, num_heads, bias=False)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x, src_key_padding_mask=None):
        # src_key_padding_mask: (B, N), True marks padding
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]

        attn = q @ k.transpose(-2, -1)
        attn = self.proj_l(attn.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        if src_key_padding_mask is not None:
            # after the mixing of logits, so that no head leaks what is blocked
            attn = attn.masked_fill(src_key_padding_mask[:, None, None, :], torch.finfo(attn.dtype).min)
        attn = attn.softmax(dim=-1)
        attn = self.proj_w(attn.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        attn = self.attn_drop(attn)

        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj_drop(self.proj(x))
