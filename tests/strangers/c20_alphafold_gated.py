from typing import List, Optional

import torch
from torch import nn


def permute_final_dims(tensor: torch.Tensor, inds: List[int]) -> torch.Tensor:
    zero_index = -1 * len(inds)
    first = list(range(len(tensor.shape[:zero_index])))
    return tensor.permute(first + [zero_index + i for i in inds])


def flatten_final_dims(t: torch.Tensor, no_dims: int) -> torch.Tensor:
    return t.reshape(t.shape[:-no_dims] + (-1,))


class AttentionPairBias(nn.Module):
    """
    Gated self-attention over residues, biased by the pair representation.

    Args:
        c_a: channels of the single representation
        c_z: channels of the pair representation
        c_hidden: channels per head
        no_heads: number of heads
        inf: size of the bias at masked residues
    """

    def __init__(
        self,
        c_a: int,
        c_z: int,
        c_hidden: int,
        no_heads: int,
        gating: bool = True,
        inf: float = 1e9,
    ):
        super().__init__()
        self.c_hidden = c_hidden
        self.no_heads = no_heads
        self.inf = inf

        self.linear_q = nn.Linear(c_a, c_hidden * no_heads)
        self.linear_k = nn.Linear(c_a, c_hidden * no_heads, bias=False)
        self.linear_v = nn.Linear(c_a, c_hidden * no_heads, bias=False)
        self.layer_norm_z = nn.LayerNorm(c_z)
        self.linear_z = nn.Linear(c_z, no_heads, bias=False)

        self.linear_g = None
        if gating:
            self.linear_g = nn.Linear(c_a, c_hidden * no_heads)
            nn.init.zeros_(self.linear_g.weight)
            nn.init.ones_(self.linear_g.bias)
        self.linear_o = nn.Linear(c_hidden * no_heads, c_a)
        self.sigmoid = nn.Sigmoid()

    def _prep_bias(self, z: Optional[torch.Tensor], mask: Optional[torch.Tensor]) -> List[torch.Tensor]:
        biases = []
        if mask is not None:
            # [*, 1, 1, N]
            mask_bias = self.inf * (mask.float() - 1)
            biases.append(mask_bias[..., None, None, :])
        if z is not None:
            # [*, H, N, N]
            pair_bias = self.linear_z(self.layer_norm_z(z))
            biases.append(permute_final_dims(pair_bias, [2, 0, 1]))
        return biases

    def forward(
        self,
        a: torch.Tensor,
        z: Optional[torch.Tensor] = None,
        mask: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """
        Args:
            a: [*, N, c_a] single representation
            z: [*, N, N, c_z] pair representation
            mask: [*, N] 1 at residues and 0 at padding
        Returns:
            [*, N, c_a] update
        """
        # [*, H, N, C_hidden]
        q = self.linear_q(a).unflatten(-1, (self.no_heads, -1)).transpose(-2, -3)
        k = self.linear_k(a).unflatten(-1, (self.no_heads, -1)).transpose(-2, -3)
        v = self.linear_v(a).unflatten(-1, (self.no_heads, -1)).transpose(-2, -3)
        q = q / (self.c_hidden ** 0.5)

        logits = torch.matmul(q, permute_final_dims(k, [1, 0])).float()
        for bias in self._prep_bias(z, mask):
            logits = logits + bias
        weights = torch.softmax(logits, dim=-1).to(v.dtype)

        o = torch.matmul(weights, v).transpose(-2, -3)
        o = flatten_final_dims(o, 2)
        if self.linear_g is not None:
            o = o * self.sigmoid(self.linear_g(a))
        return self.linear_o(o)
