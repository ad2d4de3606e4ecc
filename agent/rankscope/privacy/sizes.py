"""How long a text is where it lies: in UTF-8, and in JSON."""


def cut(text: str, most: int) -> str:
    """The longest beginning of the text that takes at most so many bytes in UTF-8; what UTF-8 cannot say is `?`."""
    if text.isascii():
        return text[:most]
    return text[:most].encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def size_of(text: str) -> int:
    """Bytes of the text; its escapes in JSON are counted when it is written, once for the whole payload."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def escapes(text: str) -> int:
    """Characters that JSON writes as two, of those that prose and code have."""
    return text.count("\n") + text.count('"') + text.count("\\")
