'use strict'
// A program that knows its own stack. "wait": it waits at a known place, and prints its stack. Otherwise it computes for
// a number of rounds.
let sum = 0
const waits = process.argv[2] === 'wait'
const tasks = [leaf, idle, pause]
let turn = 0

// Once, with 1, an error needs the positions of all functions that call it: V8 has none before.
function leaf(n) {
	let s = 0
	if (n === 1)
		s = new Error().stack.length
	for (let i = 0; i < n; i++)
		s += i % 7
	return s
}

function idle(n) {
	return n
}

// What it says and where it waits are on one line.
function pause() {
	const place = (site) => (site.getFunctionName() || '(anonymous)') + '\t' + site.getFileName() + '\t' + site.getLineNumber()
	const cell = new Int32Array(new SharedArrayBuffer(4))
	Error.prepareStackTrace = (error, sites) => sites.map(place).join('\n')
	console.log(new Error().stack + '\ndone'), Atomics.wait(cell, 0, 0)
}

class Shop {
	constructor(n) {
		this.n = n
	}
	total(k) {
		const named = function namedExpression(n) {
			return tasks[turn](n)
		}
		return named(this.n) + k
	}
	static make(n) {
		return new Shop(n)
	}
	get price() {
		return this.total(1)
	}
}

const arrow = (n) => {
	return Shop.make(n).price
}

function closure(n) {
	const more = [1, 2, 3]
	return function inner(x) {
		return arrow(x + n) + more.length
	}
}

const größe = (n) => closure(n)(1)

function descend(depth, n) {
	if (depth === 0)
		return größe(n)
	return [n].map(function each(x) {
		return descend(depth - 1, x)
	})[0]
}

Error.stackTraceLimit = 100
descend(4, 0)
// Optimized, with what can be inlined; what is called last is not known then, so it can be another one.
for (let i = 0; waits && i < 50000; i++) {
	turn = i % 2
	descend(4, 2)
}
if (waits) {
	turn = 2
	descend(4, 2)
}
for (let i = 0; i < Number(process.argv[2]); i++)
	sum += descend(i % 5, 500)
