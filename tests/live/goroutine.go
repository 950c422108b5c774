// tests/live/goroutine.go: spins in a goroutine, deep in its own stack, which is outside every thread's
// stack.  Prints the address of a marker in the goroutine's first frame.
package main

import (
	"fmt"
	"unsafe"
)

var sink int

//go:noinline
func deep(n int, mark *uint64) int {
	var frame [64]int
	frame[n%64] = n
	if n > 0 {
		return deep(n-1, mark) + frame[n%64]
	}
	// Only here, where the stack grows and moves no more.
	fmt.Printf("ready 0 %x 0 0\n", uintptr(unsafe.Pointer(mark)))
	for {
		sink++
	}
}

//go:noinline
func start() int {
	mark := uint64(0x1122334455667788)
	return deep(100, &mark)
}

func main() {
	done := make(chan int)
	go func() { done <- start() }()
	<-done
}
