# PyTorch version of the attention part of a well-known TensorFlow translation tutorial.
import torch
import torch.nn as nn
import torch.nn.functional as F


def create_padding_mask(seq):
    mask = (seq == 0).float()
    # extra dimensions so that the padding can be added to the attention logits
    return mask[:, None, None, :]  # (batch_size, 1, 1, seq_len)


def create_look_ahead_mask(size):
    return torch.triu(torch.ones(size, size), diagonal=1)  # (seq_len, seq_len)


def scaled_dot_product_attention(q, k, v, mask):
    """Calculate the attention weights.

    q, k, v must have matching leading dimensions, k and v matching lengths.
    The mask depends on its type (padding or look ahead) but must broadcast.

    Args:
      q: query shape == (..., seq_len_q, depth)
      k: key shape == (..., seq_len_k, depth)
      v: value shape == (..., seq_len_v, depth_v)
      mask: float tensor that broadcasts to (..., seq_len_q, seq_len_k), 1 = hidden. Or None.

    Returns:
      output, attention_weights
    """
    matmul_qk = torch.matmul(q, k.transpose(-1, -2))  # (..., seq_len_q, seq_len_k)

    dk = k.shape[-1]
    scaled_attention_logits = matmul_qk / dk ** 0.5

    if mask is not None:
        scaled_attention_logits = scaled_attention_logits + mask * -1e9

    # sums to 1 over the last axis (seq_len_k)
    attention_weights = F.softmax(scaled_attention_logits, dim=-1)
    output = torch.matmul(attention_weights, v)  # (..., seq_len_q, depth_v)
    return output, attention_weights


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super(MultiHeadAttention, self).__init__()
        self.num_heads = num_heads
        self.d_model = d_model

        assert d_model % self.num_heads == 0

        self.depth = d_model // self.num_heads

        self.wq = nn.Linear(d_model, d_model)
        self.wk = nn.Linear(d_model, d_model)
        self.wv = nn.Linear(d_model, d_model)

        self.dense = nn.Linear(d_model, d_model)

    def split_heads(self, x, batch_size):
        """(batch_size, seq_len, d_model) -> (batch_size, num_heads, seq_len, depth)"""
        x = x.reshape(batch_size, -1, self.num_heads, self.depth)
        return x.permute(0, 2, 1, 3)

    def forward(self, v, k, q, mask):
        batch_size = q.shape[0]

        q = self.wq(q)  # (batch_size, seq_len, d_model)
        k = self.wk(k)  # (batch_size, seq_len, d_model)
        v = self.wv(v)  # (batch_size, seq_len, d_model)

        q = self.split_heads(q, batch_size)
        k = self.split_heads(k, batch_size)
        v = self.split_heads(v, batch_size)

        # scaled_attention.shape == (batch_size, num_heads, seq_len_q, depth)
        # attention_weights.shape == (batch_size, num_heads, seq_len_q, seq_len_k)
        scaled_attention, attention_weights = scaled_dot_product_attention(q, k, v, mask)

        scaled_attention = scaled_attention.permute(0, 2, 1, 3)
        concat_attention = scaled_attention.reshape(batch_size, -1, self.d_model)

        output = self.dense(concat_attention)  # (batch_size, seq_len_q, d_model)
        return output, attention_weights
