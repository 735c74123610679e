"""A preconditioner of your own in PyTorch: the delta rule writes along k_write = P k, with any P that you can compute.

Keys whose directions have very different sizes are hard for the delta rule: it learns the large ones at once and the small
ones hardly ever. Three preconditioners, each a few lines, learn to correct that; their parameters are trained through the
operator's gradient. The row gdn_free is the fast engine of Gated DeltaNet with a write key of its own.
"""

import argparse

import torch

from deltanet.ops import recurrence


class Diagonal(torch.nn.Module):
    """P = diag(p), p > 0: one number for each channel."""

    def __init__(self, dim):
        super().__init__()
        self.log_p = torch.nn.Parameter(torch.zeros(dim))

    def forward(self, k):
        return self.log_p.exp() * k


class LowRank(torch.nn.Module):
    """P = I + U U^T: positive definite, so that k.P k is never negative."""

    def __init__(self, dim, rank=4):
        super().__init__()
        self.U = torch.nn.Parameter(0.1 * torch.randn(dim, rank))

    def forward(self, k):
        return k + (k @ self.U) @ self.U.T


class Kronecker(torch.nn.Module):
    """P = A A^T (x) B B^T: two small matrices for a large one."""

    def __init__(self, dim, side=4):
        super().__init__()
        self.A, self.B = (torch.nn.Parameter(torch.eye(n)) for n in (side, dim // side))

    def forward(self, k):
        blocks = k.unflatten(-1, (len(self.A), len(self.B)))
        return torch.einsum("ac,...cd,db->...ab", self.A @ self.A.T, blocks, self.B @ self.B.T).flatten(-2)


def task(batch, tokens, dim, generator):
    """Values that are a linear map of their keys, which differs from sequence to sequence; most keys lie along a few
    directions, which are no axes."""
    turn, _ = torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(1)))
    sizes = torch.logspace(0, -1, dim)
    k = torch.randn(batch, tokens, 1, dim, generator=generator) * sizes @ turn
    k = k / k.norm(dim=-1, keepdim=True)
    maps = torch.randn(batch, dim, dim, generator=generator) / dim**0.5
    return k, torch.einsum("bthk,bkv->bthv", k, maps)


def error(k, v, k_write):
    """How much of the second half of the values is not read back before it is written."""
    B, T, H, _ = k.shape
    g, beta = torch.zeros(B, T, H), torch.ones(B, T, H)
    # The write key's length is the gain: P k / (k.P k) makes every write exact.
    k_write = k_write / (k * k_write).sum(-1, keepdim=True)
    # A query reads what its own token has written, so that the next token's key is the question.
    o, _, _ = recurrence("gdn_free", k.roll(-1, 1), k, v, g=g, beta=beta, k_write=k_write, scale=1.0)
    half = slice(T // 2, T - 1)
    missed = o[:, half] - v.roll(-1, 1)[:, half]
    return missed.square().sum() / v[:, T // 2 + 1 :].square().sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=16, help="of the keys, a multiple of 4")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100, help="of Adam for each preconditioner")
    options = parser.parse_args()

    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    test = task(64, options.tokens, options.dim, generator)
    plain = error(*test, test[0]).item()
    print(f"none       error {plain:.3f}")
    for kind in (Diagonal, LowRank, Kronecker):
        preconditioner = kind(options.dim)
        optimizer = torch.optim.Adam(preconditioner.parameters(), lr=0.05)
        for _ in range(options.steps):
            k, v = task(16, options.tokens, options.dim, generator)
            loss = error(k, v, preconditioner(k))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            left = error(*test, preconditioner(test[0])).item()
        print(f"{kind.__name__:<10} error {left:.3f}, {left / plain:.2f} of it")


if __name__ == "__main__":
    main()
