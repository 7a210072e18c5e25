"""Setting dropout of a built module: every rate that there is, nothing else, and the printed code does the same."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck.dropout import SET_DROPOUT, set_dropout


class Rates(nn.Module):
    """All the ways in which a rate is kept, and things that only look like one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Dropout1d(0.2))
        self.off = nn.Dropout(0)
        self.mha = nn.MultiheadAttention(4, 2, dropout=0.3)
        self.attn_drop, self.p_dropout = 0.0, 0.4
        self.p = 0.9
        self.dropped = 7
        self.use_dropout = True
        self.drop_path = None
        self.drop_limit = 2.5


def rates(module: Any) -> list[Any]:
    return [module.layer[1].p, module.layer[2].p, module.off.p, module.mha.dropout, module.attn_drop, module.p_dropout]


def others(module: Any) -> list[Any]:
    return [module.p, module.dropped, module.use_dropout, module.drop_path, module.drop_limit]


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_every_rate_is_set_and_nothing_else(p: float) -> None:
    module = Rates()
    kept = others(module)
    assert set_dropout(module, p) == 6
    assert rates(module) == [p] * 6
    assert others(module) == kept


def test_the_code_of_a_reproduction_does_the_same() -> None:
    target, wanted = Rates(), Rates()
    set_dropout(wanted, 0.5)
    exec(SET_DROPOUT.format(p=0.5), {"torch": torch, "target": target})
    assert rates(target) == rates(wanted)
    assert others(target) == others(wanted)


def test_nothing_is_found_where_there_is_none() -> None:
    assert set_dropout(nn.Linear(2, 2), 0.5) == 0
    assert set_dropout(None, 0.5) == 0


@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout2d, nn.AlphaDropout])
def test_the_module_drops_afterwards(kind: Any) -> None:
    module = nn.Sequential(kind(0.0))
    x: Tensor = torch.ones(2, 64, 3, 3)
    torch.manual_seed(0)
    assert torch.equal(module(x), x)
    set_dropout(module, 0.5)
    assert not torch.equal(module(x), x)
    assert torch.equal(module.eval()(x), x)
