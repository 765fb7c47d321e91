"""Writes ONNX graphs node by node."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

_OPSET = 20
_IR_VERSION = 10
_MICROSOFT = "com.microsoft"
_MICROSOFT_OPS = frozenset(
    {
        *("FusedMatMul", "GroupQueryAttention", "MultiHeadAttention", "Gelu"),
        *("MatMulIntegerToFloat", "QLinearConv", "QuickGelu"),
    }
)

# Larger constants are hardly ever equal, and slow to compare.
_MAX_SHARED_SIZE = 16

Shape = Sequence[int | str]


class Graph:
    """A graph in the making. Every method that adds a node returns the name of its output."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._small: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._count = 0

    def input(self, name: str, shape: Shape, elements: int = TensorProto.FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, elements, list(shape)))
        return name

    def output(self, name: str, value: str, shape: Shape) -> None:
        """Name a value as an output of the graph."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def output_of(self, node_output: str, shape: Shape, elements: int = TensorProto.FLOAT) -> None:
        """Make a node's output, under its own name, one of the graph."""
        self._outputs.append(helper.make_tensor_value_info(node_output, elements, list(shape)))

    def constant(self, value: NDArray[Any], hint: str = "constant") -> str:
        """An initializer; small equal ones are shared."""
        value = np.asarray(value)
        if value.size > _MAX_SHARED_SIZE:
            return self._initializer(value, hint)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._small:
            self._small[key] = self._initializer(value, hint)
        return self._small[key]

    def _initializer(self, value: NDArray[Any], hint: str) -> str:
        name = self._fresh(hint)
        self._initializers.append(numpy_helper.from_array(value, name))
        return name

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """A node with one output."""
        return self.ops(kind, inputs, 1, attributes)[0]

    def ops(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: int | Sequence[str],
        attributes: Mapping[str, Any] | None = None,
    ) -> Sequence[str]:
        """A node with several outputs, which may be named.

        A kind that ONNX and Microsoft both have is ONNX's, unless it comes with its domain.
        """
        domain, _, kind = kind.rpartition(".")
        names = [self._fresh(kind) for _ in range(outputs)] if isinstance(outputs, int) else outputs
        self._nodes.append(
            helper.make_node(
                kind,
                list(inputs),
                list(names),
                name=self._fresh(kind),
                domain=_MICROSOFT if kind in _MICROSOFT_OPS else domain,
                **(attributes or {}),
            )
        )
        return names

    def slice(self, value: str, axis: int, start: int, stop: int, step: int = 1) -> str:
        bounds = (self.integers(number) for number in (start, stop, axis, step))
        return self.op("Slice", value, *bounds)

    def reshape(self, value: str, *shape: int) -> str:
        return self.op("Reshape", value, self.integers(*shape))

    def model(self) -> onnx.ModelProto:
        """The finished model, checked."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, self._initializers
        )
        return helper.make_model(
            graph,
            producer_name="utterd",
            ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)],
        )

    def save(self, path: Path) -> None:
        onnx.save(self.model(), path)

    def _fresh(self, hint: str) -> str:
        self._count += 1
        return f"{hint}_{self._count}"


END = int(np.iinfo(np.int64).max)
"""As the end of a slice: everything from its start."""
