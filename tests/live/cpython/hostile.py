# Lets the chain of its own frames lead somewhere else while it computes (CPython 3.11 on x86_64).
#   usage: hostile.py cycle|wild|kernel|code SECONDS (of CPU time)
import ctypes
import sys
import time


def main():
    what, seconds = sys.argv[1], float(sys.argv[2])
    frame = ctypes.c_uint64.from_address(id(sys._getframe()) + 24).value  # PyFrameObject.f_frame
    word = ctypes.c_uint64.from_address(frame + (32 if what == "code" else 48))  # f_code or previous
    old, end, value = word.value, time.thread_time() + seconds, 1
    if what == "code":
        return spin_elsewhere(word, end)
    word.value = {"cycle": frame, "wild": 0x123456789000, "kernel": 0xFFFFFFFF81000000}[what]
    while time.thread_time() < end:
        for i in range(300):
            value = value * 3 % 1000003
    word.value = old


def spin_elsewhere(word, end):
    old, value = word.value, 1
    fake = ctypes.create_string_buffer(b"\xff" * 4096)
    word.value = ctypes.addressof(fake)  # of the caller's frame, which does not run meanwhile
    while time.thread_time() < end:
        for i in range(300):
            value = value * 3 % 1000003
    word.value = old


main()
