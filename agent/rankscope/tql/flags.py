"""What each bit of a row's flags says, as fields that are true or false: a query asks `tensor.skipped == true`."""

from collections.abc import Iterator

from rankscope_proto import names

_OF_TENSOR = {
    "scaled": "it is still multiplied by the loss scale",
    "unscaled": "the loss scale was divided out",
    "local": "it is of before data-parallel reduction",
    "reduced": "it is of after data-parallel reduction",
    "recompute": "it is of a forward that was computed again",
    "sampled": "it is of a sample of the elements",
    "skipped": "the loss scaler left the step's update out",
}
_OF_COLLECTIVE = {
    "enqueued": "its times are those of its queueing for a device",
    "async": "the caller did not wait for it",
    "p2p": "it is between two ranks",
    "interrupted": "it ended with an error",
}


def flag_fields() -> Iterator[tuple[str, int, str]]:
    """Name, bit and meaning of each."""
    for flag, bit in names.TENSOR_FLAGS.items():
        yield f"tensor.{flag}", bit, f"Whether {_OF_TENSOR[flag]}."
    for flag, bit in names.COLLECTIVE_FLAGS.items():
        yield f"collective.{flag}", bit, f"Whether {_OF_COLLECTIVE[flag]}."
