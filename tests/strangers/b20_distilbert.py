import math
from types import SimpleNamespace
from typing import List, Optional, Set, Tuple

import torch
import torch.nn as nn


def default_params(**kwargs) -> SimpleNamespace:
    p = dict(dim=768, n_heads=12, attention_dropout=0.1, output_attentions=False)
    p.update(kwargs)
    return SimpleNamespace(**p)


def prune_linear_layer(layer: nn.Linear, index: torch.Tensor, dim: int = 0) -> nn.Linear:
    weight = layer.weight.detach().index_select(dim, index).clone()
    bias = layer.bias.detach().clone() if dim == 1 else layer.bias.detach()[index].clone()
    new = nn.Linear(weight.size(1), weight.size(0))
    with torch.no_grad():
        new.weight.copy_(weight)
        new.bias.copy_(bias)
    return new


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        config = config if config is not None else default_params()

        self.n_heads = config.n_heads
        self.dim = config.dim
        self.dropout = nn.Dropout(p=config.attention_dropout)
        self.output_attentions = config.output_attentions

        assert self.dim % self.n_heads == 0

        self.q_lin = nn.Linear(in_features=config.dim, out_features=config.dim)
        self.k_lin = nn.Linear(in_features=config.dim, out_features=config.dim)
        self.v_lin = nn.Linear(in_features=config.dim, out_features=config.dim)
        self.out_lin = nn.Linear(in_features=config.dim, out_features=config.dim)

        self.pruned_heads: Set[int] = set()

    def prune_heads(self, heads: List[int]):
        head_size = self.dim // self.n_heads
        keep = [h for h in range(self.n_heads) if h not in heads]
        index = torch.cat([torch.arange(h * head_size, (h + 1) * head_size) for h in keep])
        self.q_lin = prune_linear_layer(self.q_lin, index)
        self.k_lin = prune_linear_layer(self.k_lin, index)
        self.v_lin = prune_linear_layer(self.v_lin, index)
        self.out_lin = prune_linear_layer(self.out_lin, index, dim=1)
        self.n_heads = len(keep)
        self.dim = head_size * self.n_heads
        self.pruned_heads.update(heads)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor,
        head_mask: Optional[torch.Tensor] = None,
    ) -> Tuple[torch.Tensor, ...]:
        """
        Parameters
        ----------
        query: torch.tensor(bs, seq_length, dim)
        key: torch.tensor(bs, seq_length, dim)
        value: torch.tensor(bs, seq_length, dim)
        mask: torch.tensor(bs, seq_length), 1 for tokens, 0 for padding

        Returns
        -------
        context: torch.tensor(bs, seq_length, dim), and the weights if the config asks for them
        """
        bs, q_length, _ = query.size()
        k_length = key.size(1)
        dim_per_head = self.dim // self.n_heads
        mask_reshp = (bs, 1, 1, k_length)

        def shape(x):
            """separate heads"""
            return x.view(bs, -1, self.n_heads, dim_per_head).transpose(1, 2)

        def unshape(x):
            """group heads"""
            return x.transpose(1, 2).contiguous().view(bs, -1, self.n_heads * dim_per_head)

        q = shape(self.q_lin(query))  # (bs, n_heads, q_length, dim_per_head)
        k = shape(self.k_lin(key))  # (bs, n_heads, k_length, dim_per_head)
        v = shape(self.v_lin(value))  # (bs, n_heads, k_length, dim_per_head)

        q = q / math.sqrt(dim_per_head)
        scores = torch.matmul(q, k.transpose(2, 3))
        mask = (mask == 0).view(mask_reshp).expand_as(scores)
        scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)

        weights = nn.functional.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        if head_mask is not None:
            weights = weights * head_mask

        context = self.out_lin(unshape(torch.matmul(weights, v)))
        if self.output_attentions:
            return (context, weights)
        return (context,)
