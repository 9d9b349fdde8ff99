"""The wire format of protocol buffers, as far as nested messages and bytes need it."""


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
    length, varint = len(value), bytearray([number << 3 | 2])
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    varint.append(length)
    return bytes(varint) + value
