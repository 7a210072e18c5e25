import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class AtomAttention(nn.Module):
    """Multi-query attention between atoms for energy models.

    Runs in double precision only, since forces are differences of large numbers. One key / value head
    is shared by all query heads. The logits have a learned inverse temperature per head. The core is
    recomputed in the backward pass to save memory.
    """

    def __init__(self, n_features, n_heads, checkpointing=True):
        super().__init__()
        if n_features % n_heads:
            raise ValueError("n_features must be a multiple of n_heads")
        self.n_heads = n_heads
        self.d = n_features // n_heads
        self.checkpointing = checkpointing
        f64 = torch.float64
        self.lin_q = nn.Linear(n_features, n_features, bias=False, dtype=f64)
        self.lin_kv = nn.Linear(n_features, 2 * self.d, bias=False, dtype=f64)
        self.lin_o = nn.Linear(n_features, n_features, dtype=f64)
        self.log_beta = nn.Parameter(torch.full((n_heads,), -0.5, dtype=f64) * torch.tensor(self.d).log())

    def _core(self, q, k, v, atom_mask):
        beta = self.log_beta.exp()[:, None, None]
        logits = torch.einsum("bnhd,bmd->bhnm", q, k) * beta
        if atom_mask is not None:
            logits = logits.masked_fill(~atom_mask[:, None, None, :], -torch.inf)
        return torch.einsum("bhnm,bmd->bnhd", torch.softmax(logits, -1), v)

    def forward(self, feats, atom_mask=None):
        """feats: (batch, atoms, n_features) float64; atom_mask: (batch, atoms) bool, True = atom present"""
        if feats.dtype != torch.float64:
            raise TypeError(f"expected float64 features, got {feats.dtype}")
        if atom_mask is not None and not bool(atom_mask.any(-1).all()):
            raise ValueError("a molecule without atoms")
        b, n, _ = feats.shape
        q = self.lin_q(feats).view(b, n, self.n_heads, self.d)
        k, v = self.lin_kv(feats).split(self.d, dim=-1)
        if self.checkpointing and self.training and torch.is_grad_enabled():
            out = checkpoint(self._core, q, k, v, atom_mask, use_reentrant=False)
        else:
            out = self._core(q, k, v, atom_mask)
        return self.lin_o(out.flatten(2))
