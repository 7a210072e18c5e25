"""What tests of all parts share."""

import os

import pytest

# Tiny calls stall on more threads, and workers are processes of their own. Read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def loaded() -> None:
    """Everything of ours that is imported late.

    pytester forgets the modules that a run in this process has imported. What is imported before stays, so that torch
    is loaded once, and no check is registered twice.
    """
    from attncheck import wiring
    from attncheck.suite import all_checks

    all_checks()
    wiring.adapters()
    wiring.adapter_for(object())
    wiring.fault_summaries()
