"""What is wrong with a configuration file, and where."""


class Malformed(ValueError):
    """A text that is not what it should be: `str(error)` says what, `line` and `column` (from 1) say where."""

    def __init__(self, what: str, line: int, column: int) -> None:
        super().__init__(what)
        self.line, self.column = line, column

    @classmethod
    def at(cls, text: str, position: int, what: str) -> "Malformed":
        """The same, for a position in a text."""
        before = text[:position]
        return cls(what, before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)
