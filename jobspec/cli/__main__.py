"""`python -m jobspec.cli`: the command line where the installed script is not on PATH."""

from __future__ import annotations

import sys

from jobspec.cli import main

sys.exit(main())
