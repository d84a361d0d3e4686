"""Runs what PyTorch does by cuFFT, cuSOLVER and cuSPARSE, a function each: `factorise.py FUNCTION`.
None of them may fail on a device that computes nothing."""

import sys

import torch
from torch import nn
from torch.nn import functional

GPU = {"device": "cuda"}
REAL_AND_COMPLEX = (torch.float, torch.double, torch.cfloat, torch.cdouble)


def matrices(*shape, dtype=torch.float):
    return torch.randn(*shape, dtype=dtype, requires_grad=True, **GPU)


def learn(*results):
    sum(one.abs().sum() for one in results if one.is_floating_point() or one.is_complex()).backward()


def learn_vectors(*results):
    """Skips complex vectors: PyTorch checks by values if the loss depends on their phases."""
    if not any(one.is_complex() for one in results):
        learn(*results)


def symmetric(matrix):
    return matrix @ matrix.mH + torch.eye(matrix.shape[-1], dtype=matrix.dtype, **GPU)


def one_transform():
    """Takes a workspace of 8 complex numbers for each one transformed."""
    values = torch.zeros(1 << 20, dtype=torch.cfloat, **GPU)
    torch.cuda.reset_peak_memory_stats()
    transformed = torch.fft.fft(values)
    print("workspace", torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated())
    del transformed


def transforms():
    for shape in ((3, 100), (2, 17, 32), (2, 3, 8, 9, 10)):
        dims = tuple(range(1, len(shape)))
        real = matrices(*shape)
        learn(torch.fft.rfftn(real, dim=dims))
        learn(torch.fft.irfftn(torch.fft.rfftn(real, dim=dims), s=shape[1:], dim=dims))
        learn(torch.fft.fftn(matrices(*shape, dtype=torch.cdouble), dim=dims))
        torch.fft.fftn(torch.zeros(64, 64, dtype=torch.half, **GPU))
    learn(torch.fft.hfft(matrices(5, 33, dtype=torch.cfloat)))
    learn(torch.fft.fftn(matrices(2, 2, 4, 4, 4, 4, dtype=torch.cfloat)))
    sound = matrices(2, 16000)
    window = torch.hann_window(400, **GPU)
    spectrum = torch.stft(sound, 400, 160, window=window, return_complex=True)
    torch.istft(spectrum, 400, 160, window=window)
    learn(spectrum)


class Spectral(nn.Module):
    """A layer of a Fourier neural operator."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8, 8, 5, 5, dtype=torch.cfloat))

    def forward(self, values):
        modes = torch.fft.rfft2(values)
        kept = torch.einsum("bixy,ioxy->boxy", modes[..., :5, :5], self.weight)
        rest = (0, modes.shape[-1] - 5, 0, modes.shape[-2] - 5)
        return torch.fft.irfft2(functional.pad(kept, rest), s=values.shape[-2:])


def operator():
    layer = Spectral().cuda()
    optimizer = torch.optim.Adam(layer.parameters())
    for _ in range(3):
        layer(torch.randn(4, 8, 30, 30, **GPU)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def dense():
    linalg = torch.linalg
    for dtype in REAL_AND_COMPLEX:
        for shape in ((40, 40), (3, 40, 40), (12, 40, 40), (600, 20, 20)):
            square = matrices(*shape, dtype=dtype)
            wide = matrices(*shape[:-1], 60, dtype=dtype)
            whole = symmetric(square)
            learn(linalg.cholesky(whole), linalg.inv(square), linalg.det(square))
            learn(linalg.solve(square, wide), linalg.slogdet(square).logabsdet)
            learn(torch.cholesky_inverse(linalg.cholesky(symmetric(square))))
            learn(torch.cholesky_solve(wide, linalg.cholesky(symmetric(square))))
            learn_vectors(*linalg.eigh(symmetric(square)))
            learn(linalg.eigvalsh(symmetric(square)))
            learn_vectors(*linalg.svd(square, full_matrices=False))
            learn(linalg.svdvals(wide))
            for driver in ("gesvd", "gesvdj", "gesvda"):
                linalg.svd(wide.detach().mT, full_matrices=driver == "gesvd", driver=driver)
            learn(*linalg.qr(wide), *linalg.qr(wide.mT))
            linalg.qr(wide.detach(), mode="complete")
            learn_vectors(linalg.pinv(square), linalg.matrix_norm(wide, "nuc"))
            learn(*linalg.lu(square), linalg.lu_solve(*linalg.lu_factor(square), wide))
            learn(linalg.solve_triangular(square.triu(), wide, upper=True))
            linalg.lstsq(wide.detach().mT, torch.randn(*shape[:-2], 60, 5, dtype=dtype, **GPU))
            linalg.eig(square.detach())
            linalg.matrix_rank(whole)
            factors = linalg.ldl_factor(symmetric(square).detach())
            linalg.ldl_solve(*factors, wide.detach())
            torch.ormqr(*torch.geqrf(square.detach()), wide.detach())
            linalg.householder_product(*torch.geqrf(square.detach()))


def small_and_large():
    """Sizes at which PyTorch takes other routines."""
    for size in (2, 16, 32, 33, 64, 512, 513, 600):
        for batch in ((), (2,), (9,)):
            square = torch.randn(*batch, size, size, **GPU)
            torch.linalg.eigh(symmetric(square))
            torch.linalg.svd(square)
            torch.linalg.cholesky(symmetric(square))
            torch.linalg.inv(square)
            torch.linalg.qr(square)


def success():
    """Checks that a factorisation reports success, and no decision uses an unknown value."""
    square = torch.randn(30, 30, **GPU)
    for info in (torch.linalg.cholesky_ex(square).info, torch.linalg.inv_ex(square).info,
                 torch.linalg.lu_factor_ex(square).info, torch.linalg.solve_ex(square, square).info,
                 torch.linalg.ldl_factor_ex(square).info):
        if info.any():
            raise RuntimeError("it has failed")
    if int(torch.linalg.cholesky_ex(square).info) > 0:
        raise RuntimeError("it has failed")
    print("succeeded")


def adjacency(size, layout=torch.sparse_coo):
    """Makes a ring, whose edges the host gave."""
    nodes = torch.arange(size)
    edges = torch.stack([nodes, (nodes + 1) % size])
    ring = torch.sparse_coo_tensor(edges, torch.ones(size), (size, size)).coalesce()
    return (ring if layout == torch.sparse_coo else ring.to_sparse_csr()).cuda()


def sparse():
    for layout in (torch.sparse_coo, torch.sparse_csr):
        graph, features = adjacency(1000, layout), matrices(1000, 16)
        learn(torch.sparse.mm(graph, features))
        graph @ features.detach()[:, 0]
        torch.addmm(torch.zeros(1000, 16, **GPU), graph, features.detach())
    compressed = adjacency(1000, torch.sparse_csr)
    torch.sparse.sampled_addmm(compressed, torch.zeros(1000, 8, **GPU), torch.zeros(8, 1000, **GPU))
    torch.triangular_solve(torch.zeros(1000, 4, **GPU), compressed)
    torch.triangular_solve(torch.zeros(1000, 1, **GPU), compressed)
    compressed.add(compressed)
    blocks = torch.randn(64, 64, **GPU).to_sparse_bsr(16)
    blocks @ torch.zeros(64, 8, **GPU)
    torch.triangular_solve(torch.zeros(64, 4, **GPU), blocks)


def product():
    """Multiplies a ring's matrix by itself: in two steps along a ring each node reaches one."""
    ring = adjacency(1000, torch.sparse_csr)
    print("elements", torch.sparse.mm(ring, ring).values().numel())


def unknown_product():
    edges = torch.randint(1000, (2, 5000), **GPU)
    graph = torch.sparse_coo_tensor(edges, torch.ones(5000, **GPU), (1000, 1000))
    torch.sparse.mm(graph, graph)


def optimizers():
    """Transforms a gradient as GaLore, Shampoo and SOAP do."""
    weight = nn.Parameter(torch.randn(1024, 2048, **GPU))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    for _ in range(3):
        (weight.square().sum()).backward()
        gradient = weight.grad
        left, _, _ = torch.linalg.svd(gradient, full_matrices=False)
        values, vectors = torch.linalg.eigh(gradient @ gradient.T)
        basis, _ = torch.linalg.qr(gradient @ gradient.T @ vectors)
        root = vectors @ torch.diag(values.clamp(min=1e-12) ** -0.25) @ vectors.T
        weight.grad = basis @ (root @ (left[:, :64] @ (left[:, :64].T @ gradient)))
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
