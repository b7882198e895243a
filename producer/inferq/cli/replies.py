"""Prints replies as OIP JSON, and saves their arrays."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from inferq.contract.errors import InferqError, InvalidRequest
from inferq.contract.replies import Reply
from inferq.contract.tensors import Array


def show(reply: Reply, *, npz: Path | None, one_line: bool) -> None:
    """Print a reply; with ``npz`` save its arrays there, and print everything but their data.

    Raises:
        InferqError: an output has no form in JSON, or none in ``.npz``, or the file cannot be
            written; the message says what can be done.
    """
    if npz is None:
        try:
            members = reply.to_oip()
        except InvalidRequest as error:
            finding = str(error).partition(":")[0]
            raise InferqError(f"{finding}: save the arrays with --npz FILE instead") from None
    else:
        members = _save(reply, npz)
    print(json.dumps(members) if one_line else readable(members))


def readable(members: dict[str, Any]) -> str:
    """Write a reply with each member, and each output, on a line of its own."""
    lines = []
    for name, value in members.items():
        text = json.dumps(value)
        if name == "outputs":
            text = "[\n" + ",\n".join(f"    {json.dumps(each)}" for each in value) + "\n  ]"
        lines.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}"


def _save(reply: Reply, path: Path) -> dict[str, Any]:
    datatypes = reply.datatypes
    # A row's element of BYTES comes without an array around it.
    found = {
        name: np.asarray(reply[name], dtype=object if kind == "BYTES" else None)
        for name, kind in datatypes.items()
    }
    arrays = {name: _savable(name, found[name], kind) for name, kind in datatypes.items()}
    try:
        # Not numpy's savez: it takes the names as keywords beside its own.
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    except OSError as error:
        raise InferqError(f"cannot write '{path}': {error.strerror}") from None
    members = {
        "model_name": reply.model_name,
        "model_version": reply.model_version,
        "id": reply.id,
        "parameters": reply.parameters,
        "outputs": [
            {"name": name, "datatype": kind, "shape": list(found[name].shape)}
            for name, kind in datatypes.items()
        ],
    }
    return {name: value for name, value in members.items() if value is not None}


def _savable(name: str, array: Array, datatype: str) -> Array:
    """Return an array that loads anywhere, without pickle."""
    if datatype == "BF16":
        # numpy alone does not know the type; FP32 holds all of its values.
        return array.astype(np.float32)
    if datatype != "BYTES":
        return array
    if any(element.endswith(b"\0") for element in array.ravel()):
        raise InferqError(f"output '{name}': elements that end with a zero byte have no .npz form")
    return array.astype(np.bytes_)
