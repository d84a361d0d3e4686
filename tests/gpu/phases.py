"""The phases of run.sh, most valuable first: if time is short, the first ones count. The steps
of NAME are in phase_NAME.py, which only that phase's own process imports."""

PHASES = {
    "facts": "what the GPU and its libraries take and tell",
    "sequences": "our allocations beside the null device's",
    "programs": "Python programs' allocations beside the null device's",
    "prediction": "plans beside what the device had in use",
    "numerics": "losses beside the CPU's and PyTorch's",
    "time": "steps, launches and kernels by the clock",
    "survival": "what is left after kills, full memory and lost ranks",
    "histories": "what PyTorch's own memory history says of programs",
    "peaks": "full memory, peaks and times of many programs, profiler traces",
}
