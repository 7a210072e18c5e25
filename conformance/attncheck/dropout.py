"""Setting the dropout rate of a module that is already built."""

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

SET_DROPOUT = """\
for part in target.modules():
    if isinstance(part, torch.nn.Dropout):
        part.p = {p}"""


def set_dropout(module: nn.Module | None, p: float) -> int:
    """Set every rate in place: of nn.Dropout, and of float attributes named after it. Returns how many it found."""
    found = 0
    for part in () if module is None else module.modules():
        names = ["p"] if isinstance(part, _DropoutNd) else [name for name in vars(part) if "drop" in name.lower()]
        for name in names:
            rate = getattr(part, name)
            if isinstance(rate, float) and 0.0 <= rate < 1.0:
                setattr(part, name, p)
                found += 1
    return found
