"""The helpers of the proof stand beside its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
