import no_such_library  # noqa: F401
