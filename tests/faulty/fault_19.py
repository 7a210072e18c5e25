import torch
from torch import nn
import torch.nn.functional as F


class DecoderAttention(nn.Module):
    """Causal decoder attention. padding_mask: (B, T) bool, True = token, False = pad.

    The full (B, 1, T, T) mask is kept between calls, since it is asked for again and again with the
    same shape during training.
    """

    def __init__(self, dim, n_heads, dropout=0.0):
        super().__init__()
        assert dim % n_heads == 0
        self.n_heads = n_heads
        self.head_dim = dim // n_heads
        self.dropout = dropout
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)
        self._mask_cache = {}

    def _get_mask(self, padding_mask, B, T, device):
        cache_key = (B, T, padding_mask is not None, str(device))
        if cache_key not in self._mask_cache:
            mask = torch.ones(T, T, dtype=torch.bool, device=device).tril().expand(B, 1, T, T)
            if padding_mask is not None:
                # the diagonal stays open so that no row is empty
                eye = torch.eye(T, dtype=torch.bool, device=device)
                mask = (mask & padding_mask[:, None, None, :]) | eye
            self._mask_cache[cache_key] = mask
        return self._mask_cache[cache_key]

    def forward(self, x, padding_mask=None):
        B, T, C = x.shape
        q, k, v = (
            t.view(B, T, self.n_heads, self.head_dim).transpose(1, 2)
            for t in self.to_qkv(x).chunk(3, dim=-1)
        )
        mask = self._get_mask(padding_mask, B, T, x.device)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=self.dropout if self.training else 0.0)
        return self.to_out(out.transpose(1, 2).reshape(B, T, C))
