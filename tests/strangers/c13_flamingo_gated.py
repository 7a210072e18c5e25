import torch
from torch import nn, einsum


# gated cross attention of text to images: a text token sees the image that came last before it

class GatedCrossAttention(nn.Module):
    def __init__(
        self,
        *,
        dim,
        dim_visual=None,
        dim_head=64,
        heads=8,
        gate_init=0.,
    ):
        super().__init__()
        self.scale = dim_head ** -0.5
        self.heads = heads
        inner_dim = dim_head * heads
        dim_visual = dim_visual if dim_visual is not None else dim

        self.norm = nn.LayerNorm(dim)

        self.to_q = nn.Linear(dim, inner_dim, bias=False)
        self.to_kv = nn.Linear(dim_visual, inner_dim * 2, bias=False)
        self.to_out = nn.Linear(inner_dim, dim, bias=False)

        # starts closed, so that the language model is unchanged at first
        self.attn_gate = nn.Parameter(torch.tensor([float(gate_init)]))

    def forward(self, x, media, media_locations=None):
        """
        x: (b, t, dim) text features
        media: (b, m, n, dim_visual), n latents for each of m images; (b, n, dim_visual) is taken for one image
        media_locations: (b, t) bool, True at the tokens standing for an image; None lets all text see all media
        """
        if media.ndim == 3:
            media = media.unsqueeze(1)
        b, m, n, _ = media.shape
        h = self.heads

        residual = x
        x = self.norm(x)

        q = self.to_q(x)
        k, v = self.to_kv(media.flatten(1, 2)).chunk(2, dim=-1)
        q, k, v = (t.reshape(b, -1, h, t.shape[-1] // h).transpose(1, 2) for t in (q, k, v))

        q = q * self.scale
        sim = einsum('b h i d, b h j d -> b h i j', q, k)

        if media_locations is not None:
            # number the text by the images so far, and compare with the number of each image
            text_time = media_locations.long().cumsum(dim=1)
            media_time = torch.arange(m, device=x.device) + 1
            media_time = media_time.repeat_interleave(n)
            text_to_media = text_time[:, None, :, None] == media_time[None, None, None, :]
            sim = sim.masked_fill(~text_to_media, -torch.finfo(sim.dtype).max)

        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        attn = sim.softmax(dim=-1)

        if media_locations is not None:
            # text without an image of its own looks at nothing
            without_media = ~text_to_media.any(dim=-1, keepdim=True)
            attn = attn.masked_fill(without_media, 0.)

        out = einsum('b h i j, b h j d -> b h i d', attn, v)
        out = out.transpose(1, 2).reshape(b, -1, h * v.shape[-1])
        out = self.to_out(out)

        return out * self.attn_gate.tanh() + residual
