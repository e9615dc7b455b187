# SPDX-License-Identifier: Apache-2.0
"""NVML's energy counter of a GPU. It counts in steps of about 0.1 s, so a window has to be much longer."""
import ctypes
import os


class Energy:
    """The counter, in mJ, of the GPU that is first in CUDA_VISIBLE_DEVICES (a UUID, or its number in the order of the bus), else
    of GPU 0."""

    def __init__(self):
        self.device = None
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        try:
            self.nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        except OSError:
            return
        if self.nvml.nvmlInit_v2():
            return
        if visible.startswith("GPU-"):
            failed = self.nvml.nvmlDeviceGetHandleByUUID(visible.encode(), ctypes.byref(device))
        else:
            failed = self.nvml.nvmlDeviceGetHandleByIndex_v2(int(visible) if visible.isdigit() else 0, ctypes.byref(device))
        self.device = None if failed else device

    def read(self):
        """None where NVML or the GPU has no counter."""
        value = ctypes.c_ulonglong()
        known = self.device and not self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(value))
        return value.value if known else None
