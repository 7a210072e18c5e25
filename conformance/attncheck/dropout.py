"""Setting the dropout rate of a module that is already built."""

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

# The same as `set_dropout`, for a reproduction.
SET_DROPOUT = """\
for part in target.modules():
    for name, rate in list(vars(part).items()):
        layer = isinstance(part, torch.nn.modules.dropout._DropoutNd)
        if name == "p" if layer else "drop" in name.lower() and isinstance(rate, float):
            setattr(part, name, {p} if 0 <= rate < 1 else rate)"""


def set_dropout(module: nn.Module | None, p: float) -> int:
    """Set every rate in place: of nn.Dropout, and of float attributes named after it. Returns how many it found."""
    found = 0
    for part in () if module is None else module.modules():
        for name, rate in list(vars(part).items()):
            layer = isinstance(part, _DropoutNd)
            named = name == "p" if layer else "drop" in name.lower() and isinstance(rate, float)
            if named and 0 <= rate < 1:
                setattr(part, name, p)
                found += 1
    return found
