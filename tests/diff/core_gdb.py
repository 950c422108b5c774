"""Runs in gdb and writes each thread's frames, pc by pc, to the file $CORE_GDB_OUT.

Inlined calls and tail calls have no frame of their own on the stack and are left out.
"""
import os

import gdb

FRAMES_MAX = 4096

for setting in ('backtrace past-main on', 'backtrace past-entry on', 'debuginfod enabled off',
                'auto-solib-add on', 'width 0'):
    try:
        gdb.execute('set ' + setting)
    except gdb.error:
        pass
with open(os.environ['CORE_GDB_OUT'], 'w') as out:
    for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: t.ptid[1]):
        thread.switch()
        print('TID %d:' % thread.ptid[1], file=out)
        frame, n = gdb.newest_frame(), 0
        while frame is not None and n < FRAMES_MAX:
            if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                print('#%d 0x%016x' % (n, frame.pc() & (1 << 64) - 1), file=out)
                n += 1
            try:
                frame = frame.older()
            except gdb.error as error:
                print('# gdb: %s' % error, file=out)
                break
