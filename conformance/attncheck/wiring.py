"""Joins target, adapter, oracle and faults. The only file that imports them all, and it does so inside functions."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from attncheck.compare import Failure
from attncheck.engine import Expectation, Target, fails, judge, quiet
from attncheck.explain import likely_cause
from attncheck.finding import Cause
from attncheck.inputs import TIED
from attncheck.parity import plain_case
from attncheck.readings import Reading, reading_of
from attncheck.registry import Check, checks_of
from attncheck.settings import Request
from attncheck.spec import BadTarget, locate
from attncheck.starter import adapter_of, configuration
from attncheck.subject import Case, Convention, Refusal, Subject, TimedOut, subject_of
from attncheck.timer import limited

UNREAD = "no reading of its weights gives its outputs, so that its numbers are held against no reference"


def adapters() -> list[ModuleType]:
    """The adapter modules that are there, by presence; one whose library is missing is passed over."""
    package = importlib.import_module("attncheck_adapters")
    found = [importlib.import_module(f"attncheck_adapters.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    return [m for m in found if hasattr(m, "handles")]


def adapter_for(target: object) -> ModuleType:
    for module in adapters():
        if module.handles(target):
            return module
    return importlib.import_module("attncheck_adapters.infer")


def oracle_for(subject: Subject, fault: Any = None, **attention: Any) -> Subject | None:
    """The float64 reference on the subject's own weights, with one step broken where a fault is given."""
    reading = settled_reading(subject)
    return None if reading is None else sharing(subject, reading, fault, **attention)


def settled_reading(subject: Subject) -> Reading | None:
    """The one reading of the target's parameters, found once by parity and kept with the subject."""
    if "reading" not in subject.twins:
        make = getattr(subject.adapter, "weights", None)
        said = None if make is None else make()
        parts = getattr(subject.adapter, "parts", {})
        # A factor of the scores is the user's to declare.
        known = Reading(said, {k: v for k, v in parts.items() if k != "scale"}) if isinstance(said, dict) else None
        faults = known_faults().values()
        found = known
        if isinstance(said, list):
            found = reading_of(subject, said, sharing, faults, lambda: _beyond_doubt(subject))
        subject.twins["reading"] = found
        subject.puzzle = UNREAD if found is None else ""
        if found is None and hasattr(subject.adapter, "puzzles"):
            subject.puzzle += "".join(f"; {text}" for text in subject.adapter.puzzles())
        _take_conventions(subject, found)
    settled: Reading | None = subject.twins["reading"]
    return settled


def _take_conventions(subject: Subject, reading: Reading | None) -> None:
    """What the parts of a reading say of the target, unless it was declared."""
    for key, value in (reading.says if reading else {}).items():
        known = subject.conventions.get(key)
        if reading and (known is None or known.source != "declared"):
            subject.conventions[key] = Convention(value, "observed", f"its parameters are {reading.told}")


def _beyond_doubt(subject: Subject) -> Reading | None:
    """The reading of a class of whose design its names leave no doubt, so that other outputs are wrong."""
    make = getattr(subject.adapter, "certain", None)
    plain = subject.says("weight_sum") in (None, "one") and subject.says("memory") != "joined"
    decided = not subject.conventions.get("causal", Convention("no")).undecided
    standard = plain and decided and subject.says("design") != "other"
    found: Reading | None = make() if make is not None and standard else None
    return found


def sharing(subject: Subject, reading: Reading, fault: Any = None, **attention: Any) -> Subject | None:
    """The reference loaded with a reading of the weights, under the subject's conventions."""
    reference = importlib.import_module("attncheck_adapters.reference")
    base = reference.MultiHeadAttention if subject.kind == "attention" else reference.DotProductAttention
    settings = {**reading.settings, "scale": scale_of(subject, reading), "dead_rows": "nan", **attention}
    pattern = pattern_settings(subject)
    if pattern is None:
        return None
    cls, weights = base if fault is None else fault.broken(base), reading.weights
    # Grouped heads show in the shapes, whatever the constructor called them.
    groups = (
        weights["k.weight"].shape[0] * subject.heads // weights["q.weight"].shape[0] if weights else subject.kv_heads
    )
    adapter = reference.shared(weights, subject.heads, groups, cls, **pattern, **settings)
    oracle = subject_of(adapter, subject.kind, label="the reference")
    # The reference keeps nothing that it could be told to forget.
    oracle.conventions = {k: c for k, c in subject.conventions.items() if k != "stateful"}
    oracle.widths, oracle.masks = subject.widths, subject.masks
    return oracle


def pattern_settings(subject: Subject) -> dict[str, Any] | None:
    """Causality, window and cap of the scores as keywords of the reference; None where it has no such pattern."""
    causal, window = subject.causality, subject.says("window") or "none"
    if causal.startswith("prefix"):
        return None
    settings: dict[str, Any] = {} if causal == "no" else {"causal": True, "corner": causal}
    if window != "none":
        left, _, right = window.partition(":")
        settings["window"] = (int(left), int(right)) if right else (1 - int(left), 0)
    if subject.says("softcap"):
        settings["softcap"] = float(str(subject.says("softcap")))
    if subject.says("causal_under_mask") == "replaced":
        settings["masked"] = "instead"
    return settings


def scale_of(subject: Subject, reading: Reading) -> Any:
    """The factor of the scores, declared or learned; None for 1/sqrt(d)."""
    said = subject.says("scale")
    if said in (None, "1/sqrt(d)", "learned"):
        fitted = subject.twins.get("scale")
        return reading.settings.get("scale") if fitted is None else fitted
    d = reading.weights["q.weight"].shape[0] // subject.heads if reading.weights else subject.widths[0]
    return 1 / d if said == "1/d" else float(str(said))


def explainer(target: Target) -> Any:
    """Looks for the fault behind a finding: those that the check names come first, then those found before."""
    before: list[Any] = []

    def explain(check: Check, failure: Failure, case: Case) -> Cause:
        known = known_faults()
        killers = [known[k] for k in check.faults if k in known]
        ordered = list(dict.fromkeys([fault.id for fault in (*killers, *before, *known.values())]))

        def finds(twin: Subject, sound: Subject) -> str | None:
            again = twin.at(target.subjects[case.config].dtype)
            failed = judge(check, again, plain_case(case), sound).failure
            return None if failed is None else failed.evidence

        subject, candidates = target.subjects[case.config], [known[id] for id in ordered]
        cause = likely_cause(subject, failure, case, candidates, killers, oracle_for, finds)
        before.extend([known[cause.fault]] if cause.fault else [])
        return cause

    return explain


def prepare(request: Request, roots: list[Path], obj: Any = None) -> Target:
    """Import, build and call a target once; what goes wrong with it is its `error`, never an exception of ours."""
    target = Target(request.spec, request.kind or "attention", "")
    try:
        with limited(request.timeout, f"importing and building {request.spec}"), quiet():
            _fill(target, request, roots, obj)
    except BadTarget as problem:
        target.error = str(problem)
    except TimedOut as late:
        target.error = str(late)
    if target.error is not None:
        target.subjects, target.oracles = [], []
    return target


def starter(request: Request, roots: list[Path]) -> str:
    """What `attncheck init` prints: the configuration of a target that can be met, or the start of an adapter."""
    target = prepare(request, roots)
    if target.error is None:
        recipe = getattr(target.subjects[0].adapter, "recipe", None)
        init = {} if recipe is None else {k: v for k, v in recipe.values().items() if v is not None}
        return configuration(target, request.init or init, request.config or getattr(recipe, "config", None))
    sketched = importlib.import_module("attncheck_adapters.infer.sketch")
    obj = locate(request.spec, roots)
    config = None if request.config is None else locate(request.config, roots)
    return adapter_of(target, sketched.sketch(obj, request.init, config))


def _fill(target: Target, request: Request, roots: list[Path], obj: Any) -> None:
    obj = locate(request.spec, roots) if obj is None else obj
    module = adapter_for(obj)
    made = _adapters(module, obj, request, roots)
    target.adapter = request.adapter or module.__name__.rpartition(".")[2].replace("infer", "inferred")
    target.kind = str(request.kind or getattr(made[0], "kind", getattr(module, "KIND", "attention")))
    for adapter in made:
        subject = subject_of(adapter, target.kind, request.declare, request.spec)
        wanted = request.dtype or request.declare.get("dtype")
        subject.dtype = getattr(torch, wanted) if wanted else subject.dtype
        subject = _placed(subject, request)
        _first_call(subject)
        target.subjects.append(subject)
        if target.oracles and target.oracles[0] is None:
            # What was not understood once will not be at another size.
            subject.twins["reading"] = None
        target.oracles.append(oracle_for(subject))
        target.built.append(getattr(adapter, "built", ""))
        target.notes += getattr(adapter, "notes", [])
    target.notes += [target.subjects[0].puzzle] if target.oracles[0] is None else []
    told = {reading.told for s in target.subjects if (reading := s.twins.get("reading")) is not None}
    target.notes += [f"its weights are read with {text}" for text in sorted(told - {""})]
    target.notes = list(dict.fromkeys(target.notes))
    target.expectations = [] if request.adapter else expected_of(obj, target.subjects[0])
    target.explain = explainer(target)


def _adapters(module: ModuleType, obj: Any, request: Request, roots: list[Path]) -> list[Any]:
    if request.adapter is not None:
        make = locate(request.adapter, roots)
        return [_built(make, request.init or {}, request)]
    if not hasattr(module, "handles"):
        config = None if request.config is None else locate(request.config, roots)
        found: list[Any] = module.meet(obj, request.spec, request.init, request.declare, request.kind, config)
        return found
    inits = [request.init] if request.init is not None else module.CONFIGURATIONS
    inits = inits[:1] if isinstance(obj, torch.nn.Module) else inits
    return [_built(lambda **init: module.make(obj, **init), init, request) for init in inits]


def _built(make: Any, init: dict[str, Any], request: Request) -> Any:
    text = ", ".join(f"{k}={v!r}" for k, v in init.items())
    try:
        adapter = make(**init)
    except (KeyboardInterrupt, TimedOut):
        raise
    except BaseException as error:
        raise BadTarget(f"building {request.spec}({text}) raised {type(error).__name__}: {error}") from error
    if not callable(getattr(adapter, "call", None)):
        raise BadTarget(
            f"adapter={request.adapter!r} made {type(adapter).__name__} without call(query, key, value, allowed)"
        )
    if not hasattr(adapter, "built"):
        with contextlib.suppress(AttributeError):
            adapter.built = text
    return adapter


def _placed(subject: Subject, request: Request) -> Subject:
    if request.dtype and subject.module is not None:
        subject.module.to(subject.dtype)
        subject.setup = (*subject.setup, f"target.to({subject.dtype})")
    if request.device != "cpu":
        subject.device = torch.device(request.device)
        if subject.module is not None:
            subject.module.to(subject.device)
    return subject


def _first_call(subject: Subject) -> None:
    """The plain unmasked call of a new instance must work, else there is nothing to check."""
    if not subject.widths[0]:
        raise BadTarget(f"the adapter of {subject.label} says no width; give it `width = D` or `widths = (Dq, Dk, Dv)`")
    sources = subject.sources[0]
    S = 5 if sources in TIED else 7
    case = Case(sources, 3, 5, S, options={k: v[0] for k, v in subject.options.items()})
    answer = (subject.rebuilt() or subject).attempt(subject.draw(case), None, case)
    if isinstance(answer, Refusal):
        raise BadTarget(f"the plain call of {subject.label} in [{case}] raised {answer}")


def expected_of(obj: Any, subject: Subject) -> list[Expectation]:
    """Known deviations of the library behind a target; not strict where the target only contains its module."""
    found = []
    parts = {type(m) for m in subject.module.modules()} if subject.module is not None else set()
    for module in adapters():
        exact = module.handles(obj)
        if exact or getattr(module, "MODULE", None) in parts:
            known = getattr(subject.adapter, "expected", module.EXPECTED) if exact else module.EXPECTED
            found += [
                Expectation(e["check"], e["reason"], e["issue"], strict=exact and e.get("strict", True)) for e in known
            ]
    return found


def known_faults() -> dict[str, Any]:
    """All faults of the reference, by id."""
    found: dict[str, Any] = importlib.import_module("attncheck_faults").faults()
    return found


def fault_summaries() -> dict[str, str]:
    """What each known fault does, by id."""
    return {fault.id: fault.summary for fault in known_faults().values()}


def selftest() -> list[tuple[str, list[str], list[str]]]:
    """The kill matrix: for each fault the checks that caught it, and those whose record says that they must.

    These run in the default profile, or in the deep one where they need it; the others, of which nothing is expected,
    in the quick one. Faults are independent, so that they are spread over processes.
    """
    ours = [id for id, fault in known_faults().items() if fault.run.__module__.startswith("attncheck_faults.")]
    # What a user has registered is not there in another process.
    theirs = [kills(id) for id in known_faults() if id not in ours]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8), multiprocessing.get_context("spawn")) as pool:
        return [*pool.map(kills, ours, chunksize=8), *theirs]


def kills(id: str) -> tuple[str, list[str], list[str]]:
    """One row of the kill matrix."""
    checks, target = checks_of("attention"), faulty_target(known_faults()[id])
    named = [check for check in checks if id in check.faults]
    caught = [check.id for check in checks if fails(check, target, effort(check, check in named))]
    return id, caught, [check.id for check in named]


def effort(check: Check, named: bool) -> str:
    return "quick" if not named else "deep" if check.profile == "deep" else "default"


def faulty_target(fault: Any = None, kind: str = "attention", **init: Any) -> Target:
    """The reference, with a step broken where a fault is given, under the plain settings that the fault needs."""
    reference = importlib.import_module("attncheck_adapters.reference")
    base, sizes = reference.CLASSES[kind]
    cls, needs = (base, {}) if fault is None else (fault.broken(base), fault.init)
    target = Target("the reference" if fault is None else fault.id, kind, "reference")
    for size in sizes:
        settings = {"dead_rows": "zero", **size, **needs, **init}
        declare = {} if fault is None else fault.declare
        subject = subject_of(reference.make(cls, **settings), kind, declare, label=target.spec)
        target.subjects.append(subject)
        target.oracles.append(oracle_for(subject))
    target.explain = explainer(target)
    return target
