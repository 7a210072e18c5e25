# Causal attention over a trajectory (return, state, action, return, state, action, ...).
import math

import torch
import torch.nn as nn

CONTEXT_LEN = 20     # steps the policy looks back on
TOKENS_PER_STEP = 3
H_DIM = 64
N_HEADS = 4
DROP_P = 0.1


class MaskedCausalAttention(nn.Module):
    """A plain call starts an episode. With rollout=True the tokens continue the episode at hand,
    and also look at the tokens seen since it started."""

    def __init__(self, h_dim, max_T, n_heads, drop_p):
        super().__init__()
        self.n_heads = n_heads
        self.max_T = max_T

        self.q_net = nn.Linear(h_dim, h_dim)
        self.k_net = nn.Linear(h_dim, h_dim)
        self.v_net = nn.Linear(h_dim, h_dim)
        self.proj_net = nn.Linear(h_dim, h_dim)

        self.att_drop = nn.Dropout(drop_p)
        self.proj_drop = nn.Dropout(drop_p)

        visible = torch.ones(max_T, max_T, dtype=torch.bool).tril()
        self.register_buffer('visible', visible)
        self.memory = None

    def forward(self, x, rollout=False):
        B, T, C = x.shape
        N, D = self.n_heads, C // self.n_heads

        q = self.q_net(x).view(B, T, N, D).transpose(1, 2)
        k = self.k_net(x).view(B, T, N, D).transpose(1, 2)
        v = self.v_net(x).view(B, T, N, D).transpose(1, 2)

        if not rollout:
            self.memory = None
        if self.memory is not None:
            k = torch.cat((self.memory[0], k), dim=2)
            v = torch.cat((self.memory[1], v), dim=2)
        self.memory = (k.detach(), v.detach())
        S = k.shape[2]

        scores = q @ k.transpose(2, 3) / math.sqrt(D)   # (B, N, T, S)
        scores = scores.masked_fill(~self.visible[S - T:S, :S], float('-inf'))
        weights = torch.softmax(scores, dim=-1)

        out = self.att_drop(weights @ v)
        out = out.transpose(1, 2).reshape(B, T, N * D)
        return self.proj_drop(self.proj_net(out))


policy_attention = MaskedCausalAttention(H_DIM, TOKENS_PER_STEP * CONTEXT_LEN, N_HEADS, DROP_P)
