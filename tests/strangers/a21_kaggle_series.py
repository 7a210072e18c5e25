#!/usr/bin/env python
# coding: utf-8

# # Store sales: attention over the last days
# Each day looks at itself and at the days of the look-back before it. Nothing from the future!

# In[1]:


import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


# In[2]:


class CFG:
    seed = 42
    hidden = 64
    nheads = 4
    lookback = 7      # days, today included
    drop = 0.1
    n_features = 12
    horizon = 3


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


seed_everything(CFG.seed)


# In[3]:


class LookbackAttention(nn.Module):
    """x: (batch, days, hidden) -> (batch, days, hidden)"""

    def __init__(self, hidden=CFG.hidden, nheads=CFG.nheads, lookback=CFG.lookback, drop=CFG.drop):
        super().__init__()
        assert hidden % nheads == 0
        self.nheads = nheads
        self.dk = hidden // nheads
        self.lookback = lookback
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(drop)
        # one learned number per head for "so many days ago"
        self.lag_bias = nn.Embedding(lookback, nheads)
        nn.init.normal_(self.lag_bias.weight, std=0.5)

    def forward(self, x):
        B, T, H = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.nheads, self.dk).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]            # (B, heads, T, dk)

        day = torch.arange(T, device=x.device)
        lag = day[:, None] - day[None, :]           # > 0: in the past
        visible = (lag >= 0) & (lag < self.lookback)
        bias = F.embedding(lag.clamp(0, self.lookback - 1), self.lag_bias.weight)

        score = q @ k.transpose(-1, -2) / math.sqrt(self.dk)
        score = score + bias.permute(2, 0, 1)
        score = score.masked_fill(~visible, -torch.inf)
        attn = self.drop(score.softmax(-1))
        y = (attn @ v).transpose(1, 2).reshape(B, T, H)
        return self.out(y)


# In[4]:


class SalesModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(CFG.n_features, CFG.hidden)
        self.attn = LookbackAttention()
        self.norm = nn.LayerNorm(CFG.hidden)
        self.head = nn.Linear(CFG.hidden, CFG.horizon)

    def forward(self, x):
        h = self.inp(x)
        h = self.norm(h + self.attn(h))
        return self.head(h[:, -1])


# In[5]:


# sanity check on random numbers before the long run
model = SalesModel()
batch = torch.randn(8, 28, CFG.n_features)
pred = model(batch)
print("pred", tuple(pred.shape))
loss = F.mse_loss(pred, torch.randn(8, CFG.horizon))
loss.backward()
print("params", sum(p.numel() for p in model.parameters()))
