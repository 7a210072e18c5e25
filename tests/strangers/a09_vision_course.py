import math

import torch
from torch import nn
from torch.nn import functional as F

"""
Layers for the captioning Transformer of assignment 3. The parts between the
TODO markers are to be filled in.
"""


class MultiHeadAttention(nn.Module):
    """
    Masked attention with several heads.

    Usage:
      attn = MultiHeadAttention(embed_dim, num_heads=2)

      # self-attention
      data = torch.randn(batch_size, sequence_length, embed_dim)
      out = attn(query=data, key=data, value=data)

      # attention over two inputs
      other = torch.randn(batch_size, other_length, embed_dim)
      out = attn(query=data, key=other, value=other)
    """

    def __init__(self, embed_dim, num_heads, dropout=0.1):
        """
        Inputs:
         - embed_dim: Dimension of the token embedding
         - num_heads: Number of attention heads
         - dropout: Dropout probability
        """
        super().__init__()
        assert embed_dim % num_heads == 0

        self.key = nn.Linear(embed_dim, embed_dim)
        self.query = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

        self.attn_drop = nn.Dropout(dropout)

        self.n_head = num_heads
        self.emd_dim = embed_dim
        self.head_dim = self.emd_dim // self.n_head

    def forward(self, query, key, value, attn_mask=None):
        """
        N is the batch size, S the length of the source, T of the target and E
        the embedding dimension.

        Inputs:
        - query: Input data, of shape (N, S, E)
        - key: Input data, of shape (N, T, E)
        - value: Input data, of shape (N, T, E)
        - attn_mask: Array of shape (S, T), where mask[i, j] == 0 says that
          source position i should not look at target position j.

        Returns:
        - output: Tensor of shape (N, S, E)
        """
        N, S, E = query.shape
        N, T, E = value.shape
        ############################################################################
        # TODO: the attention itself.                                              #
        ############################################################################
        H, D = self.n_head, self.head_dim
        q = self.query(query).view(N, S, H, D).permute(0, 2, 1, 3)
        k = self.key(key).view(N, T, H, D).permute(0, 2, 3, 1)
        v = self.value(value).view(N, T, H, D).permute(0, 2, 1, 3)

        scores = torch.matmul(q, k) / math.sqrt(D)  # (N, H, S, T)
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask == 0, -math.inf)

        weights = self.attn_drop(F.softmax(scores, dim=-1))
        output = torch.matmul(weights, v)
        output = output.permute(0, 2, 1, 3).reshape(N, S, E)
        output = self.proj(output)
        ############################################################################
        #                             END OF YOUR CODE                             #
        ############################################################################
        return output
