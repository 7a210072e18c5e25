import math

import torch


def scaled_dot_product_attention(q, k, v, mask=None):
    """Calculate the attention weights.

    q, k, v must have matching leading dimensions.
    k, v must have matching penultimate dimension, i.e.: seq_len_k = seq_len_v.

    Args:
      q: query shape == (..., seq_len_q, depth)
      k: key shape == (..., seq_len_k, depth)
      v: value shape == (..., seq_len_k, depth_v)
      mask: tensor broadcastable to (..., seq_len_q, seq_len_k); 1/True = masked out. Defaults to None.

    Returns:
      output, attention_weights
    """
    matmul_qk = torch.matmul(q, k.transpose(-2, -1))  # (..., seq_len_q, seq_len_k)

    # scale matmul_qk
    dk = k.size(-1)
    scaled_attention_logits = matmul_qk / math.sqrt(dk)

    if mask is not None:
        scaled_attention_logits = scaled_attention_logits.masked_fill(
            mask.bool(), torch.finfo(scaled_attention_logits.dtype).min
        )

    # softmax is normalized on the last axis (seq_len_k) so that the scores add up to 1.
    attention_weights = torch.softmax(scaled_attention_logits, dim=-1)
    output = torch.matmul(attention_weights, v)  # (..., seq_len_q, depth_v)
    return output, attention_weights
