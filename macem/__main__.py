"""``python -m macem`` is the command ``macem``."""

import sys

from macem.cli import main

if __name__ == "__main__":
    sys.exit(main())
