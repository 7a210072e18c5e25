"""Inputs of the wrong shape, and what the error says."""

import re

import pytest
import torch

from attncheck_reference import DotProductAttention, MultiHeadAttention

GOOD = ((2, 3, 6), (2, 5, 7), (2, 5, 8))


def says(text):
    return pytest.raises(ValueError, match=f"^{re.escape(text)}$")


def call(query, key, value):
    MultiHeadAttention(6, 2, key_width=7, value_width=8)(*(torch.zeros(shape) for shape in (query, key, value)))


def test_the_shapes_that_the_others_are_held_against():
    call(*GOOD)


@pytest.mark.parametrize(("at", "name", "width"), [(0, "query", 6), (1, "key", 7), (2, "value", 8)])
@pytest.mark.parametrize(
    "wrong", [lambda n, t, w: (t, w), lambda n, t, w: (1, n, t, w), lambda n, t, w: (n, t, w - 1)], ids=["2", "4", "w"]
)
def test_not_N_T_D(at, name, width, wrong):
    shapes = list(GOOD)
    shapes[at] = wrong(*shapes[at])
    with says(f"{name}.shape={shapes[at]}: expected (N, length, {width})"):
        call(*shapes)


@pytest.mark.parametrize(("at", "name"), [(0, "query"), (1, "key"), (2, "value")])
def test_empty(at, name):
    shapes = list(GOOD)
    shapes[at] = (2, 0, shapes[at][2])
    with says(f"{name}.shape={shapes[at]}: expected no empty axis"):
        call(*shapes)


def test_empty_batch():
    with says("query.shape=(0, 3, 6): expected no empty axis"):
        call((0, 3, 6), (0, 5, 7), (0, 5, 8))


@pytest.mark.parametrize("batch", [1, 3])
def test_batch(batch):
    with says(f"key.shape=({batch}, 5, 7): expected batch 2, as the query"):
        call(GOOD[0], (batch, 5, 7), GOOD[2])
    with says(f"value.shape=({batch}, 5, 8): expected batch 2, as the query"):
        call(GOOD[0], GOOD[1], (batch, 5, 8))


@pytest.mark.parametrize("length", [1, 4])
def test_key_and_value_of_different_lengths(length):
    with says(f"key has 5 positions, value {length}: expected as many"):
        call(GOOD[0], GOOD[1], (2, length, 8))


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((2, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8)), "q.shape=(2, 3, 8): expected (2, 4, length, head width)"),
        (((2, 4, 8), (2, 2, 5, 8), (2, 2, 5, 8)), "q.shape=(2, 4, 8): expected (2, 4, length, head width)"),
        (((2, 1, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8)), "q.shape=(2, 1, 3, 8): expected (2, 4, length, head width)"),
        (((2, 4, 3, 8), (2, 1, 5, 8), (2, 2, 5, 8)), "k.shape=(2, 1, 5, 8): expected (2, 2, length, head width)"),
        (((2, 4, 3, 8), (2, 2, 5, 8), (2, 1, 5, 8)), "v.shape=(2, 1, 5, 8): expected (2, 2, length, head width)"),
        (((2, 4, 3, 8), (1, 2, 5, 8), (2, 2, 5, 8)), "k.shape=(1, 2, 5, 8): expected (2, 2, length, head width)"),
        (((2, 4, 3, 8), (2, 2, 0, 8), (2, 2, 0, 8)), "k.shape=(2, 2, 0, 8): expected no empty axis"),
        (((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 4, 8)), "k has 5 positions, v 4: expected as many"),
    ],
)
def test_the_kernel_broadcasts_nothing(shapes, text):
    with says(text):
        DotProductAttention(4, 2)(*(torch.zeros(shape) for shape in shapes))
