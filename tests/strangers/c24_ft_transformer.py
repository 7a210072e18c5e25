import math
import typing as ty

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class CLSToken(nn.Module):
    """One trainable token after those of the features."""

    def __init__(self, d_token: int) -> None:
        super().__init__()
        bound = d_token ** -0.5
        self.weight = nn.Parameter(torch.empty(d_token).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.weight.expand(len(x), 1, -1)], dim=1)


def make_kv_compression(n_tokens: int, ratio: float) -> nn.Linear:
    """Linformer-like map from n_tokens to a fraction of them."""
    return nn.Linear(n_tokens, max(1, int(n_tokens * ratio)), bias=False)


class MultiheadAttention(nn.Module):
    """Attention between the tokens of a table row.

    A single head goes without the output layer. `key_compression` and `value_compression` shorten
    the token axis; give both or neither.
    """

    def __init__(self, *, d_token: int, n_heads: int, dropout: float, bias: bool, initialization: str) -> None:
        super().__init__()
        if d_token % n_heads:
            raise ValueError('d_token must be a multiple of n_heads')
        if initialization not in ('kaiming', 'xavier'):
            raise ValueError(f'unknown initialization {initialization}')

        self.n_heads = n_heads
        self.d_head = d_token // n_heads
        self.W_q = nn.Linear(d_token, d_token, bias)
        self.W_k = nn.Linear(d_token, d_token, bias)
        self.W_v = nn.Linear(d_token, d_token, bias)
        self.W_out = nn.Linear(d_token, d_token, bias) if n_heads > 1 else None
        self.dropout = nn.Dropout(dropout) if dropout else None

        for layer in self.children():
            if isinstance(layer, nn.Linear):
                if initialization == 'xavier' and layer is not self.W_out:
                    nn.init.xavier_uniform_(layer.weight, gain=2 ** -0.5)
                if bias:
                    nn.init.zeros_(layer.bias)

    def _to_heads(self, x: Tensor) -> Tensor:
        # heads join the batch
        b, n, _ = x.shape
        return x.reshape(b, n, self.n_heads, self.d_head).transpose(1, 2).reshape(b * self.n_heads, n, self.d_head)

    def _from_heads(self, x: Tensor) -> Tensor:
        bh, n, _ = x.shape
        return x.view(bh // self.n_heads, self.n_heads, n, self.d_head).transpose(1, 2).flatten(2)

    def forward(
        self,
        x_q: Tensor,
        x_kv: Tensor,
        key_compression: ty.Optional[nn.Linear] = None,
        value_compression: ty.Optional[nn.Linear] = None,
    ) -> ty.Tuple[Tensor, ty.Dict[str, Tensor]]:
        assert (key_compression is None) == (value_compression is None)
        q, k, v = self.W_q(x_q), self.W_k(x_kv), self.W_v(x_kv)
        if key_compression is not None and value_compression is not None:
            k = key_compression(k.transpose(1, 2)).transpose(1, 2)
            v = value_compression(v.transpose(1, 2)).transpose(1, 2)
        q, k, v = self._to_heads(q), self._to_heads(k), self._to_heads(v)

        attention_logits = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.d_head)
        attention_probs = F.softmax(attention_logits, dim=-1)
        if self.dropout is not None:
            attention_probs = self.dropout(attention_probs)

        x = self._from_heads(torch.bmm(attention_probs, v))
        if self.W_out is not None:
            x = self.W_out(x)
        return x, {'attention_logits': attention_logits, 'attention_probs': attention_probs}


def make_attention(d_token: int = 64, n_heads: int = 8, dropout: float = 0.2) -> MultiheadAttention:
    """The attention of the default configuration."""
    return MultiheadAttention(
        d_token=d_token, n_heads=n_heads, dropout=dropout, bias=True, initialization='kaiming'
    )
