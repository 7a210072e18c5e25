"""Masks that would be misread, and what the error says. N=2, h=4, T=3, S=5."""

import pytest
import torch

from attncheck_reference import MultiHeadAttention


def refused(allowed, error=ValueError):
    m, query, memory = MultiHeadAttention(8, 4), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    with pytest.raises(error) as caught:
        m(query, memory, allowed=allowed)
    return str(caught.value)


def ones(*shape):
    return torch.ones(shape, dtype=torch.bool)


@pytest.mark.parametrize(("shape", "ndim"), [((5,), 1), ((2, 3, 5), 3), ((4, 3, 5), 3), ((1, 2, 4, 3, 5), 5), ((), 0)])
def test_neither_two_nor_four_axes(shape, ndim):
    assert refused(ones(*shape)) == f"allowed.ndim={ndim}: expected (T,S) or four axes that broadcast to (N,h,T,S)"


@pytest.mark.parametrize("shape", [(3, 1, 1, 5), (2, 3, 3, 5), (2, 4, 5, 3), (2, 1, 1, 3), (5, 1, 1, 2)], ids=str)
def test_four_axes_that_do_not_broadcast(shape):
    assert refused(ones(*shape)) == f"allowed.shape={shape}: expected to broadcast to (N,h,T,S)=(2, 4, 3, 5)"


@pytest.mark.parametrize("shape", [(5, 3), (1, 5), (3, 1), (4, 5)], ids=str)
def test_two_axes_that_are_not_queries_and_keys(shape):
    assert refused(ones(*shape)) == f"allowed.shape={shape}: expected (T,S)=(3, 5)"


def test_a_padding_mask_is_told_how_to_be_written():
    allowed = ones(2, 5)
    hint = "a padding mask (N,S) is passed as allowed[:, None, None, :]"
    assert refused(allowed) == f"allowed.shape=(2, 5): expected (T,S)=(3, 5); {hint}"
    m, query, memory = MultiHeadAttention(8, 4), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    assert m(query, memory, allowed=allowed[:, None, None, :])[0].shape == (2, 3, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8], ids=str)
def test_not_bool(dtype):
    text = refused(torch.ones(3, 5, dtype=dtype), TypeError)
    assert text == f"allowed.dtype={dtype}: expected torch.bool, True = may attend; floats go to bias="


def test_on_another_device():
    text = refused(torch.ones(3, 5, dtype=torch.bool, device="meta"))
    assert text == "allowed.device=meta: expected cpu, as the query; use allowed.to(cpu)"
