"""Graphs of a target that torch.export makes, and running them."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from attncheck.compare import Inapplicable
from attncheck.inputs import Inputs
from attncheck.subject import Case, Subject, TimedOut


@dataclass(frozen=True)
class Handed:
    """What the module behind an adapter is called with, in its own layout."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Program:
    """An exported graph of a subject's module."""

    module: Any
    subject: Subject

    def run(self, inputs: Inputs, allowed: Tensor | None, case: Case) -> Tensor | None:
        """Its output (N,T,D), found by shape; None where no result has it. Whatever it raises is the graph's error."""
        given = handed(self.subject, inputs, allowed, case)
        try:
            with torch.no_grad(), unheard():
                result = self.module(*given.args, **given.kwargs)
        except (KeyboardInterrupt, TimedOut):
            raise
        except BaseException as error:
            text = " ".join(str(error).split())[:200]
            raise Inapplicable(f"torch.export fixed the length of the example, and says so: {text}") from error
        lead = tuple(inputs.query.shape[:-1])
        parts = [x for x in tree_leaves(result) if isinstance(x, Tensor) and x.ndim == len(lead) + 1]
        return next((y for x in parts for y in (x, x.transpose(0, 1)) if tuple(y.shape[:-1]) == lead), None)


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What a compiler logs and prints of code that it cannot take is said in the reason instead."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)


def handed(subject: Subject, inputs: Inputs, allowed: Tensor | None, case: Case) -> Handed:
    """The arguments that an attempt hands to the module."""
    seen: list[Handed] = []

    def remember(module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(Handed(args, dict(kwargs)))

    assert subject.module is not None
    hook = subject.module.register_forward_pre_hook(remember, with_kwargs=True)
    try:
        subject.attempt(inputs, allowed, case)
    finally:
        hook.remove()
    if not seen:
        raise Inapplicable("the adapter does not call the module itself")
    return seen[0]


def exported_program(subject: Subject, inputs: Inputs, allowed: Tensor | None, case: Case) -> Program:
    """A graph with every axis left open that the exporter leaves open."""
    module, given = subject.module, handed(subject, inputs, allowed, case)
    assert module is not None
    auto = torch.export.Dim.AUTO
    shapes = tree_map(
        lambda x: dict.fromkeys(range(x.ndim), auto) if isinstance(x, Tensor) else None,
        (*given.args, *given.kwargs.values()),
    )
    try:
        with torch.no_grad(), unheard():
            made = torch.export.export(module, given.args, given.kwargs, dynamic_shapes=shapes)
    except (KeyboardInterrupt, TimedOut):
        raise
    except BaseException as error:
        raise Inapplicable(f"torch.export: {' '.join(str(error).split())[:200]}") from error
    return Program(made.module(), subject)
