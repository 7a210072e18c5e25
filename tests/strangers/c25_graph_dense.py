from typing import NamedTuple, Optional

import torch
import torch.nn as nn
from torch import Tensor


class GraphAttentionOutput(NamedTuple):
    h: Tensor                  # [batch, nodes, out_dim]
    alpha: Optional[Tensor]    # [batch, heads, nodes, nodes]


def to_dense_adj(edge_index: Tensor, num_nodes: int) -> Tensor:
    """[2, num_edges] (source, target) -> [num_nodes, num_nodes] with row = target"""
    adj = torch.zeros(num_nodes, num_nodes, dtype=torch.bool, device=edge_index.device)
    adj[edge_index[1], edge_index[0]] = True
    return adj


class DenseGraphAttention(nn.Module):
    """Transformer convolution on a batch of dense graphs.

    Args:
        in_dim: size of the node features.
        out_dim: size of the output, all heads together.
        heads: number of heads.
        edge_dim: size of the edge features, which become a bias for each head.
        self_loops: every node sees itself, whatever the adjacency says.
    """

    def __init__(self, in_dim: int, out_dim: int, heads: int = 4, edge_dim: Optional[int] = None,
                 dropout: float = 0.0, self_loops: bool = True):
        super().__init__()
        assert out_dim % heads == 0
        self.heads = heads
        self.out_dim = out_dim
        self.self_loops = self_loops
        self.lin_query = nn.Linear(in_dim, out_dim)
        self.lin_key = nn.Linear(in_dim, out_dim)
        self.lin_value = nn.Linear(in_dim, out_dim)
        self.lin_edge = nn.Linear(edge_dim, heads, bias=False) if edge_dim is not None else None
        self.lin_out = nn.Linear(out_dim, out_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        h: Tensor,
        adj: Optional[Tensor] = None,
        edge_attr: Optional[Tensor] = None,
        node_mask: Optional[Tensor] = None,
        return_attention_weights: bool = False,
    ) -> GraphAttentionOutput:
        """
        h: [batch, nodes, in_dim]
        adj: [batch, nodes, nodes] or [nodes, nodes] bool, True where the column is a neighbour of the row
        edge_attr: [batch, nodes, nodes, edge_dim]
        node_mask: [batch, nodes] bool, True for nodes and False for padding
        """
        b, n, _ = h.shape
        q = self.lin_query(h).view(b, n, self.heads, -1)
        k = self.lin_key(h).view(b, n, self.heads, -1)
        v = self.lin_value(h).view(b, n, self.heads, -1)

        logits = torch.einsum('bihd,bjhd->bhij', q, k) / q.shape[-1] ** 0.5
        if edge_attr is not None and self.lin_edge is not None:
            logits = logits + self.lin_edge(edge_attr).permute(0, 3, 1, 2)

        if adj is None:
            adj = torch.ones(n, n, dtype=torch.bool, device=h.device)
        if adj.dim() == 2:
            adj = adj.unsqueeze(0)
        if self.self_loops:
            adj = adj | torch.eye(n, dtype=torch.bool, device=h.device)

        allowed = adj
        if node_mask is not None:
            allowed = allowed & node_mask.unsqueeze(1)
        logits = logits.masked_fill(~allowed.unsqueeze(1), float('-inf'))

        # a node without any neighbour left receives zeros
        isolated = ~allowed.any(dim=-1, keepdim=True).unsqueeze(1)
        alpha = logits.masked_fill(isolated, 0.0).softmax(dim=-1).masked_fill(isolated, 0.0)

        out = torch.einsum('bhij,bjhd->bihd', self.dropout(alpha), v).reshape(b, n, self.out_dim)
        out = self.lin_out(out)
        return GraphAttentionOutput(out, alpha if return_attention_weights else None)
