"""Names that a definition file may give."""

from __future__ import annotations

import re

STREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
