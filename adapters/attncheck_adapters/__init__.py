"""Adapters: attncheck and exactly one library a file. A file that is here is found; nothing lists it.

A module of this package has `handles(target) -> bool`, `make(target, **init)`, KIND, CONFIGURATIONS (keywords of
`make`, tried where the user gives none) and EXPECTED (known deviations of the library, each with its reason).
"""
