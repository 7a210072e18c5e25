"""ALiBi: the slopes of the paper, and biases that fall with distance."""

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import Alibi, DotProductAttention, MultiHeadAttention, alibi_slopes


def test_slopes_of_powers_of_two():
    assert alibi_slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(4).tolist() == [1 / 4, 1 / 16, 1 / 64, 1 / 256]
    assert alibi_slopes(1).tolist() == [1 / 256]
    assert_close(alibi_slopes(16), torch.tensor([2 ** (-i / 2) for i in range(1, 17)]).double())


def test_slopes_of_other_numbers_are_filled_up_with_every_other_one_of_the_next_power():
    more = torch.tensor([2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]).double()
    assert_close(alibi_slopes(12), torch.cat((alibi_slopes(8), more)))
    assert_close(alibi_slopes(3), torch.tensor([1 / 16, 1 / 256, 1 / 4]).double())


def test_biases_by_hand():
    slopes = torch.tensor([1.0, 0.5])
    symmetric = [[[0, -1, -2], [-1, 0, -1]], [[0, -0.5, -1], [-0.5, 0, -0.5]]]
    signed = [[[0, 1, 2], [-1, 0, 1]], [[0, 0.5, 1], [-0.5, 0, 0.5]]]
    assert Alibi(2, slopes=slopes)(2, 3).tolist() == symmetric
    assert Alibi(2, "signed", slopes)(2, 3).tolist() == signed


def test_both_forms_are_one_where_keys_are_not_after_queries():
    q, k, v = torch.randn(3, 2, 4, 5, 6).double()
    symmetric, signed = (
        DotProductAttention(4, causal=causal, position_bias=Alibi(4, form))(q, k, v)[0]
        for form, causal in (("symmetric", True), ("signed", True))
    )
    assert_close(symmetric, signed)
    assert not torch.allclose(*(DotProductAttention(4, position_bias=Alibi(4, f))(q, k, v)[0] for f in FORMS))


FORMS = ("symmetric", "signed")


@pytest.mark.parametrize("form", FORMS)
def test_it_is_a_bias_after_scale_and_cap(form):
    m = MultiHeadAttention(8, 2, softcap=2.0, position_bias=Alibi(2, form)).double()
    plain = MultiHeadAttention(8, 2, softcap=2.0).double()
    plain.load_state_dict(m.state_dict(), strict=False)
    query, memory = torch.randn(2, 4, 8).double(), torch.randn(2, 5, 8).double()
    expected = plain(query, memory, bias=m.position_bias(4, 5), need_weights=True)
    for found, want in zip(m(query, memory, need_weights=True), expected, strict=True):
        assert_close(found, want)
    assert not torch.allclose(plain(query, memory)[0], expected[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_the_dtype_is_that_of_the_scores(dtype):
    m = MultiHeadAttention(12, 6, position_bias="alibi").to(dtype)
    output, weights = m(torch.randn(1, 3, 12, dtype=dtype), need_weights=True)
    assert (output.dtype, weights.dtype) == (dtype, dtype)


def test_slopes_are_saved_and_do_not_learn():
    m = MultiHeadAttention(8, 2, position_bias=Alibi(2, slopes=torch.tensor([1.0, 2.0])))
    assert m.state_dict()["position_bias.slopes"].tolist() == [1, 2]
    assert not [name for name, _ in m.named_parameters() if "slopes" in name]


def test_refused():
    with pytest.raises(ValueError, match=r"^form='both': expected one of symmetric, signed$"):
        Alibi(2, "both")
    with pytest.raises(ValueError, match=r"^slopes.shape=\(3,\): expected \(2,\)$"):
        Alibi(2, slopes=torch.ones(3))
    with pytest.raises(ValueError, match=r"^position_bias='alibis': expected one of alibi, buckets$"):
        MultiHeadAttention(8, 2, position_bias="alibis")
