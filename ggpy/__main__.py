"""`python -m ggpy` is the `ggpy` command."""

import sys

from ggpy.cli import main

sys.exit(main())
