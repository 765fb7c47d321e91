"""What importing a module brings along, found in fresh interpreters."""

import subprocess
import sys

import pytest

PRINT_MODULES = "print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def modules_after(statements: str) -> set[str]:
    """Top-level modules of a process that ran some statements, without the interpreter's own."""
    command = [sys.executable, "-c", f"import sys; {statements}; {PRINT_MODULES}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own statements
    names = set(done.stdout.split()) - sys.stdlib_module_names
    return {name for name in names if not name.startswith("_")}


def test_the_contract_needs_pydantic_only():
    """A publisher can use the contract without the daemon's libraries."""
    modules = ("audio", "digest", "errors", "events", "export", "job")
    imports = "; ".join(f"import utterd_schemas.{module}" for module in modules)
    added = modules_after(imports) - modules_after("import pydantic, pydantic.json_schema")
    # pydantic imports the second once a model needs it.
    assert added <= {"utterd_schemas", "annotated_types"}


@pytest.mark.parametrize(
    "statements",
    [
        "import utterd.engines.host",
        "import utterd.cli",
        "import utterd.engines.cosyvoice.bundle",
        "from utterd.engines import registry; registry.engine_module('hibari').describe()",
        "from utterd.engines import registry; registry.engine_module('cosyvoice')",
        "from utterd.engines import hibari; hibari.read('For $5.', language='en', normalize=True)",
    ],
)
def test_the_daemon_never_imports_onnxruntime(statements: str):
    """Describing an engine and planning a job leave the model's runtime to the workers."""
    assert modules_after(statements).isdisjoint({"onnx", "onnxruntime"})
