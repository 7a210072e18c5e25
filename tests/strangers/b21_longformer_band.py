"""Local (two-sided sliding window) self attention for long documents.

The Longformer idea without its global tokens: token i looks at tokens i-w .. i+w, where
2*w = attention_window. Only the band is ever computed, memory is linear in the length.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LongformerConfig:
    def __init__(
        self,
        hidden_size=240,
        num_attention_heads=6,
        attention_probs_dropout_prob=0.0,
        attention_window=8,
    ):
        self.hidden_size = hidden_size
        self.num_attention_heads = num_attention_heads
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        # an int, or one int per layer
        self.attention_window = attention_window


def band(x, w):
    """(b, h, t, ...) -> (b, h, t, 2w+1, ...): the neighbourhood of each position, zeros beyond the ends."""
    pads = [0, 0] * (x.dim() - 3) + [w, w]
    x = F.pad(x, pads)
    # unfold puts the window last, bring it next to t
    x = x.unfold(2, 2 * w + 1, 1)
    return x.movedim(-1, 3)


class LongformerSelfAttention(nn.Module):
    def __init__(self, config, layer_id=0):
        super().__init__()
        if config.hidden_size % config.num_attention_heads != 0:
            raise ValueError("hidden_size and num_attention_heads do not fit")
        self.num_heads = config.num_attention_heads
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.embed_dim = config.hidden_size

        self.query = nn.Linear(self.embed_dim, self.embed_dim)
        self.key = nn.Linear(self.embed_dim, self.embed_dim)
        self.value = nn.Linear(self.embed_dim, self.embed_dim)
        self.output = nn.Linear(self.embed_dim, self.embed_dim)
        self.dropout = config.attention_probs_dropout_prob
        self.layer_id = layer_id

        window = config.attention_window
        if isinstance(window, (list, tuple)):
            window = window[layer_id]
        assert window > 0 and window % 2 == 0, "attention_window has to be even and positive"
        self.one_sided_attn_window_size = window // 2

    def forward(self, hidden_states, attention_mask=None, output_attentions=False):
        """attention_mask: (batch, length), 1 = token, 0 = padding.

        With output_attentions the weights come as (batch, length, heads, window + 1).
        """
        b, t, _ = hidden_states.shape
        w = self.one_sided_attn_window_size

        q = self.query(hidden_states).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.key(hidden_states).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        v = self.value(hidden_states).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)

        q = q / self.head_dim ** 0.5
        scores = torch.einsum("bhtd,bhtwd->bhtw", q, band(k, w))

        if attention_mask is None:
            attention_mask = torch.ones(b, t, dtype=torch.long, device=hidden_states.device)
        # positions before the start and after the end count as padding
        valid = F.pad(attention_mask.long(), (w, w), value=0).unfold(1, 2 * w + 1, 1)
        scores = scores.masked_fill(valid[:, None] == 0, torch.finfo(scores.dtype).min)

        probs = F.softmax(scores, dim=-1, dtype=torch.float32)
        # rows of padding tokens are zeroed
        probs = probs.masked_fill(attention_mask[:, None, :, None] == 0, 0.0).type_as(scores)
        probs = F.dropout(probs, p=self.dropout, training=self.training)

        out = torch.einsum("bhtw,bhtwd->bthd", probs, band(v, w)).reshape(b, t, self.embed_dim)
        out = self.output(out)
        return (out, probs.transpose(1, 2)) if output_attentions else (out,)
