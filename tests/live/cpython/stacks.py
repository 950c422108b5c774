# Computes in places that it knows, for some seconds, and writes the stack of each: one JSON line each, from the
# outermost function to spin, with the line of each call. Used by tests/live/cpython.sh.
#   usage: stacks.py SECONDS [threads]
import functools
import json
import sys
import threading
import time

seen = set()
lock = threading.Lock()
part = 0.0
made = compile("def made():\n\n    return spin()\nmade()", "made of text", "exec")
evaluated = compile("spin()", "evaluated", "eval")
qualified = sys.version_info >= (3, 11)


def spin():
    frame, stack = sys._getframe(), []
    while frame:
        code = frame.f_code
        stack.append((code.co_qualname if qualified else code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    stack[0] = stack[0][:2] + (0,)
    with lock:
        seen.add(tuple(reversed(stack)))
    end = time.thread_time() + part
    value = 1
    while time.thread_time() < end:
        for i in range(300):
            value = value * 3 % 1000003
    return value


class Shop:
    class Cart:
        def total(self):
            return spin()

        @property
        def price(self):
            return self.total()

        @staticmethod
        def fixed():
            return (lambda: spin())()

        def __lt__(self, other):
            spin()
            return False

    def __getattr__(self, name):
        return spin()


def deep(n):
    if n:
        return deep(n - 1)
    return spin()


def numbers():
    yield spin()
    yield from inner_numbers()


def inner_numbers():
    for _ in range(2):
        yield spin()


async def task():
    return await subtask()


async def subtask():
    async with Guard():
        return spin()


class Guard:
    async def __aenter__(self):
        spin()

    async def __aexit__(self, *why):
        return None


def run(coroutine):
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        pass


def failing():
    try:
        raise ValueError("wanted")
    except ValueError:
        return spin()
    finally:
        spin()


def grüße():
    return spin()


def many_lines():
    return max(
        1,
        min(
            spin(),
            2,
        ),
    )


def all_places():
    cart = Shop.Cart()
    cart.total()
    cart.price
    cart.fixed()
    Shop().missing
    deep(60)
    list(numbers())
    [spin() for _ in range(2)]
    {key: spin() for key in range(2)}
    sorted([Shop.Cart(), Shop.Cart()])
    sorted([3, 1, 2], key=lambda _: spin())
    list(map(lambda _: deep(3), [1, 2]))
    functools.reduce(lambda a, b: spin(), [1, 2, 3])
    run(task())
    failing()
    grüße()
    many_lines()
    exec(made, {"spin": spin})
    eval(evaluated)
    if "freed" in sys.argv:  # code that is gone when somebody looks at it
        eval("spin()")


def main():
    global part
    seconds = float(sys.argv[1])
    part = 0.02
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        all_places()


if "threads" in sys.argv:
    threads = [threading.Thread(target=main) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    main()
for stack in seen:
    print(json.dumps(stack))
