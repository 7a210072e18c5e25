import torch
from torch import nn
from torch.nn import functional as F
from typing import Optional


class LayerNorm(nn.LayerNorm):
    """LayerNorm that gives back the dtype it was handed (for mixed precision)."""

    def forward(self, x: torch.Tensor):
        orig_type = x.dtype
        ret = super().forward(x.type(self.weight.dtype))
        return ret.type(orig_type)


class QuickGELU(nn.Module):
    def forward(self, x: torch.Tensor):
        return x * torch.sigmoid(1.702 * x)


class TextAttention(nn.Module):
    """Attention of the text tower. Tokens are LND, the causal mask is built once for the whole context."""

    def __init__(self, width: int, heads: int, context_length: int = 77, attn_drop: float = 0.):
        super().__init__()
        assert width % heads == 0
        self.width = width
        self.heads = heads
        self.head_dim = width // heads
        self.scale = self.head_dim ** -0.5
        self.context_length = context_length

        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.attn_drop = nn.Dropout(attn_drop)
        self.out_proj = nn.Linear(width, width)

        self.register_buffer("attn_mask", self.build_attention_mask(), persistent=False)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.in_proj_weight, std=self.width ** -0.5)
        nn.init.normal_(self.out_proj.weight, std=self.width ** -0.5)
        nn.init.zeros_(self.out_proj.bias)

    def build_attention_mask(self):
        # additive mask, -inf above the diagonal
        mask = torch.empty(self.context_length, self.context_length)
        mask.fill_(float("-inf"))
        mask.triu_(1)
        return mask

    def forward(self, x: torch.Tensor, attn_mask: Optional[torch.Tensor] = None):
        # attn_mask: (L, L) additive, on top of the causal one
        L, N, C = x.shape
        q, k, v = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        q = q.reshape(L, N * self.heads, self.head_dim).transpose(0, 1)
        k = k.reshape(L, N * self.heads, self.head_dim).transpose(0, 1)
        v = v.reshape(L, N * self.heads, self.head_dim).transpose(0, 1)

        mask = self.attn_mask[:L, :L].to(x.dtype)
        if attn_mask is not None:
            mask = mask + attn_mask.to(x.dtype)

        attn = torch.baddbmm(mask.expand(N * self.heads, L, L), q * self.scale, k.transpose(-1, -2))
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)

        x = torch.bmm(attn, v)
        x = x.transpose(0, 1).reshape(L, N, C)
        return self.out_proj(x)


class ResidualAttentionBlock(nn.Module):
    def __init__(self, d_model: int, n_head: int, context_length: int = 77):
        super().__init__()
        self.attn = TextAttention(d_model, n_head, context_length)
        self.ln_1 = LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, d_model * 4), QuickGELU(), nn.Linear(d_model * 4, d_model))
        self.ln_2 = LayerNorm(d_model)

    def forward(self, x: torch.Tensor):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x
