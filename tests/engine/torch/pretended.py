"""A pretended accelerator: tensors that say they are on ``cuda`` (or ``mps``), compute on the CPU, and refuse what that device would refuse.

PyTorch's own FakeTensorMode has no values, so nothing that reads one (sampling, masks, guards) gets through it, and without a CUDA
build it cannot go backward at all: the autograd engine asks for the device's driver and ends the process. Here each tensor carries a
real one of the CPU, so that whole runs go through, backward passes included, and can be held against the same run on the CPU.

What raises, with PyTorch's own words:

* operands on two devices, except single numbers on the CPU and index tensors on the CPU;
* ``numpy()`` on anything that is not on the CPU;
* a CPU generator for random numbers on the device;
* on ``mps``: float64.

Not seen: what happens inside kernels that only the device has.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache

import torch
from torch.overrides import TorchFunctionMode

_SET_DATA = torch.Tensor.data.__set__  # another object at each look, but an equal one
_MOVES = frozenset((torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda))
_ANY = {"aten::copy_", "aten::_to_copy", "aten::lift_fresh", "aten::lift_fresh_copy", "aten::_copy_from"}
_STRICT = {"aten::cat", "aten::stack", "aten::mm", "aten::bmm", "aten::addmm", "aten::gather"}
_INDEXED = {
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_unsafe_index",
}


class Pretended(torch.Tensor):
    """``held`` is where the values are."""

    @staticmethod
    def __new__(cls, real, device):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device="cpu",
        )

    def __init__(self, real, device):
        self.held, self.where = real, device

    device = property(lambda self: self.where)
    is_cuda = property(lambda self: self.where.type == "cuda")
    is_cpu = property(lambda self: False)
    is_mps = property(lambda self: self.where.type == "mps")
    # Without a function of its own PyTorch would wrap every result in this class once more.
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self):
        return f"Pretended({self.held!r}, device={self.where})"

    def __reduce_ex__(self, protocol):
        return self.held.__reduce_ex__(protocol)  # a checkpoint is read on the CPU

    def numpy(self, *_, **__):
        raise TypeError(f"can't convert {self.where} device type tensor to numpy.")

    __array__ = numpy

    def tolist(self):
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, writes = _known(func)
        where = _where(name, args, kwargs)
        plain = [_plain(one) for one in args]
        if name == "aten::histc":  # of whole numbers on devices, of floating ones on the CPU
            plain[0] = plain[0].float()
        real = func(*plain, **{key: _plain(one) for key, one in kwargs.items()}) if kwargs else func(*plain)
        if name in ("aten::_local_scalar_dense", "aten::equal"):
            return real
        if writes:
            return _written(func, args, kwargs, real, where)
        return _outward(real, where)


@cache
def _known(func):
    """An operator's name, and whether it writes into operands that it returns."""
    name = func._schema.name
    return name, func._schema.is_mutable and not name.startswith("aten::_fused")


def _plain(one):
    kind = type(one)
    if kind is Pretended:
        return one.held
    return kind(map(_plain, one)) if kind is list or kind is tuple else one


def _tensors(of):
    """All tensors among arguments."""
    for one in of:
        kind = type(one)
        if kind is Pretended or isinstance(one, torch.Tensor):
            yield one
        elif kind is list or kind is tuple:
            yield from _tensors(one)


def _outward(one, where):
    if isinstance(one, torch.Tensor):
        return _put(one, where)
    return type(one)(_outward(part, where) for part in one) if type(one) in (list, tuple) else one


def _put(real, where):
    if where.type == "mps" and real.dtype == torch.float64:
        raise TypeError(
            "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
        )
    return Pretended(real, where)


def _where(name, args, kwargs):
    """The device of the result. Raises where operands are on several."""
    here: list[torch.Tensor] = []
    there: list[Pretended] = []
    for tensor in _tensors((*args, *kwargs.values())):
        (there if type(tensor) is Pretended else here).append(tensor)
    if name in _ANY:
        return there[0].where
    if name in _INDEXED:
        if not isinstance(args[0], Pretended):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        here = [t for t in _tensors(args[2:]) if not isinstance(t, Pretended)]
    if not here and len(there) == 1:
        return there[0].where
    strict = name in _STRICT
    if any(t.dim() or strict for t in here) or any(t.where != there[0].where for t in there):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {there[0].where} and cpu! ({name})"
        )
    return there[0].where


def _written(func, args, kwargs, real, where):
    """The result of an operation that writes into its operands: these very operands."""
    given = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            one = args[place] if place < len(args) else kwargs.get(argument.name)
            given.append(one)
            if isinstance(one, torch.Tensor) and not isinstance(one, Pretended):
                raise RuntimeError(
                    f"Expected all tensors to be on the same device ({func}): the output is on cpu"
                )
    if isinstance(real, tuple):
        return tuple(given) if len(given) > 1 else given[0]
    return None if real is None else given[0]


class _Asked(TorchFunctionMode):
    """Calls that name the device: they are made on the CPU, and what comes out says that it is there."""

    def __init__(self, device):
        super().__init__()
        self.where = device

    def mine(self, device):
        return (
            device is not None
            and not isinstance(device, int)
            and torch.device(device).type == self.where.type
        )

    def __torch_function__(self, func, types, args=(), kwargs=None):
        plain, name = _kind(func)
        if plain and (not kwargs or kwargs.get("device") is None):
            return func(*args, **kwargs) if kwargs else func(*args)  # nearly all calls
        kwargs = kwargs or {}
        if name == "__set__" and func == _SET_DATA and isinstance(args[0], Pretended):
            return self._set_data(*args)
        if func in _MOVES:
            return self._moved(func, args, kwargs)
        device = kwargs.get("device")
        if device is None:
            if not (_makes_like(name) and args and isinstance(args[0], Pretended)):
                return func(*args, **kwargs)
            device = args[0].where
        if not self.mine(device):
            if kwargs.get("device") is not None and args and isinstance(args[0], Pretended):
                return func(args[0].held, *args[1:], **kwargs)  # zeros_like(x, device="cpu")
            return func(*args, **kwargs)
        if kwargs.get("generator") is not None:
            raise RuntimeError(f"Expected a '{self.where.type}' device type for generator but found 'cpu'")
        if name in ("tensor", "as_tensor"):
            args = tuple(map(_plain, args))
        if name == "autocast":
            return func(*args, **kwargs)
        kwargs = kwargs | ({"device": "cpu"} if "device" in kwargs else {})
        args = tuple(_plain(one) for one in args)
        wanted = kwargs.pop("requires_grad", False)
        made = _put(func(*args, **kwargs), self.where)
        return made.requires_grad_() if wanted else made

    def _moved(self, func, args, kwargs):
        """``to``, ``cpu`` and ``cuda``, with their gradients."""
        tensor, *rest = args
        given = [*rest, *kwargs.values()]
        device = next((one for one in given if isinstance(one, (str, torch.device))), None)
        dtype = next((one for one in given if isinstance(one, torch.dtype)), None)
        like = next((one for one in given if isinstance(one, torch.Tensor)), None)
        if like is not None:
            device, dtype = like.device, like.dtype
        device = {torch.Tensor.cpu: "cpu", torch.Tensor.cuda: self.where}.get(func, device)
        was = isinstance(tensor, Pretended)
        there = was if device is None else self.mine(device)
        if not was and not there:
            return func(*args, **kwargs)
        if dtype is not None:
            tensor = torch.Tensor.to(
                tensor, dtype
            )  # with the device as well, PyTorch converts where the tensor is
        elif kwargs.get("copy"):
            tensor = tensor.clone()
        return tensor if there == was else _Across.apply(tensor, self.where if there else None)

    def _set_data(self, tensor, new):
        if not isinstance(new, Pretended):
            raise RuntimeError(
                f"Attempted to call `variable.set_data(tensor)`, but `variable` is on {self.where} and `tensor` on cpu"
            )
        with torch._C.DisableTorchFunction():
            _SET_DATA(tensor, new)  # shape and dtype
        tensor.held = new.held


@cache
def _kind(func):
    """Whether a function makes nothing on a device unless it is asked to, and its name."""
    name = getattr(func, "__name__", "")
    return not (name == "__set__" or func in _MOVES or _makes_like(name)), name


def _makes_like(name):
    return name.startswith("new_") or name.endswith("_like")


class _Across(torch.autograd.Function):
    """From the CPU to the device, or back."""

    @staticmethod
    def forward(ctx, tensor, where):
        ctx.back = tensor.where if isinstance(tensor, Pretended) else None
        real = _plain(tensor).clone()
        return real if where is None else _put(real, where)

    @staticmethod
    def backward(ctx, grad):
        real = _plain(grad).clone()
        return (real if ctx.back is None else _put(real, ctx.back)), None


@contextmanager
def accelerator(device="cuda:0"):
    """Within, this device can be named wherever PyTorch takes one."""
    future = torch.__future__
    inference = torch.inference_mode
    entering, leaving = inference.__enter__, inference.__exit__
    before = future.get_overwrite_module_params_on_conversion()
    # ``module.to`` would put the new values into the old tensors, which are of another kind here.
    future.set_overwrite_module_params_on_conversion(True)
    # Tensors of a class of one's own have no inference mode.
    inference.__enter__ = lambda self: setattr(self, "instead", torch.no_grad()) or self.instead.__enter__()
    inference.__exit__ = lambda self, *error: self.instead.__exit__(*error)
    try:
        with _Asked(torch.device(device)):
            yield torch.device(device)
    finally:
        future.set_overwrite_module_params_on_conversion(before)
        inference.__enter__, inference.__exit__ = entering, leaving


def move(model, device):
    """A model to the device, weights that several of its parts share included."""
    moved = {}
    for part in model.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                new = moved.get(id(weight))
                if new is None:
                    new = torch.nn.Parameter(_put(weight.detach().clone(), device), weight.requires_grad)
                part._parameters[name] = moved[id(weight)] = new
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = _put(buffer.clone(), device)
    return model
