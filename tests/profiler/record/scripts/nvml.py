"""Asks NVML, by ctypes as Python programs do, which GPUs exist, and compares the answer with what
PyTorch knows about CUDA."""

import ctypes

import torch

nvml = ctypes.CDLL("libnvidia-ml.so.1")


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def handle_by(name, key):
    """Returns None if there is no such GPU."""
    handle = ctypes.c_void_p()
    return handle.value if getattr(nvml, name)(key, ctypes.byref(handle)) == 0 else None


def text(name, handle):
    buffer = ctypes.create_string_buffer(96)
    assert getattr(nvml, name)(ctypes.c_void_p(handle), buffer, len(buffer)) == 0
    return buffer.value.decode()


def memory_of(handle):
    memory = Memory()
    assert nvml.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(handle), ctypes.byref(memory)) == 0
    return memory


def differences(gpu):
    handle, of_cuda = handle_by("nvmlDeviceGetHandleByIndex_v2", gpu), torch.cuda.get_device_properties(gpu)
    memory = memory_of(handle)
    uuid, bus = f"GPU-{of_cuda.uuid}".encode(), f"0000:{of_cuda.pci_bus_id:02x}:00.0".encode()
    answers = {
        "name": text("nvmlDeviceGetName", handle) == of_cuda.name,
        "UUID": text("nvmlDeviceGetUUID", handle).encode() == uuid,
        "by UUID": handle_by("nvmlDeviceGetHandleByUUID", uuid) == handle,
        "by bus": handle_by("nvmlDeviceGetHandleByPciBusId_v2", bus) == handle,
        "memory": (memory.free, memory.total) == torch.cuda.mem_get_info(gpu),
        "used": memory.used == memory.total - memory.free,
    }
    return [name for name, is_same in answers.items() if not is_same]


kept = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
count = ctypes.c_uint()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
print("GPUs", count.value, torch.cuda.device_count(), "differ",
      [differences(gpu) for gpu in range(count.value)])
print("used", memory_of(handle_by("nvmlDeviceGetHandleByIndex_v2", 0)).used >> 20, "MiB")
print("another", handle_by("nvmlDeviceGetHandleByIndex_v2", count.value),
      handle_by("nvmlDeviceGetHandleByPciBusId_v2", b"0000:40:00.0"),
      handle_by("nvmlDeviceGetHandleByUUID", b"GPU-0"))
