"""What the raw bytes of a message hold: names, datatypes, shapes and sizes, in order."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from inferq.contract.errors import InvalidRequest
from inferq.contract.oip import Tensor
from inferq.contract.tensors import (
    Array,
    Buffer,
    element_count,
    from_json_data,
    item_size,
    naming_tensor,
    pack,
    unpack,
)


class TensorHead(NamedTuple):
    """One tensor without its data; ``shape`` leads with the batch dimension, ``size`` is bytes."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int


class Layout:
    """The tensors of one message and where each lies in the message's body.

    Compared by identity: equal messages share one layout through a :class:`LayoutMemo`, so that
    "may these requests be stacked?" is one pointer comparison on a busy queue.

    Each tensor has a batch dimension, and there is at least one.

    Attributes:
        heads: the tensors in the order of their bytes.
        spans: start and end of each tensor in the body.
        size: bytes of the whole body.
        rows: extent of the batch dimension of the first tensor.
        signature: what must be equal for two requests to share a model call: name, datatype and
            row shape of each tensor, sorted by name.
    """

    __slots__ = ("_unchecked", "heads", "rows", "signature", "size", "spans")

    def __init__(self, heads: Iterable[TensorHead]) -> None:
        self.heads = tuple(heads)
        spans = []
        offset = 0
        for head in self.heads:
            spans.append((offset, offset + head.size))
            offset += head.size
        self.spans = tuple(spans)
        self.size = offset
        self.rows = self.heads[0].shape[0]
        self.signature = tuple(
            sorted((head.name, head.datatype, head.shape[1:]) for head in self.heads)
        )

        # Of most datatypes every byte string of the right length is valid; not of these two.
        self._unchecked = tuple(
            (head, span)
            for head, span in zip(self.heads, self.spans, strict=True)
            if head.datatype in {"BOOL", "BYTES"} or head.size != _fixed_size(head)
        )

    def check(self, body: Buffer) -> None:
        """Check a body of this layout's size, as far as the layout itself leaves it open.

        Raises:
            InvalidRequest: a size that contradicts the shape, or BYTES or BOOL data that break
                their encoding; the message names the tensor.
        """
        for head, (start, end) in self._unchecked:
            with naming_tensor(head.name):
                unpack(head.datatype, head.shape, memoryview(body)[start:end])

    def arrays(self, body: Buffer) -> dict[str, Array]:
        """View a body of this layout as one read-only array per tensor.

        Raises:
            InvalidRequest: BYTES or BOOL data that break their encoding.
        """
        view = memoryview(body)
        return {
            head.name: unpack(head.datatype, head.shape, view[start:end])
            for head, (start, end) in zip(self.heads, self.spans, strict=True)
        }


def _fixed_size(head: TensorHead) -> int | None:
    with naming_tensor(head.name):
        size = item_size(head.datatype)
        return None if size is None else element_count(head.shape) * size


class LayoutMemo:
    """Gives equal tensor heads the same :class:`Layout`."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._known: dict[tuple[TensorHead, ...], Layout] = {}

    def layout(self, heads: Sequence[TensorHead]) -> Layout:
        """Return the layout of these heads.

        Raises:
            InvalidRequest: a tensor name that appears twice.
        """
        key = tuple(heads)
        layout = self._known.get(key)
        if layout is None:
            names = set()
            for head in key:
                if head.name in names:
                    raise InvalidRequest(f"tensor '{head.name}' appears twice: expected once")
                names.add(head.name)
            if len(self._known) >= self._limit:
                self._known.clear()
            layout = self._known[key] = Layout(key)
        return layout

    def lay_out(self, tensors: Sequence[Tensor], body: memoryview) -> tuple[Layout, memoryview]:
        """Bring the tensors of a message into raw form; those that came so are not copied.

        ``body`` is what lies behind the head, empty for a message in JSON.

        Raises:
            InvalidRequest: data that break a tensor's datatype or shape, or a body that is longer
                or shorter than the tensors in it; the message names the tensor.
        """
        heads = []
        parts: list[Buffer] = []
        offset = 0
        for tensor in tensors:
            size = tensor.parameters.binary_data_size
            if (size is None) == (tensor.data is None):
                raise InvalidRequest(
                    f"tensor '{tensor.name}': expected either data or binary_data_size"
                )
            if size is None:
                with naming_tensor(tensor.name):
                    data = from_json_data(tensor.datatype, tensor.shape, tensor.data)
                    parts.append(pack(data, tensor.datatype))
            else:
                if offset + size > len(body):
                    raise InvalidRequest(
                        f"tensor '{tensor.name}': binary_data_size is {size}, and "
                        f"{len(body) - offset} bytes are left in the message"
                    )
                parts.append(body[offset : offset + size])
                offset += size
            shape = tuple(tensor.shape)
            heads.append(TensorHead(tensor.name, tensor.datatype, shape, len(parts[-1])))
        if offset != len(body):
            raise InvalidRequest(
                f"{len(body) - offset} bytes are left after the last tensor: expected none"
            )
        layout = self.layout(heads)
        raw = body if offset == layout.size else memoryview(b"".join(parts))
        layout.check(raw)
        return layout, raw
