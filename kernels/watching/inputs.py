"""Gives a watch file's function the sizes and types of a problem, and makes input tensors for the problem."""

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewatch.kernels.contract import Problem

if TYPE_CHECKING:
    import numpy as np

SHORT_TYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "fp16": "float16",
    "f32": "float32",
    "fp32": "float32",
    "tf32": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "fp8": "float8_e4m3fn",
    "i8": "int8",
    "i32": "int32",
    "i64": "int64",
}


class ProblemInputs:
    """The argument `p` of a watch file's function. It has the problem's sizes, such as `p.rows`, and makes tensors.

    Random tensors are equal for equal seeds. A tensor has the type `p.dtype` if no other type is given."""

    device = "cuda"

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem, self.seed = problem, seed
        with contextlib.suppress(ModuleNotFoundError):  # an owner's environment may lack it
            importlib.import_module("numpy").random.seed(seed)
        if "cupy" in sys.modules:
            sys.modules["cupy"].random.seed(seed)
        with contextlib.suppress(ModuleNotFoundError):
            self._torch.manual_seed(seed)

    @property
    def _torch(self) -> Any:
        """Returns the module torch. Raises ModuleNotFoundError if PyTorch is not installed."""
        return importlib.import_module("torch")

    @property
    def numpy_dtype(self) -> "np.dtype[Any]":
        """Returns `p.dtype` as a NumPy type. Raises ValueError if NumPy has no such type."""
        import numpy as np

        choice = self._problem.choices.get("dtype", "f32")
        name = SHORT_TYPES.get(choice, choice)
        try:
            return np.dtype(name)
        except TypeError:
            raise ValueError(
                f"NumPy has no type {name}: `import ml_dtypes` gives it bfloat16 and float8; p.randn and its like need "
                "neither"
            ) from None

    @property
    def problem(self) -> Problem:
        return self._problem

    def __getattr__(self, name: str) -> Any:
        problem = self._problem
        if name in problem.sizes:
            return problem.sizes[name]
        if name in problem.choices:
            return self._type(problem.choices[name]) or problem.choices[name]
        known = ", ".join((*problem.sizes, *problem.choices))
        raise AttributeError(f"the problem {problem.name} has no '{name}'; it has {known}")

    def randn(self, *shape: int, dtype: Any = None) -> Any:
        """Returns a tensor of standard normal values."""
        return self._torch.randn(*shape, device=self.device).to(self._choose(dtype))

    def rand(self, *shape: int, dtype: Any = None) -> Any:
        """Returns a tensor of uniformly distributed values from 0 to 1."""
        return self._torch.rand(*shape, device=self.device).to(self._choose(dtype))

    def randint(self, low: int, high: int, shape: Sequence[int], dtype: Any = None) -> Any:
        """Returns a tensor of random whole numbers from `low` to `high` - 1, as int32 by default."""
        # Made on the CPU: host code that plans by the numbers must see equal numbers with and without a GPU.
        return self._torch.randint(low, high, tuple(shape), dtype=self._choose(dtype or "int32")).to(self.device)

    def zeros(self, *shape: int, dtype: Any = None) -> Any:
        return self._torch.zeros(*shape, device=self.device, dtype=self._choose(dtype))

    def ones(self, *shape: int, dtype: Any = None) -> Any:
        return self._torch.ones(*shape, device=self.device, dtype=self._choose(dtype))

    def empty(self, *shape: int, dtype: Any = None) -> Any:
        return self._torch.empty(*shape, device=self.device, dtype=self._choose(dtype))

    def _choose(self, dtype: Any) -> Any:
        """Returns a type, or `p.dtype` by default, as a PyTorch type. Raises ValueError for an unknown type."""
        if dtype is None:
            dtype = self._problem.choices.get("dtype", "f32")
        found = self._type(dtype) if isinstance(dtype, str) else dtype
        if found is None:
            raise ValueError(f"PyTorch {self._torch.__version__} has no type {dtype}")
        return found

    def _type(self, choice: str) -> Any:
        """Returns the PyTorch type for a name such as "bf16", or None if there is no such type."""
        if importlib.util.find_spec("torch") is None:
            return None
        found = getattr(self._torch, SHORT_TYPES.get(choice, choice), None)
        return found if isinstance(found, self._torch.dtype) else None
