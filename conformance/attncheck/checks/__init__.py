"""The checks, one topic a file. A file that is here is found; nothing else lists it."""
