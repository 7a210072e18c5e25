"""torch.nn.MultiheadAttention: its known deviation is expected strictly, its layouts and widths are what they say."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck import wiring
from attncheck.engine import Result, Target, run
from attncheck.registry import checks_of
from attncheck.settings import Request
from attncheck.subject import Case, subject_of
from attncheck_adapters import torch_mha
from attncheck_adapters.torch_mha import TorchMHA

FULLY_MASKED = next(check for check in checks_of("attention") if check.id == "mask.fully-masked")


def prepared(obj: Any = None, **options: Any) -> Target:
    target = wiring.prepare(Request("torch.nn.MultiheadAttention" if obj is None else "m.Wrapper", **options), [], obj)
    assert target.error is None, target.error
    return target


def of(target: Target, profile: str = "default") -> Result:
    return run(FULLY_MASKED, target, profile)


@pytest.mark.parametrize("profile", ["quick", "default"])
def test_the_known_deviation_is_expected(profile: str) -> None:
    result = of(prepared(), profile)
    assert result.status == "xfailed"
    assert "issues/160064" in str(result.reason)


def test_an_instance_is_the_library_too() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(24, 4, batch_first=True)
    kept = {k: v.clone() for k, v in module.state_dict().items()}
    assert of(prepared(module)).status == "xfailed"
    assert all(torch.equal(v, kept[k]) for k, v in module.state_dict().items())


def test_the_expectation_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Always with weights there is one path, and it agrees with itself."""
    monkeypatch.setattr(TorchMHA, "options", {"weights": (True,), "mask": ("bool",)})
    result = of(prepared(init={"embed_dim": 24, "num_heads": 4, "batch_first": True}))
    assert result.status == "xpassed"
    assert "drop the expectation" in str(result.reason)


class Wrapper(nn.Module):
    """A project's own module around the library's; `always` asks for weights in every call."""

    def __init__(self, d_model: int, n_heads: int, always: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.always = always

    def forward(self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False) -> tuple[Tensor, Any]:
        asked = self.always or need_weights
        output, weights = self.attention(x, x, x, attn_mask=mask, need_weights=asked, average_attn_weights=False)
        return output, weights if need_weights else None


def test_a_wrapper_of_one_path_passes() -> None:
    result = of(prepared(Wrapper))
    assert (result.status, result.reason) == ("passed", None)


def test_a_wrapper_of_two_paths_has_the_library_s_deviation() -> None:
    assert of(prepared(Wrapper, init={"d_model": 24, "n_heads": 4, "always": False})).status == "xfailed"


def test_widths_of_key_and_value() -> None:
    subject = subject_of(torch_mha.make(embed_dim=24, num_heads=4, kdim=20, vdim=14), "attention")
    assert subject.widths == (24, 20, 14)
    assert subject.sources == ("separate",)
    case = Case("separate", 3, 5, 7)
    assert subject.attempt(subject.draw(case), None, case).output.shape == (3, 5, 24)


@pytest.mark.parametrize("batch_first", [False, True])
def test_the_module_is_called_in_its_own_layout(batch_first: bool) -> None:
    adapter = torch_mha.make(embed_dim=24, num_heads=4, batch_first=batch_first)
    shapes: list[Any] = []
    adapter.module.register_forward_pre_hook(lambda module, args: shapes.append((args[0].shape, args[0] is args[2])))
    subject = subject_of(adapter, "attention")
    case = Case("self", 3, 5, 5)
    assert subject.attempt(subject.draw(case), None, case).output.shape == (3, 5, 24)
    assert shapes == [((3, 5, 24) if batch_first else (5, 3, 24), True)]
    assert subject.says("layout") == ("batch-first" if batch_first else "seq-first")


EXTRA = {"embed_dim": 24, "num_heads": 4, "batch_first": True, "add_bias_kv": True, "add_zero_attn": True}


def test_keys_of_its_own_are_learned_pairs_then_zeros() -> None:
    adapter = torch_mha.make(**EXTRA)
    weights, module = adapter.weights(), adapter.module
    assert weights["extra_k"].shape == weights["extra_v"].shape == (4, 2, 6)
    assert torch.equal(weights["extra_k"][:, 0].flatten(), module.bias_k.flatten())
    assert torch.equal(weights["extra_v"][:, 0].flatten(), module.bias_v.flatten())
    assert not weights["extra_k"][:, 1].any() and not weights["extra_v"][:, 1].any()
    assert not {"extra_k", "extra_v"} & set(torch_mha.make(embed_dim=24, num_heads=4).weights())


def test_its_weights_are_those_of_the_real_keys() -> None:
    subject = subject_of(torch_mha.make(**EXTRA), "attention")
    assert subject.says("weight_sum") == "below-one"
    case = Case("separate", 3, 5, 7)
    weights = subject.attempt(subject.draw(case), None, case).weights
    assert weights.shape == (3, 4, 5, 7)


@pytest.mark.parametrize("extra", [{"add_bias_kv": True}, {"add_zero_attn": True}, EXTRA], ids=len)
def test_with_keys_of_its_own_no_row_is_dead(extra: dict[str, Any]) -> None:
    target = prepared(init={"embed_dim": 24, "num_heads": 4, **extra})
    assert target.subjects[0].adapter.expected == []
    target.expectations = []
    assert of(target).status == "passed"


SOUND = ("contract.shape", "mask.polarity", "mask.blocked-keys", "mask.allowed-keys", "mask.broadcast",
         "numeric.oracle", "symmetry.batch", "symmetry.permutation", "weights.rows-sum")  # fmt: skip


def test_an_instance_with_keys_of_its_own_is_sound() -> None:
    torch.manual_seed(0)
    target = prepared(nn.MultiheadAttention(**EXTRA))
    statuses = {check.id: run(check, target).status for check in checks_of("attention") if check.id in SOUND}
    assert statuses == dict.fromkeys(SOUND, "passed")


FORWARD, PAD = nn.functional.multi_head_attention_forward, nn.functional.pad


def swapped(*args: Any, **kwargs: Any) -> Any:
    """The learned key and value are taken for one another."""
    return FORWARD(*args[:7], args[8], args[7], *args[9:], **kwargs)


def no_zero(*args: Any, **kwargs: Any) -> Any:
    """The pair of zeros is forgotten."""
    return FORWARD(*args[:9], False, *args[10:], **kwargs)


def hidden(mask: Tensor, widths: tuple[int, int]) -> Tensor:
    """The mask reaches the keys of its own too."""
    return PAD(mask, widths, value=-torch.inf)


BROKEN = [("multi_head_attention_forward", swapped), ("multi_head_attention_forward", no_zero), ("pad", hidden)]


@pytest.mark.parametrize(("name", "broken"), BROKEN, ids=lambda x: getattr(x, "__name__", x))
def test_wrong_keys_of_its_own_are_noticed(monkeypatch: pytest.MonkeyPatch, name: str, broken: Any) -> None:
    target = prepared(init=EXTRA)
    oracle = next(check for check in checks_of("attention") if check.id == "numeric.oracle")
    assert run(oracle, target).status == "passed"
    monkeypatch.setattr(nn.functional, name, broken)
    assert run(oracle, target).status == "failed"


def test_dropout_is_set_on_a_copy_and_in_its_code() -> None:
    adapter = torch_mha.make(embed_dim=24, num_heads=4)
    twin = adapter.with_dropout(0.5)
    assert (adapter.module.dropout, twin.module.dropout) == (0.0, 0.5)
    assert twin.source([]).count("target.dropout = 0.5") == 1
