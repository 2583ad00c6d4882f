// Command gstepd runs the tasks of one step on one node: see package internal/step/daemon. The init
// process of the job's task starts it as the job's user, with the file of an order as its only
// argument, never a user.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/daemon"
)

// memoryEvents is where a task sees how many of the job's processes were killed for memory.
const memoryEvents = "/sys/fs/cgroup/memory.events"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "gstepd: error: want the file of an order")
		fmt.Fprintln(os.Stderr, "gstepd: hint: gnoded starts this program; use grun to run a program on the nodes of a job")
		os.Exit(daemon.ExitOrder)
	}
	status, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gstepd: error:", err)
	}
	os.Exit(status)
}

func run(path string) (int, error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGXCPU, syscall.SIGPWR, syscall.SIGIO)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	order, err := readOrder(path)
	if err != nil {
		return daemon.ExitOrder, err
	}
	orders := make(chan step.Order)
	go func() {
		for range changed {
			if next, err := readOrder(path); err == nil { // else the step continues as it is
				orders <- next
			}
		}
	}()
	order.Env = os.Environ() // of the job's task on this node
	return daemon.Run(ctx, daemon.Config{Order: order, Adopt: true, Exits: true, Signals: signals, MemoryEvents: memoryEvents, Orders: orders})
}

func readOrder(path string) (step.Order, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return step.Order{}, err
	}
	return step.DecodeOrder(data)
}
