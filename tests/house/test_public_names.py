"""The public names: exactly these, all importable, in order."""

import importlib

import pytest

DOCUMENTED = {
    "inferq": [
        "AnswerError",
        "AsyncHandle",
        "AsyncProducer",
        "BusyError",
        "Cancelled",
        "Crashed",
        "Expired",
        "Handle",
        "InferqError",
        "InvalidRequest",
        "InvalidSetting",
        "ModelError",
        "ModelUnfit",
        "NoReply",
        "NotFound",
        "NotReady",
        "Producer",
        "QueueFull",
        "Reply",
        "RequestError",
        "ServerUnfit",
        "SetupError",
        "TensorSpec",
        "TooLarge",
        "Unavailable",
    ],
    "inferq_worker": [
        "InferenceMetrics",
        "Model",
        "ModelServer",
        "TensorSpec",
        "Worker",
        "model",
    ],
}


@pytest.mark.parametrize("package", DOCUMENTED)
class TestNames:
    def test_they_are_the_documented_ones(self, package: str) -> None:
        """A name is added to or taken from the public ones on purpose, here as well."""
        assert importlib.import_module(package).__all__ == DOCUMENTED[package]

    def test_they_are_sorted(self, package: str) -> None:
        """Public names are listed in the order in which people look for them."""
        names = importlib.import_module(package).__all__
        assert names == sorted(names)

    def test_they_can_be_imported(self, package: str) -> None:
        """Each public name is there, whether it is imported at once or when it is first used."""
        module = importlib.import_module(package)
        star: dict[str, object] = {}
        exec(f"from {package} import *", star)
        assert sorted(set(star) - {"__builtins__"}) == DOCUMENTED[package]
        assert all(star[name] is getattr(module, name) for name in DOCUMENTED[package])

    def test_there_are_no_others(self, package: str) -> None:
        """No class or function of ours is reachable through a package without being public."""
        module = importlib.import_module(package)
        others = {
            name
            for name, member in vars(module).items()
            if not name.startswith("_")
            and str(getattr(member, "__module__", "")).startswith("inferq")
        }
        assert others <= set(DOCUMENTED[package])

    def test_they_are_shown(self, package: str) -> None:
        """``dir`` lists the public names, for completion in a shell."""
        assert set(DOCUMENTED[package]) <= set(dir(importlib.import_module(package)))
