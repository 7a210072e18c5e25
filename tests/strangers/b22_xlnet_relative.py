import torch
from torch import nn


class XLNetConfig:
    """d_model / n_head / d_head as in the Transformer-XL code base."""

    def __init__(self, d_model=256, n_head=4, dropout=0.1, layer_norm_eps=1e-12, initializer_range=0.02, **kwargs):
        if d_model % n_head != 0:
            raise ValueError(f"'d_model % n_head' ({d_model % n_head}) should be 0")
        if "d_head" in kwargs and kwargs["d_head"] != d_model // n_head:
            raise ValueError("d_head should be d_model // n_head")
        self.d_model = d_model
        self.n_head = n_head
        self.d_head = d_model // n_head
        self.dropout = dropout
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range


def relative_positional_encoding(qlen, klen, d_model, device=None):
    """Sinusoids for the distances klen .. -qlen + 1, shape (klen + qlen, d_model)."""
    freq_seq = torch.arange(0, d_model, 2.0, device=device)
    inv_freq = 1 / torch.pow(10000, freq_seq / d_model)
    pos_seq = torch.arange(klen, -qlen, -1.0, device=device)
    sinusoid_inp = torch.einsum("i,d->id", pos_seq, inv_freq)
    return torch.cat([sinusoid_inp.sin(), sinusoid_inp.cos()], dim=-1)


class XLNetRelativeAttention(nn.Module):
    """Content and position terms with their own query biases; residual and norm included."""

    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.d_head = config.d_head
        self.d_model = config.d_model
        self.scale = 1 / (config.d_head**0.5)

        shape = (config.d_model, self.n_head, self.d_head)
        self.q = nn.Parameter(torch.empty(shape))
        self.k = nn.Parameter(torch.empty(shape))
        self.v = nn.Parameter(torch.empty(shape))
        self.o = nn.Parameter(torch.empty(shape))
        self.r = nn.Parameter(torch.empty(shape))
        self.r_r_bias = nn.Parameter(torch.empty(self.n_head, self.d_head))
        self.r_w_bias = nn.Parameter(torch.empty(self.n_head, self.d_head))
        for p in self.parameters():
            nn.init.normal_(p, mean=0.0, std=config.initializer_range)

        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    @staticmethod
    def rel_shift(x, klen):
        # (b, n, i, i + klen) -> (b, n, i, klen): row i moves left by qlen - i
        b, n, i, j = x.shape
        x = x.reshape(b, n, j, i)[:, :, 1:, :]
        return x.reshape(b, n, i, j - 1)[..., :klen]

    def rel_attn_core(self, q_head, k_head, v_head, k_head_r, attn_mask=None, head_mask=None):
        # content based
        ac = torch.einsum("ibnd,jbnd->bnij", q_head + self.r_w_bias, k_head)
        # position based
        bd = torch.einsum("ibnd,jnd->bnij", q_head + self.r_r_bias, k_head_r)
        bd = self.rel_shift(bd, klen=ac.shape[3])

        attn_score = (ac + bd) * self.scale
        if attn_mask is not None:
            # (qlen, klen, bsz or 1, 1), one means "cannot see"
            attn_mask = attn_mask.permute(2, 3, 0, 1).bool()
            attn_score = attn_score.masked_fill(attn_mask, torch.finfo(attn_score.dtype).min)

        attn_prob = nn.functional.softmax(attn_score, dim=3)
        attn_prob = self.dropout(attn_prob)
        if head_mask is not None:
            attn_prob = attn_prob * head_mask
        return torch.einsum("bnij,jbnd->ibnd", attn_prob, v_head), attn_prob

    def forward(self, h, attn_mask=None, r=None, mems=None, head_mask=None, output_attentions=False):
        """h (qlen, bsz, d_model); mems (mlen, bsz, d_model) are states of the segment before."""
        cat = torch.cat([mems, h], dim=0) if mems is not None else h
        if r is None:
            r = relative_positional_encoding(h.shape[0], cat.shape[0], self.d_model, h.device).to(h.dtype)

        q_head_h = torch.einsum("ibh,hnd->ibnd", h, self.q)
        k_head_h = torch.einsum("ibh,hnd->ibnd", cat, self.k)
        v_head_h = torch.einsum("ibh,hnd->ibnd", cat, self.v)
        k_head_r = torch.einsum("jh,hnd->jnd", r, self.r)

        attn_vec, attn_prob = self.rel_attn_core(q_head_h, k_head_h, v_head_h, k_head_r, attn_mask, head_mask)

        attn_out = torch.einsum("ibnd,hnd->ibh", attn_vec, self.o)
        output = self.layer_norm(self.dropout(attn_out) + h)
        return (output, attn_prob) if output_attentions else (output,)
