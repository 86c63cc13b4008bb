"""This folder stands for an environment into which a third party was installed."""

import sys
from pathlib import Path

from macem.adapters import installed_adapters

sys.path.append(str(Path(__file__).parent))
installed_adapters.cache_clear()
