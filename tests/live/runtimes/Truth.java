import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.function.IntFunction;

/* A program that knows its own stacks. "wait": its threads wait, and it prints their stacks. Otherwise it computes for a number of rounds. */
public class Truth {
	static long sum;
	static final Object lock = new Object();

	static long leaf(int n) {
		long s = 0;
		for (int i = 0; i < n; i++)
			s += i % 7 * (s | 1);
		return s;
	}

	static long small(int n) {
		return leaf(n) + 1;
	}

	interface Shape {
		long area(int n);
	}

	static class Square implements Shape {
		public long area(int n) {
			return small(n) * 2;
		}
	}

	static class Circle implements Shape {
		private final IntFunction<Long> how;

		Circle(IntFunction<Long> how) {
			this.how = how;
		}

		public long area(int n) {
			long before = n;
			return how.apply(n) + before;
		}
	}

	static long descend(int depth, Shape shape, int n) {
		if (depth == 0)
			return shape.area(n);
		if (depth % 2 == 0)
			return descend(depth - 1, shape, n) + 1;
		return descend(depth - 1, shape, n);
	}

	static long sorted(int n) {
		TreeMap<Integer, Long> map = new TreeMap<>((a, b) -> {
			sum += small(20);
			return Integer.compare(a, b);
		});
		for (int i = 0; i < n; i++)
			map.put(i * 31 % 64,
				(long)i);
		return map.size();
	}

	static void compute(int rounds) {
		Shape[] shapes = { new Square(), new Circle(k -> small(k)) };

		for (int i = 0; i < rounds; i++) {
			sum += descend(i % 12, shapes[i % 2], 2000);
			sum += sorted(100);
		}
	}

	static long pause(CountDownLatch ready) throws InterruptedException {
		synchronized (lock) {
			ready.countDown();
			lock.wait();
		}
		return 1;
	}

	static long waiting(CountDownLatch ready) {
		try {
			return pause(ready) + 1;
		} catch (InterruptedException e) {
			return 0;
		}
	}

	/* The stacks of all threads: a line for each function. */
	static String stacks() {
		TreeMap<String, String> all = new TreeMap<>();
		for (Map.Entry<Thread, StackTraceElement[]> t : Thread.getAllStackTraces().entrySet())
			for (StackTraceElement e : t.getValue())
				all.merge(t.getKey().getName(),
					  t.getKey().getName() + "\t" + e.getClassName() + "." + e.getMethodName() +
						  "\t" + e.getFileName() + "\t" + e.getLineNumber() + "\n",
					  String::concat);
		return String.join("", all.values());
	}

	public static void main(String[] args) throws Exception {
		if (!args[0].equals("wait")) {
			compute(Integer.parseInt(args[0]));
			Runtime.getRuntime().halt(sum == 42 ? 1 : 0); // what exit does would be new code of a process that ends
		}
		compute(Integer.parseInt(args[1]));
		CountDownLatch ready = new CountDownLatch(2);
		Thread circle = new Thread(() -> descend(9, new Circle(n -> waiting(ready)), 1), "circle");
		Thread lambda = new Thread(() -> descend(4, n -> waiting(ready), 1), "lambda");
		circle.start();
		lambda.start();
		ready.await();
		String before, now = "";
		do { // until all threads have come to where they stay
			Thread.sleep(200);
			before = now;
			now = stacks();
		} while (!now.equals(before) || circle.getState() != Thread.State.WAITING ||
			 lambda.getState() != Thread.State.WAITING);
		System.out.println(now + "done");
		Thread.sleep(100000);
	}
}
