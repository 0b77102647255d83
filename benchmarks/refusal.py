"""An engine that does not offer a call."""


class NotOffered(Exception):  # noqa: N818 - an answer, not an error
    """The engine has no such operator, type, rank or layout."""
