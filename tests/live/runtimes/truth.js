'use strict'
// A program that knows its own stack. "wait": it waits at a known place, and prints its stack. Otherwise it computes for
// a number of rounds.
let sum = 0
const waits = process.argv[2] === 'wait'

function leaf(n) {
	let s = 0
	for (let i = 0; i < n; i++)
		s += i % 7
	return s
}

function pause() {
	Error.prepareStackTrace = (error, sites) => sites.map((site) => (site.getFunctionName() || '(anonymous)') + '\t' + site.getFileName())
	Error.stackTraceLimit = 100
	console.log(new Error().stack.join('\n') + '\ndone')
	Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
}

class Shop {
	constructor(n) {
		this.n = n
	}
	total(k) {
		const named = function namedExpression(n) {
			return waits && k === 2 ? pause() : leaf(n)
		}
		return named(this.n) + k
	}
	static make(n) {
		return new Shop(n)
	}
	get price() {
		return this.total(waits ? 2 : 1)
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

if (waits) {
	for (let i = 0; i < 300; i++)
		leaf(i)
	descend(4, 1)
}
for (let i = 0; i < Number(process.argv[2]); i++)
	sum += descend(i % 5, 500)
