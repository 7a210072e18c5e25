"""Scripts of findings: what they set up before the calls, and scripts of calls that should have been refused."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck.compare import REFUSAL, Failure
from attncheck.reproduce import script
from attncheck.subject import Answer, Case, Subject, subject_of

CASE = Case("self", 2, 3, 3)
SOURCE = """\
from torch import nn

torch.manual_seed(0)
target = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))


def call(query, key, value, allowed):
    return answer(target, query, allowed), None"""


class Adapter:
    """Drops in training; the mask is added to the first feature of the output."""

    width = 4

    def __init__(self) -> None:
        names: dict[str, Any] = {"torch": torch, "answer": masked}
        exec(SOURCE, names)
        self.module: nn.Module = names["target"]
        self.call = names["call"]

    def source(self, masks: Any) -> str:
        return SOURCE


def masked(target: nn.Module, query: Tensor, allowed: Tensor | None) -> Tensor:
    output: Tensor = target(query)
    return output if allowed is None else output + allowed.float().sum(-1, keepdim=True)


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(True):
        yield


def subject() -> Subject:
    return subject_of(Adapter(), "attention")


def given(allowed: Tensor | None = None, mode: str = "eval", seed: int = 0, s: Subject | None = None) -> Answer:
    s = s or subject()
    answer = s.attempt(s.draw(CASE), allowed, CASE.but(mode=mode), seed)
    assert isinstance(answer, Answer), answer
    return answer


def run(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"answer": masked}
    exec(text, names)
    return names


def text_of(before: Any, after: Answer | None = None, test: str = "") -> str:
    return script("a.b", "The claim", Failure("evidence", before, after, test))


def test_a_call_that_was_answered_fails_the_script_of_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(given(), test=REFUSAL)
    with pytest.raises(AssertionError, match=r"^answered with shape \(2, 3, 4\), expected an exception$"):
        run(text)
    assert capsys.readouterr().out == ""


def test_a_call_that_is_refused_passes_it_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(given(), test=REFUSAL)

    def refuses(*_: Any) -> Tensor:
        raise ValueError("not these")

    exec(text, {"answer": refuses})
    assert capsys.readouterr().out == "refused, as it should be: not these\n"


def test_only_the_call_may_be_refused() -> None:
    """An exception while the target is built is none of the call's."""
    text = text_of(given(), test=REFUSAL).replace("nn.Linear(4, 4)", "nn.Linear(4)")
    with pytest.raises(TypeError):
        run(text)


@pytest.mark.parametrize("seed", [3, 8])
def test_what_is_drawn_in_training_is_drawn_again(seed: int) -> None:
    answer = given(mode="train", seed=seed)
    text = text_of(answer)
    assert "target.train(True)\n" in text
    assert f"torch.manual_seed({seed})\nbefore, before_weights = call(" in text
    assert torch.equal(run(text)["before"], answer.output)
    assert not torch.equal(given(mode="train", seed=seed + 1).out, answer.out)


def test_nothing_is_seeded_where_nothing_is_drawn() -> None:
    answer = given(seed=3)
    text = text_of(answer)
    assert text.count("manual_seed(") == 2  # of the target and of the inputs
    assert torch.equal(run(text)["before"], answer.output)


def test_a_second_call_in_another_mode_has_a_seed_of_its_own() -> None:
    s = subject()
    before, after = given(s=s), given(mode="train no-grad", seed=4, s=s)
    names = run(text_of(before, after))
    assert torch.equal(names["before"], before.output) and torch.equal(names["after"], after.output)
    assert names["before"].requires_grad and not names["after"].requires_grad


BIAS = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))


def test_a_float_mask_comes_back_to_the_last_bit() -> None:
    answer = given(BIAS)
    names = run(text_of(answer))
    assert torch.equal(names["allowed"], BIAS)
    assert names["allowed"].dtype == torch.float32
    assert torch.equal(names["before"], answer.output)
    assert "# added to the scores, (3, 3)" in text_of(answer)


BOOLS = {
    "(T,S)": BIAS > 0,
    "(N,1,T,S)": torch.stack((BIAS > 0, BIAS < 1))[:, None],
    "(N,1,1,S)": (BIAS > 0)[:2, None, None],
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("axes", BOOLS)
def test_a_bool_mask_comes_back_with_its_strides(axes: str, turned: bool) -> None:
    mask = BOOLS[axes]
    mask = mask.mT.contiguous().mT if turned else mask
    rebuilt = run(text_of(given(mask)))["allowed"]
    assert rebuilt.dtype == torch.bool
    assert torch.equal(rebuilt, mask)
    assert rebuilt.is_contiguous() == mask.is_contiguous() == (not turned or mask.shape[-2] == 1)


def test_a_second_call_changes_the_mask_alone() -> None:
    s = subject()
    before, after = given(BIAS > 0, s=s), given((BIAS > 0).mT, s=s)
    text = text_of(before, after, "assert torch.equal(before, after)")
    assert (text.count("allowed = "), text.count("query = ")) == (2, 1)
    with pytest.raises(AssertionError):
        run(text)
    same = text_of(before, given(BIAS > 0, s=s), "assert torch.equal(before, after)")
    assert same.count("allowed = ") == 1
    run(same)


def test_a_copy_is_made_between_the_calls() -> None:
    s = subject()
    text = text_of(given(s=s), given(s=s.copied()))
    lines = text.splitlines()
    copied, first = lines.index("target = copy.deepcopy(target)"), text.find("before, before_weights")
    assert text.find("target = copy.deepcopy(target)") > first
    assert lines[copied - 1] == "import copy"
    names = run(text)
    assert torch.equal(names["before"], names["after"])


def test_no_code_of_the_target_is_said() -> None:
    answer = given()
    answer.subject.adapter.source = None
    assert text_of(answer).startswith("# no script: the adapter has no source(masks)")
    assert text_of(None).startswith("# no script")
