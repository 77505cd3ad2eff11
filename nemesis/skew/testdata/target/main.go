// Target is a static Go program for the tests to launch. Lines of input:
//
//	read             gives "realtime FROM TO" and "monotonic FROM TO": how far ahead
//	                 of the kernel it is, in ns, at least and at most
//	stress A B MS    reads both clocks for so long, while the realtime clock is
//	                 moved between A and B and the monotonic one changes its speed
//	bench N          gives the ns of one reading out of N
//	exec PROGRAM     calls exec from the main thread
//	exec-aside PROG  calls exec from another thread
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

//go:linkname nanotime runtime.nanotime
func nanotime() int64

func main() {
	if len(os.Args) > 2 {
		do(os.Args[1:]...)
		return
	}
	for sc := bufio.NewScanner(os.Stdin); sc.Scan(); {
		var f [4]string
		n, _ := fmt.Sscan(sc.Text(), &f[0], &f[1], &f[2], &f[3])
		do(f[:n]...)
		fmt.Println(".")
	}
}

func do(f ...string) {
	switch f[0] {
	case "read":
		show("realtime", 0, func() int64 { return time.Now().UnixNano() })
		show("monotonic", 1, nanotime)
	case "stress":
		stress(number(f[1]), number(f[2]), time.Duration(number(f[3]))*time.Millisecond)
	case "bench":
		n := number(f[1])
		a := kernel(1)
		for range n {
			time.Now()
		}
		fmt.Printf("%.3f\n", float64(kernel(1)-a)/float64(n))
	case "exec":
		execute(f[1:])
	case "exec-aside":
		runtime.LockOSThread() // the main goroutine keeps the main thread
		go func() {
			runtime.LockOSThread()
			execute(f[1:])
		}()
		select {}
	}
}

func execute(args []string) {
	err := syscall.Exec(args[0], args, os.Environ())
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func number(s string) (n int64) {
	if _, err := fmt.Sscan(s, &n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return n
}

func kernel(id uintptr) int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

func show(name string, id uintptr, read func() int64) {
	a := kernel(id)
	v := read()
	b := kernel(id)
	fmt.Println(name, v-b, v-a)
}

// stress counts readings that are neither moved by a nor by b, and steps of the
// monotonic clock that are not forward.
func stress(a, b int64, d time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var reads, atA, atB, torn, back int64
	end := kernel(1) + int64(d)
	for range 2 {
		wg.Go(func() {
			var n, as, bs, ts int64
			for ; n%1000 != 0 || kernel(1) < end; n++ {
				r0 := kernel(0)
				v := time.Now().UnixNano()
				r1 := kernel(0)
				switch {
				case v >= r0+a && v <= r1+a:
					as++
				case v >= r0+b && v <= r1+b:
					bs++
				default:
					ts++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			reads, atA, atB, torn = reads+n, atA+as, atB+bs, torn+ts
		})
		wg.Go(func() {
			var n, bs, last int64
			for ; n%1000 != 0 || kernel(1) < end; n++ {
				v := nanotime()
				if v < last {
					bs++
				}
				last = v
			}
			mu.Lock()
			defer mu.Unlock()
			reads, back = reads+n, back+bs
		})
	}
	wg.Wait()
	fmt.Println(reads, atA, atB, torn, back)
}
