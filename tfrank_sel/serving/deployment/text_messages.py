"""Reader of configuration files, which are messages in text format."""

import os
from collections.abc import Callable
from typing import Any

from google.protobuf import text_format

from tfrank_sel.data import stores
from tfrank_sel.data.lists import InputError
from tfrank_sel.serving.status import Code, ServingError, invalid


def read(path: str | os.PathLike[str], kind: Callable[[], Any]) -> Any:
    """Reads a message without checking its values.

    Args:
        path: The file, or its URL.
        kind: Class of the message in it.

    Returns:
        The message.

    Raises:
        ServingError: NOT_FOUND if the file cannot be read, INVALID_ARGUMENT if it holds no such
            message. The error does not name the file.
    """
    message = kind()
    try:
        text_format.Parse(stores.read_text(path), message)
    except InputError as error:
        raise ServingError(Code.NOT_FOUND, error.reason) from error
    except OSError as error:
        raise ServingError(Code.NOT_FOUND, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, text_format.ParseError) as error:
        name = message.DESCRIPTOR.name
        article = "an" if name[0] == "S" else "a"
        raise invalid(f"must be {article} {name} in text format. Received: {error}") from error
    return message
