"""The reference attention broken on purpose, one step at a time; one family a file."""

from attncheck_faults.record import Fault, fault, faults

__all__ = ["Fault", "fault", "faults"]
