"""Looks at a running recording from outside: which processes it has, whether it records, how much memory it took."""
import os


def roles(child):
    """Return the processes of a recording."""
    try:
        return [child.pid] + [int(p) for p in open('/proc/%d/task/%d/children' % (child.pid, child.pid)).read().split()]
    except OSError:
        return []


def is_recording(child):
    """Return whether its events are open."""
    return capture_of(child) is not None


def capture_of(child):
    """Return the process that has the events open, or None."""
    for pid in roles(child):
        try:
            if any('perf_event' in os.readlink('/proc/%d/fd/%s' % (pid, fd)) for fd in os.listdir('/proc/%d/fd' % pid)):
                return pid
        except OSError:
            pass
    return None


def peak(child):
    """Return the peak memory so far of its processes together, in KiB; 0 after they have ended."""
    total = 0
    for pid in roles(child):
        try:
            total += next(int(line.split()[1]) for line in open('/proc/%d/status' % pid) if line.startswith('VmHWM'))
        except (OSError, StopIteration):
            pass
    return total
