"""onnxruntime sessions, all set alike."""

from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

from utterd.errors import ConfigurationError

# Longer than between two operators of a run, and shorter than what a busy core is worth.
_SPIN_US = 20


def open_session(graph: Path, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Load one graph; several threads may run it at once.

    Args:
        graph: its file.
        threads: that share each run. More than one is for runs to which nobody else's thread is a
            rival: each operator ends when the slowest of them does.

    Raises:
        ConfigurationError: onnxruntime can't load it.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Shapes differ from call to call: a plan of each would be kept and never used again.
    options.enable_mem_pattern = False
    # These graphs name their int8 kernels. The pass that would look for them gives each reader of a
    # number a conversion of its own.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    if threads == 1:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    else:
        # Waking a thread takes as long as a small operator; between runs, nobody spins.
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(_SPIN_US))
        options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no class but this
        raise ConfigurationError(
            f"{graph} can't be loaded ({type(error).__name__}): convert the bundle again, and check"
            " that onnxruntime is 1.32 or newer"
        ) from error


def run(
    session: onnxruntime.InferenceSession,
    inputs: dict[str, NDArray[Any]],
    *,
    runs_again: bool = False,
) -> list[Any]:
    """All outputs of one run.

    The session gives back the memory that it took for it, so that the longest segment so far is
    not paid for ever after. With `runs_again`, it keeps it for the next run.
    """
    options = onnxruntime.RunOptions()
    if not runs_again:
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    outputs: list[Any] = session.run(None, inputs, options)
    return outputs
