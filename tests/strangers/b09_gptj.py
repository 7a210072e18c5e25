import torch
from torch import nn


class GPTJConfig:
    model_type = "gptj"
    attribute_map = {"hidden_size": "n_embd", "num_attention_heads": "n_head"}

    def __init__(self, vocab_size=50400, n_positions=256, n_embd=512, n_layer=28, n_head=8,
                 rotary_dim=32, attn_pdrop=0.0, resid_pdrop=0.0, **kwargs):
        self.vocab_size = vocab_size
        self.n_positions = n_positions
        self.n_embd = n_embd
        self.n_layer = n_layer
        self.n_head = n_head
        self.rotary_dim = rotary_dim
        self.attn_pdrop = attn_pdrop
        self.resid_pdrop = resid_pdrop
        for k, v in kwargs.items():
            setattr(self, k, v)

    def __getattr__(self, key):
        target = type(self).attribute_map.get(key)
        if target is None:
            raise AttributeError(key)
        return getattr(self, target)


def create_sinusoidal_positions(num_pos: int, dim: int) -> torch.Tensor:
    inv_freq = 1.0 / (10000 ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))
    sinusoid_inp = torch.einsum("i , j -> i j", torch.arange(num_pos).float(), inv_freq)
    return torch.cat((torch.sin(sinusoid_inp), torch.cos(sinusoid_inp)), dim=1)


def rotate_every_two(x):
    odd = x[..., 1::2]
    even = x[..., ::2]
    return torch.stack((-odd, even), dim=-1).flatten(-2)


def apply_rotary_pos_emb(tensor, sin, cos):
    # sin, cos: (bs, len, rotary_dim / 2), every entry serves two neighbouring channels
    sin = sin[:, :, None, :].repeat_interleave(2, dim=-1)
    cos = cos[:, :, None, :].repeat_interleave(2, dim=-1)
    return tensor * cos + rotate_every_two(tensor) * sin


class GPTJAttention(nn.Module):
    def __init__(self, config, layer_idx=None):
        super().__init__()
        max_positions = config.n_positions
        self.layer_idx = layer_idx
        self.embed_dim = config.hidden_size
        self.num_attention_heads = config.num_attention_heads
        self.head_dim = self.embed_dim // self.num_attention_heads
        self.scale_attn = torch.sqrt(torch.tensor(self.head_dim, dtype=torch.float32)).item()
        self.rotary_dim = config.rotary_dim

        self.register_buffer(
            "bias",
            torch.tril(torch.ones((max_positions, max_positions), dtype=torch.bool))[None, None],
            persistent=False,
        )
        self.register_buffer(
            "embed_positions", create_sinusoidal_positions(max_positions, self.rotary_dim), persistent=False
        )
        self.attn_dropout = nn.Dropout(config.attn_pdrop)
        self.resid_dropout = nn.Dropout(config.resid_pdrop)
        self.k_proj = nn.Linear(self.embed_dim, self.embed_dim, bias=False)
        self.v_proj = nn.Linear(self.embed_dim, self.embed_dim, bias=False)
        self.q_proj = nn.Linear(self.embed_dim, self.embed_dim, bias=False)
        self.out_proj = nn.Linear(self.embed_dim, self.embed_dim, bias=False)

    def _split_heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.num_attention_heads, self.head_dim)

    def _attn(self, query, key, value, attention_mask=None):
        query_length, key_length = query.size(-2), key.size(-2)
        causal_mask = self.bias[:, :, key_length - query_length : key_length, :key_length]

        # logits in fp32, this family overflows otherwise
        w = torch.matmul(query.float(), key.float().transpose(-1, -2)) / self.scale_attn
        if attention_mask is not None:
            w = w + attention_mask
        w = w.masked_fill(~causal_mask, torch.finfo(w.dtype).min)
        w = nn.functional.softmax(w, dim=-1).to(value.dtype)
        w = self.attn_dropout(w)
        return torch.matmul(w, value), w

    def forward(self, hidden_states, layer_past=None, attention_mask=None, position_ids=None,
                use_cache=False, output_attentions=False):
        query = self._split_heads(self.q_proj(hidden_states))
        key = self._split_heads(self.k_proj(hidden_states))
        value = self._split_heads(self.v_proj(hidden_states)).transpose(1, 2)

        if position_ids is None:
            start = 0 if layer_past is None else layer_past[0].size(-2)
            position_ids = torch.arange(start, start + query.size(1), device=query.device)[None]
        sin, cos = self.embed_positions[position_ids].to(query.dtype).chunk(2, dim=-1)

        r = self.rotary_dim
        key = torch.cat([apply_rotary_pos_emb(key[..., :r], sin, cos), key[..., r:]], dim=-1).transpose(1, 2)
        query = torch.cat([apply_rotary_pos_emb(query[..., :r], sin, cos), query[..., r:]], dim=-1).transpose(1, 2)

        if layer_past is not None:
            key = torch.cat((layer_past[0], key), dim=-2)
            value = torch.cat((layer_past[1], value), dim=-2)
        present = (key, value) if use_cache else None

        attn_output, attn_weights = self._attn(query, key, value, attention_mask)
        attn_output = attn_output.transpose(1, 2).flatten(2)
        attn_output = self.resid_dropout(self.out_proj(attn_output))

        outputs = (attn_output, present)
        return outputs + (attn_weights,) if output_attentions else outputs
