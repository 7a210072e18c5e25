"""
Assignment 5, question 3: pretraining, rotary position embeddings

attention.py
"""
import math

import torch
import torch.nn as nn
from torch.nn import functional as F


class ModelConfig(object):
    """Hyperparameters handed to every block. Do not change the defaults."""

    def __init__(self, n_embd=256, n_head=8, block_size=128, attn_pdrop=0.1, resid_pdrop=0.1):
        self.n_embd = n_embd
        self.n_head = n_head
        self.block_size = block_size
        self.attn_pdrop = attn_pdrop
        self.resid_pdrop = resid_pdrop


def precompute_rotary_emb(dim, max_positions):
    """
    Cosines and sines for the rotary embeddings.

    @param dim (int): width of one head, even
    @param max_positions (int): longest sequence
    @returns rope_cache (Tensor): shape (max_positions, dim/2, 2), cos at [..., 0], sin at [..., 1]
    """
    ### START YOUR CODE HERE
    theta = torch.pow(10000.0, -2.0 * torch.arange(0, dim // 2).float() / dim)
    angles = torch.outer(torch.arange(max_positions).float(), theta)
    rope_cache = torch.stack((torch.cos(angles), torch.sin(angles)), dim=-1)
    ### END YOUR CODE HERE
    return rope_cache


def apply_rotary_emb(x, rope_cache):
    """
    Rotate each pair (x_{2i}, x_{2i+1}) by the angle of its position.

    @param x (Tensor): shape (batch, heads, time, dim)
    @param rope_cache (Tensor): from precompute_rotary_emb
    @returns rotated_x (Tensor): same shape as x
    """
    ### START YOUR CODE HERE
    T = x.shape[2]
    cos = rope_cache[:T, :, 0].to(x.dtype)
    sin = rope_cache[:T, :, 1].to(x.dtype)
    x_even, x_odd = x[..., 0::2], x[..., 1::2]
    rotated_x = torch.stack((x_even * cos - x_odd * sin,
                             x_even * sin + x_odd * cos), dim=-1).flatten(-2)
    ### END YOUR CODE HERE
    return rotated_x


class CausalSelfAttention(nn.Module):
    """
    Multi-head masked self-attention with rotary embeddings.
    """

    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        assert (config.n_embd // config.n_head) % 2 == 0
        self.n_head = config.n_head
        self.key = nn.Linear(config.n_embd, config.n_embd)
        self.query = nn.Linear(config.n_embd, config.n_embd)
        self.value = nn.Linear(config.n_embd, config.n_embd)
        self.register_buffer("rope_cache",
                             precompute_rotary_emb(config.n_embd // config.n_head, config.block_size))
        self.attn_drop = nn.Dropout(config.attn_pdrop)
        self.resid_drop = nn.Dropout(config.resid_pdrop)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.register_buffer("mask", torch.tril(torch.ones(config.block_size, config.block_size))
                             .view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.size()
        hs = C // self.n_head
        k = self.key(x).view(B, T, self.n_head, hs).transpose(1, 2)    # (B, nh, T, hs)
        q = self.query(x).view(B, T, self.n_head, hs).transpose(1, 2)  # (B, nh, T, hs)
        v = self.value(x).view(B, T, self.n_head, hs).transpose(1, 2)  # (B, nh, T, hs)

        q, k = apply_rotary_emb(q, self.rope_cache), apply_rotary_emb(k, self.rope_cache)

        att = (q @ k.transpose(-2, -1)) / math.sqrt(hs)
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = self.attn_drop(F.softmax(att, dim=-1))
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_drop(self.proj(y))
