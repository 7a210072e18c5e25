"""The checks, one family a file. A file that is here is found; nothing else lists it."""
