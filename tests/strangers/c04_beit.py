import torch
import torch.nn as nn
import torch.nn.functional as F


def gen_relative_position_index(window_size):
    """Index into the bias table for a class token followed by window_size[0] * window_size[1] patches.

    The last three rows of the table are cls-to-token, token-to-cls and cls-to-cls.
    """
    h, w = window_size
    num_rel = (2 * h - 1) * (2 * w - 1) + 3
    ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    ys, xs = ys.flatten(), xs.flatten()
    dy = ys[:, None] - ys[None, :] + h - 1
    dx = xs[:, None] - xs[None, :] + w - 1
    index = torch.zeros((h * w + 1, h * w + 1), dtype=torch.long)
    index[1:, 1:] = dy * (2 * w - 1) + dx
    index[0, 0:] = num_rel - 3
    index[0:, 0] = num_rel - 2
    index[0, 0] = num_rel - 1
    return num_rel, index


class BeitAttention(nn.Module):
    def __init__(
            self, dim, num_heads=8, qkv_bias=True, qk_scale=None, attn_drop=0.,
            proj_drop=0., window_size=None, attn_head_dim=None):
        super().__init__()
        self.num_heads = num_heads
        head_dim = dim // num_heads
        if attn_head_dim is not None:
            head_dim = attn_head_dim
        all_head_dim = head_dim * self.num_heads
        self.scale = qk_scale or head_dim ** -0.5

        # one fused projection; only queries and values carry a bias
        self.qkv = nn.Linear(dim, all_head_dim * 3, bias=False)
        if qkv_bias:
            self.q_bias = nn.Parameter(torch.zeros(all_head_dim))
            self.v_bias = nn.Parameter(torch.zeros(all_head_dim))
        else:
            self.q_bias = None
            self.v_bias = None

        if window_size:
            self.window_size = window_size
            self.num_relative_distance, index = gen_relative_position_index(window_size)
            self.relative_position_bias_table = nn.Parameter(torch.zeros(self.num_relative_distance, num_heads))
            self.register_buffer("relative_position_index", index)
        else:
            self.window_size = None
            self.relative_position_bias_table = None
            self.relative_position_index = None

        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(all_head_dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x, rel_pos_bias=None):
        # rel_pos_bias: (num_heads, N, N), when the blocks share one table
        B, N, C = x.shape
        qkv_bias = None
        if self.q_bias is not None:
            zeros = torch.zeros_like(self.v_bias, requires_grad=False)
            qkv_bias = torch.cat((self.q_bias, zeros, self.v_bias))
        qkv = F.linear(input=x, weight=self.qkv.weight, bias=qkv_bias)
        qkv = qkv.reshape(B, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]  # B, heads, N, head_dim

        q = q * self.scale
        attn = (q @ k.transpose(-2, -1))

        if self.relative_position_bias_table is not None:
            bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
            bias = bias.view(self.window_size[0] * self.window_size[1] + 1, -1, self.num_heads)
            attn = attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)

        if rel_pos_bias is not None:
            attn = attn + rel_pos_bias

        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)

        x = (attn @ v).transpose(1, 2).reshape(B, N, -1)
        x = self.proj(x)
        return self.proj_drop(x)
