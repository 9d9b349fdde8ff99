"""Work that is done again and again: what one round raises does not end the next."""

import contextlib
import logging
from collections.abc import Iterator

from tfrank_sel.data.lists import InputError
from tfrank_sel.serving.status import ServingError

_log = logging.getLogger(__name__)


class Rounds:
    """Rounds of one kind of work, such as the checks of a folder.

    Attributes:
        fault: What the last round failed with; empty if it did not.
    """

    def __init__(self) -> None:
        self.fault = ""

    @contextlib.contextmanager
    def attempt(self, failure: str) -> Iterator[None]:
        """Does one round. Any exception ends this round only, and is logged once until it changes.

        Args:
            failure: What failed, if the exception does not say it.
        """
        try:
            yield
        except ServingError as error:
            fault = str(error)
        except InputError as error:
            fault = f"{failure}: {error.reason}"
        except OSError as error:
            fault = f"{failure}: {error}"
        except Exception as error:  # of a store's client, for example, any kind
            fault = f"{failure}: {type(error).__name__}: {error}"
        else:
            fault = ""
        if fault and fault != self.fault:
            _log.warning("%s", fault)
        self.fault = fault
