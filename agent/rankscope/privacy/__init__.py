"""What may leave the process: secrets are replaced, payloads are bounded, before anything is buffered.

One `Redactor` serves a run: names, labels, error texts, previews, the configuration and the command line.
"""

from rankscope.privacy.preview import Preview
from rankscope.privacy.redaction import LEAST_PREVIEW, MOST_PREVIEW, PREVIEW_BYTES, Redactor, checked_pattern
from rankscope.privacy.summaries import number_name
from rankscope.privacy.values import REDACTED

__all__ = [
    "LEAST_PREVIEW",
    "MOST_PREVIEW",
    "PREVIEW_BYTES",
    "REDACTED",
    "Preview",
    "Redactor",
    "checked_pattern",
    "number_name",
]
