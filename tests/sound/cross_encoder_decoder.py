"""Course style: the encoder-decoder attention of a translation model. Queries come from the decoder, keys and values
from the encoder, and the two sequences may differ in length (and in width, through encoder_dim). There is no mask, so
no row can lack an allowed key; nothing is causal. Batch first: decoder_input (N, T, d_model), encoder_output
(N, S, encoder_dim), result (N, T, d_model).
"""

import torch
from torch import nn


class CrossAttention(nn.Module):
    """Let each decoder position read from the whole encoder output.

    Args:
        d_model: width of the decoder, and of the result.
        num_heads: number of heads, a divisor of d_model.
        encoder_dim: width of the encoder output, d_model if not given.
        dropout: probability of dropping an attention weight while training.
    """

    def __init__(self, d_model, num_heads, encoder_dim=None, dropout=0.0):
        super().__init__()
        if d_model % num_heads != 0:
            raise ValueError("d_model has to be a multiple of num_heads")
        encoder_dim = d_model if encoder_dim is None else encoder_dim
        self.num_heads = num_heads
        self.depth = d_model // num_heads
        self.query_layer = nn.Linear(d_model, d_model)
        self.key_layer = nn.Linear(encoder_dim, d_model)
        self.value_layer = nn.Linear(encoder_dim, d_model)
        self.output_layer = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, decoder_input, encoder_output):
        queries = self._heads(self.query_layer(decoder_input))
        keys = self._heads(self.key_layer(encoder_output))
        values = self._heads(self.value_layer(encoder_output))

        energy = torch.einsum("nthd,nshd->nhts", queries, keys) / self.depth**0.5
        attention = self.dropout(torch.softmax(energy, dim=-1))
        mixed = torch.einsum("nhts,nshd->nthd", attention, values)

        return self.output_layer(mixed.flatten(start_dim=2))

    def _heads(self, tensor):
        return tensor.unflatten(-1, (self.num_heads, self.depth))
