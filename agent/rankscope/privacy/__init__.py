"""What may leave the process: secrets are replaced, payloads are bounded, before anything is buffered.

One `Redactor` serves a run: names, labels, error texts, previews, the configuration and the command line.
"""

from rankscope.privacy.preview import Preview
from rankscope.privacy.redaction import Redactor
from rankscope.privacy.values import REDACTED

__all__ = ["REDACTED", "Preview", "Redactor"]
