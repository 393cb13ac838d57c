"""What pymesos needs of the distribution http-parser, in Python alone.

The C extension of that distribution does not build on Python 3.11 and newer, so pymesos is
installed without its dependencies, and finds this under the name. It has what `pymesos/process.py`
calls, for answers to one POST; what no answer can have there ends the parse. Must not do more.
"""

from __future__ import annotations

import sys

from peloton.backends.mesos.http_parser import errors, http


def stand_in() -> None:
    """From now on `import http_parser` finds this."""
    sys.modules["http_parser"] = sys.modules[__name__]
    sys.modules["http_parser.errors"], sys.modules["http_parser.http"] = errors, http
