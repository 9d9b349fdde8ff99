"""Wire format of protocol buffers, for nested messages and bytes."""


def field(number: int, value: bytes) -> bytes:
    """Writes a field of bytes, a string or a message.

    Args:
        number: Number of the field; at most 15.
        value: Its value, serialized.

    Returns:
        The bytes of the field.

    Example:
        >>> field(1, b"ab")
        b'\\n\\x02ab'
    """
    return head(number, len(value)) + value


def head(number: int, length: int) -> bytes:
    """Writes the header of a field of bytes, a string or a message.

    Args:
        number: Number of the field; at most 15.
        length: Number of bytes of its value.

    Returns:
        The tag and the length.

    Example:
        >>> head(1, 300)
        b'\\n\\xac\\x02'
    """
    varint = bytearray([number << 3 | 2])
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    varint.append(length)
    return bytes(varint)
