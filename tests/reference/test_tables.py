"""Learned biases by distance: T5's buckets at distances worked out by hand, offsets, and tables of places."""

import math

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import BucketBias, DotProductAttention, OffsetBias, TableBias


def buckets(offsets, *args, **init):
    return BucketBias(*args, heads=1, **init).bucket(torch.tensor(offsets)).tolist()


def test_buckets_of_t5_before_the_query():
    """32 buckets, 16 a side: 0 .. 7 alone, then 8 ranges up to 128, each wider by 16^(1/8) = sqrt(2)."""
    distances = [0, 1, 7, 8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 5000]
    expected = [0, 1, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15]
    assert buckets([-n for n in distances], 32) == expected


def test_keys_after_the_query_have_buckets_of_their_own():
    assert buckets([0, 1, 8, 16, 5000], 32) == [0, 17, 24, 26, 31]


def test_one_sided_buckets():
    """8 buckets: 0 .. 3 alone, then 4 ranges up to 64, each twice as wide: from 4, 8, 16, 32."""
    offsets = [5, 1, 0, -1, -3, -4, -7, -8, -15, -16, -31, -32, -64, -900]
    expected = [0, 0, 0, 1, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7]
    assert buckets(offsets, 8, bidirectional=False, max_distance=64) == expected


@pytest.mark.parametrize(("B", "farthest"), [(32, 128), (8, 20), (32, 64), (64, 256), (10, 40)])
def test_buckets_by_the_logarithm(B, farthest):
    """exact + floor(log(n / exact) / log(farthest / exact) * ranges), where that is no whole number."""
    side, exact = B // 2, B // 4
    for n in range(exact + 1, 2 * farthest):
        at = math.log(n / exact) / math.log(farthest / exact) * (side - exact)
        if abs(at - round(at)) > 1e-6:
            assert buckets([-n, n], B, max_distance=farthest) == [
                min(exact + int(at), side - 1),
                side + min(exact + int(at), side - 1),
            ]


def test_the_bias_of_a_bucket_is_its_row_of_the_table():
    m = BucketBias(4, 3, max_distance=5)
    assert m(2, 3).shape == (3, 2, 3)
    assert torch.equal(m(2, 3)[:, 0, 2], m.table[3])  # one key after: the second bucket of the second half
    assert torch.equal(m(2, 3)[:, 1, 0], m.table[1])
    assert torch.equal(m(2, 3)[:, 1, 1], m.table[0])


@pytest.mark.parametrize("reverse", [False, True])
def test_offsets_by_hand(reverse):
    m = OffsetBias(3, 1, reverse)
    with torch.no_grad():
        m.table.copy_(torch.arange(-2.0, 3.0)[:, None])  # the offset itself
    expected = torch.tensor([[0.0, 1, 2], [-1, 0, 1]])
    assert torch.equal(m(2, 3)[0], -expected if reverse else expected)


def test_far_offsets_are_clipped_or_refused():
    clipped, strict = OffsetBias(2, 2, clamp="clip"), OffsetBias(2, 2)
    assert torch.equal(clipped(1, 4)[:, 0], clipped.table[[1, 2, 2, 2]].T)
    assert torch.equal(clipped(4, 1)[:, :, 0], clipped.table[[1, 0, 0, 0]].T)
    assert strict(2, 2).shape == (2, 2, 2)
    for T, S in ((3, 2), (2, 3)):
        with pytest.raises(ValueError, match=f"^{T} queries and {S} keys: expected at most 2 of each"):
            strict(T, S)


def test_a_table_of_places():
    m = TableBias(4, 3)
    assert torch.equal(m(2, 3), m.table[:, :2, :3])
    with pytest.raises(ValueError, match=r"^2 queries and 5 keys: expected at most 4 of each"):
        m(2, 5)


def test_an_index_shares_entries_as_in_a_window_of_swin():
    """A window of 2 x 2: the offsets in rows and columns are -1, 0, 1 each, so that 16 pairs share 9 entries."""
    places = [(row, column) for row in range(2) for column in range(2)]
    index = torch.tensor([[(a[0] - b[0] + 1) * 3 + a[1] - b[1] + 1 for b in places] for a in places])
    m = TableBias(4, 2, index)
    assert m.table.shape == (9, 2)
    for t in range(4):
        for s in range(4):
            assert torch.equal(m(4, 4)[:, t, s], m.table[index[t, s]])
    assert TableBias(4, 2, index, entries=12).table.shape == (12, 2)
    assert m.double().index.dtype == torch.long


@pytest.mark.parametrize(
    "bias", [BucketBias(8, 4, max_distance=20), OffsetBias(5, 4), TableBias(5, 4), TableBias(5, 1)], ids=str
)
def test_the_kernel_adds_it_and_it_learns(bias):
    q, k, v = torch.randn(2, 4, 3, 6), torch.randn(2, 2, 5, 6), torch.randn(2, 2, 5, 6)
    m, plain = DotProductAttention(4, 2, position_bias=bias), DotProductAttention(4, 2)
    assert_close(m(q, k, v)[0], plain(q, k, v, bias=bias(3, 5))[0])
    assert not torch.allclose(m(q, k, v)[0], plain(q, k, v)[0])
    m(q, k, v)[0].square().sum().backward()
    assert bias.table.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BucketBias(9, 2), "buckets=9: expected at least two a side, and as many on both"),
        (lambda: BucketBias(2, 2), "buckets=2: expected at least two a side, and as many on both"),
        (lambda: BucketBias(32, 2, max_distance=8), "max_distance=8: expected more than the 8 that stand alone"),
        (lambda: OffsetBias(3, 2, clamp="cut"), "clamp='cut': expected one of none, clip"),
        (lambda: TableBias(3, 2, torch.zeros(2, 3)), r"index.shape=\(2, 3\): expected \(3, 3\)"),
    ],
)
def test_refused(make, says):
    with pytest.raises(ValueError, match=f"^{says}$"):
        make()
