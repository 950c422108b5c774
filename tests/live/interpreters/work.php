<?php
// Computes in places that it knows, for argv[1] seconds. Before it begins in a place, it writes the stack of the place,
// as the interpreter itself gives it: a line with function and line of each call, the innermost first.
function known() {
	static $seen = [];
	$at = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS);
	array_shift($at);
	$names = [];
	$line = '*';
	foreach ($at as $call) {
		$file = isset($call['file']);
		$names[] = (isset($call['class']) ? $call['class'] . '::' : '') . $call['function'] . ($call['function'] == 'usort' || $call['function'] == 'array_map' ? '' : "@$line");
		$line = $file ? $call['line'] : '';
	}
	$names[] = "{main}@$line";
	$text = implode(' ', $names);
	if (!isset($seen[$text])) {
		$seen[$text] = true;
		echo "$text\n";
	}
}

class Shop {
	public $n = 0;
	static function spin($n) {
		known();
		for ($i = 0; $i < $n; $i++)
			$s = sqrt($i) + sin($i);
		return $s;
	}
	function compare($a, $b) {
		self::spin(2000);
		return $a <=> $b;
	}
	function __get($name) {
		return self::spin(20000);
	}
	function sorted() {
		$list = range(1, 30);
		usort($list, [$this, 'compare']);
		return $list;
	}
	function each() {
		foreach ($this->generated() as $one)
			self::spin(20000);
	}
	function generated() {
		for ($i = 0; $i < 3; $i++)
			yield self::spin(20000);
	}
}

function deep($n) {
	return $n
		? deep($n - 1)
		: Shop::spin(20000);
}

$shop = new Shop;
for ($end = microtime(true) + $argv[1]; microtime(true) < $end;) {
	$shop->sorted();
	$shop->missing;
	$shop->each();
	deep(40);
	array_map(function ($n) { return Shop::spin($n); }, [20000, 20000]);
	eval('deep(3); deep(3); deep(3);');
}
