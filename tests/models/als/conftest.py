"""Without the extra `als` (on the second stack) nothing here is collected."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("numba") else ["*.py"]
