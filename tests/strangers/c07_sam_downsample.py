import math
from typing import Tuple

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """
    Attention of the mask decoder. It may work at a fraction of the embedding width: with
    ``downsample_rate=2`` the heads share half of the channels and ``out_proj`` restores them.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_heads: int,
        downsample_rate: int = 1,
    ) -> None:
        super().__init__()
        internal_dim = embedding_dim // downsample_rate
        if internal_dim % num_heads != 0:
            raise ValueError(f"{num_heads} heads do not fit {internal_dim} channels")
        self.embedding_dim = embedding_dim
        self.internal_dim = internal_dim
        self.num_heads = num_heads
        self.head_dim = internal_dim // num_heads

        self.q_proj = nn.Linear(embedding_dim, internal_dim)
        self.k_proj = nn.Linear(embedding_dim, internal_dim)
        self.v_proj = nn.Linear(embedding_dim, internal_dim)
        self.out_proj = nn.Linear(internal_dim, embedding_dim)

    def split(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        return x.reshape(b, n, self.num_heads, self.head_dim).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        b, _, n, _ = x.shape
        return x.transpose(1, 2).reshape(b, n, self.internal_dim)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # q: B x N_q x C; k and v: B x N_k x C
        q = self.split(self.q_proj(q))
        k = self.split(self.k_proj(k))
        v = self.split(self.v_proj(v))

        similarity = torch.matmul(q, k.mT) / math.sqrt(self.head_dim)
        weights = torch.softmax(similarity, dim=-1)  # B x heads x N_q x N_k

        return self.out_proj(self.merge(weights @ v))


class TwoWayBlock(nn.Module):
    """Prompt tokens look at the image and the image looks back; encodings stay out of the values."""

    def __init__(self, embedding_dim: int, num_heads: int, attention_downsample_rate: int = 2) -> None:
        super().__init__()
        self.token_to_image = Attention(embedding_dim, num_heads, downsample_rate=attention_downsample_rate)
        self.image_to_token = Attention(embedding_dim, num_heads, downsample_rate=attention_downsample_rate)
        self.norm_tokens = nn.LayerNorm(embedding_dim)
        self.norm_image = nn.LayerNorm(embedding_dim)

    def forward(self, tokens: Tensor, image: Tensor, token_pe: Tensor, image_pe: Tensor) -> Tuple[Tensor, Tensor]:
        update = self.token_to_image(q=tokens + token_pe, k=image + image_pe, v=image)
        tokens = self.norm_tokens(tokens + update)
        update = self.image_to_token(q=image + image_pe, k=tokens + token_pe, v=tokens)
        return tokens, self.norm_image(image + update)
