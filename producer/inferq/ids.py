"""Names that nobody has used before."""

import os
import secrets
import time


def new_request_id() -> str:
    """Return a UUID of version 7 (RFC 9562, section 5.7): sorted by time, random below a ms."""
    now_ms = time.time_ns() // 1_000_000
    value = (now_ms & 0xFFFF_FFFF_FFFF) << 80 | int.from_bytes(os.urandom(10))
    # Version 7 in bits 76-79, variant 10 in bits 62-63.
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_box() -> str:
    """Return a name for an inbox of one's own."""
    return secrets.token_hex(12)
