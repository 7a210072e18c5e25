import torch
import torch.nn as nn
from torch.nn.init import trunc_normal_


def window_partition(x, window_size):
    """ (B, H, W, C) -> (num_windows*B, window_size*window_size, C), the windows of one image side by side """
    B, H, W, C = x.shape
    x = x.view(B, H // window_size, window_size, W // window_size, window_size, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window_size * window_size, C)


def shifted_window_mask(H, W, window_size, shift_size):
    """ Mask for cyclically shifted windows: 0 inside a region and -100 across regions, (num_windows, N, N) """
    region = torch.zeros((1, H, W, 1))
    slices = (slice(0, -window_size), slice(-window_size, -shift_size), slice(-shift_size, None))
    cnt = 0
    for h in slices:
        for w in slices:
            region[:, h, w, :] = cnt
            cnt += 1
    windows = window_partition(region, window_size).squeeze(-1)
    diff = windows.unsqueeze(1) - windows.unsqueeze(2)
    return torch.zeros_like(diff).masked_fill(diff != 0, -100.0)


class WindowAttention(nn.Module):
    r""" Self attention inside each window, with a learned bias per head and offset.

    Args:
        dim (int): Channels.
        window_size (tuple[int]): Rows and columns of a window.
        num_heads (int): Heads.
        qkv_bias (bool, optional): Biases in the qkv layer. Default: True
        qk_scale (float | None, optional): Replaces head_dim ** -0.5 if set
        attn_drop (float, optional): Dropout of the attention weights. Default: 0.0
        proj_drop (float, optional): Dropout of the output. Default: 0.0
    """

    def __init__(self, dim, window_size, num_heads, qkv_bias=True, qk_scale=None, attn_drop=0., proj_drop=0.):
        super().__init__()
        self.dim = dim
        self.window_size = window_size  # Wh, Ww
        self.num_heads = num_heads
        head_dim = dim // num_heads
        self.scale = qk_scale or head_dim ** -0.5

        Wh, Ww = window_size
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * Wh - 1) * (2 * Ww - 1), num_heads))

        coords = torch.stack(torch.meshgrid(torch.arange(Wh), torch.arange(Ww), indexing="ij")).flatten(1)  # 2, N
        rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()  # N, N, 2
        rel[:, :, 0] += Wh - 1
        rel[:, :, 1] += Ww - 1
        rel[:, :, 0] *= 2 * Ww - 1
        self.register_buffer("relative_position_index", rel.sum(-1))

        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

        trunc_normal_(self.relative_position_bias_table, std=.02)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x, mask=None):
        """
        Args:
            x: tokens of shape (num_windows*B, N, C), N = Wh*Ww
            mask: (0/-100) additive mask of shape (num_windows, N, N), or None
        """
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]

        q = q * self.scale
        attn = q @ k.transpose(-2, -1)

        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(N, N, -1)
        attn = attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)

        if mask is not None:
            nW = mask.shape[0]
            attn = attn.view(B_ // nW, nW, self.num_heads, N, N) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads, N, N)
        attn = self.softmax(attn)
        attn = self.attn_drop(attn)

        x = (attn @ v).transpose(1, 2).reshape(B_, N, C)
        x = self.proj(x)
        x = self.proj_drop(x)
        return x

    def extra_repr(self) -> str:
        return f'dim={self.dim}, window_size={self.window_size}, num_heads={self.num_heads}'
