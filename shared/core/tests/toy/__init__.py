"""Two small operators that exercise the core: one that mutates, one that returns."""
