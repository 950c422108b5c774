// tests/live/contexts/work.go: a Go program whose goroutines have pprof labels.  The name of a function tells which
// labels its samples have.  The program writes what it knows (compare.py reads it).
//
//	usage: work
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"sort"
	"strings"
	"time"
)

var sums, turns [8]int

// Each time takes another time, so that the program is not in step with the samples.
//
//go:noinline
func compute(n int) {
	turns[n]++
	for i := 0; i < 2400000+turns[n]*7919%13*100000; i++ {
		sums[n] += i * i
	}
}

//go:noinline
func workRoute(n int) {
	compute(n)
	sums[n]++
}

//go:noinline
func workNested(n int) {
	compute(n)
	sums[n] += 2
}

//go:noinline
func workMany(n int) {
	compute(n)
	sums[n] += 3
}

//go:noinline
func workNone(n int) {
	compute(n)
	sums[n] += 4
}

//go:noinline
func workTrace(n int) {
	compute(n)
	sums[n] += 5
}

// Values are made at run time, so they are not where the program's own texts are.
func made(parts ...string) string { return strings.Join(parts, "") }

func tell(function string, labels map[string]string) {
	keys := make([]string, 0, len(labels))
	for key := range labels {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	line := function + "\t*"
	for _, key := range keys {
		line += "\t" + key + "=" + labels[key]
	}
	fmt.Println(line)
}

func main() {
	ctx := context.Background()
	many := make([]string, 0)
	told := map[string]string{}
	for i := 0; i < 20; i++ { // several buckets of a map
		key, value := fmt.Sprintf("many_%02d", i), made("value ", fmt.Sprint(i))
		many = append(many, key, value)
		told[key] = value
	}
	trace := made("4bf92f3577b34da6", "a3ce929d0e0e4736")
	tell("workRoute", map[string]string{"route": "/cart/{id}"})
	tell("workNested", map[string]string{"route": "/pay", "user.id": "eve"})
	tell("workMany", told)
	tell("workNone", nil)
	tell("workTrace", map[string]string{"trace_id": trace, "span_id": "00f067aa0ba902b7"})
	go func() {
		for {
			pprof.Do(ctx, pprof.Labels("route", made("/cart/", "{id}"), "no key", "x", "pid", "7"), func(context.Context) { workRoute(0) })
			workNone(0)
		}
	}()
	go func() {
		for {
			pprof.Do(ctx, pprof.Labels("route", made("/", "none")), func(ctx context.Context) {
				pprof.Do(ctx, pprof.Labels("user.id", made("e", "ve"), "route", made("/pay")), func(context.Context) { workNested(1) })
			})
			workNone(1)
		}
	}()
	go func() {
		for {
			pprof.Do(ctx, pprof.Labels(many...), func(context.Context) { workMany(2) })
			pprof.Do(ctx, pprof.Labels("trace_id", trace, "span_id", "00f067aa0ba902b7"), func(context.Context) { workTrace(2) })
		}
	}()
	fmt.Println("begun")
	time.Sleep(300 * time.Second)
	os.Exit(1)
}
