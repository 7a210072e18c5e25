import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def stack_heads(t, h):
    # (b, n, d) -> (h*b, n, d/h)
    return torch.cat(torch.chunk(t, h, dim=2), dim=0)


def unstack_heads(t, h):
    return torch.cat(torch.chunk(t, h, dim=0), dim=2)


class MAB(nn.Module):
    """ X looks at Y: attention, residual of the projected X, then a row-wise relu layer """

    def __init__(self, dim_X, dim_Y, dim, num_heads=4, ln=False):
        super().__init__()
        self.num_heads = num_heads
        self.dim = dim
        self.fc_q = nn.Linear(dim_X, dim)
        self.fc_k = nn.Linear(dim_Y, dim)
        self.fc_v = nn.Linear(dim_Y, dim)
        self.fc_o = nn.Linear(dim, dim)
        self.ln1 = nn.LayerNorm(dim) if ln else nn.Identity()
        self.ln2 = nn.LayerNorm(dim) if ln else nn.Identity()

    def forward(self, X, Y):
        h = self.num_heads
        Q, K, V = self.fc_q(X), self.fc_k(Y), self.fc_v(Y)
        Qh, Kh, Vh = stack_heads(Q, h), stack_heads(K, h), stack_heads(V, h)

        # the paper scales by the full width, not by that of a head
        A = torch.bmm(Qh, Kh.transpose(1, 2)) / math.sqrt(self.dim)
        A = torch.softmax(A, dim=-1)
        H = self.ln1(Q + unstack_heads(torch.bmm(A, Vh), h))
        return self.ln2(H + F.relu(self.fc_o(H)))


class SAB(nn.Module):
    """ every element of the set looks at every other """

    def __init__(self, dim_in, dim_out, num_heads=4, ln=False):
        super().__init__()
        self.mab = MAB(dim_in, dim_in, dim_out, num_heads, ln)

    def forward(self, X):
        return self.mab(X, X)


class ISAB(nn.Module):
    """ the same by way of num_inds inducing points """

    def __init__(self, dim_in, dim_out, num_heads=4, num_inds=16, ln=False):
        super().__init__()
        self.inducing = nn.Parameter(torch.empty(1, num_inds, dim_out))
        nn.init.xavier_uniform_(self.inducing)
        self.mab_in = MAB(dim_out, dim_in, dim_out, num_heads, ln)
        self.mab_out = MAB(dim_in, dim_out, dim_out, num_heads, ln)

    def forward(self, X):
        H = self.mab_in(self.inducing.expand(X.shape[0], -1, -1), X)
        return self.mab_out(X, H)
