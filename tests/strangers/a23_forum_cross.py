# The decoder's attention over the encoder's output, as asked in the thread.
# Everything is (seq, batch, feature) because that is what my nn.LSTM encoder gives me.
import torch
import torch.nn as nn

ENC_DIM = 96
DEC_DIM = 64
HEADS = 4


class EncoderAttention(nn.Module):
    def __init__(self, dec_dim, enc_dim, heads=4, dropout=0.0):
        super().__init__()
        assert dec_dim % heads == 0
        self.heads = heads
        self.hd = dec_dim // heads
        self.q = nn.Linear(dec_dim, dec_dim)
        self.kv = nn.Linear(enc_dim, 2 * dec_dim)
        self.o = nn.Linear(dec_dim, dec_dim)
        self.dropout = nn.Dropout(dropout)
        self._kv = None

    def project_encoder(self, encoder_out):
        S, B, _ = encoder_out.shape
        k, v = self.kv(encoder_out).chunk(2, dim=-1)
        # (S, B, E) -> (B, heads, S, hd)
        k = k.reshape(S, B, self.heads, self.hd).permute(1, 2, 0, 3)
        v = v.reshape(S, B, self.heads, self.hd).permute(1, 2, 0, 3)
        return k, v

    def forward(self, decoder_state, encoder_out, src_padding=None, same_source=False):
        """
        decoder_state: (T, B, dec_dim)
        encoder_out:   (S, B, enc_dim)
        src_padding:   (B, S) bool, True on the <pad> tokens
        same_source:   in beam search, keep the projections of the step before
        """
        T, B, E = decoder_state.shape
        q = self.q(decoder_state).reshape(T, B, self.heads, self.hd).permute(1, 2, 0, 3)
        q = q * self.hd ** -0.5

        if same_source and self._kv is not None:
            k, v = self._kv
        else:
            k, v = self.project_encoder(encoder_out)
            self._kv = (k.detach(), v.detach())

        scores = q @ k.transpose(-1, -2)             # (B, heads, T, S)
        if src_padding is not None:
            scores = scores.masked_fill(src_padding[:, None, None, :], float("-inf"))
        attn = scores.softmax(dim=-1)

        ctx = self.dropout(attn) @ v                 # (B, heads, T, hd)
        ctx = ctx.permute(2, 0, 1, 3).reshape(T, B, E)
        return self.o(ctx), attn.mean(dim=1)         # (T, B, E), (B, T, S)


# what I use in the decoder
encoder_attention = EncoderAttention(DEC_DIM, ENC_DIM, heads=HEADS)
