package nvml

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/greylag/greylag/internal/gpu"
)

// source answers the requests: the library, or none.
type source interface {
	// inventory lists the devices; none without a driver.
	inventory() (gpu.Host, error)
	processes(uuids []string) ([]gpu.Process, error)
	memory(uuids []string) map[string]int64
	loads(uuids []string) []gpu.Load
	// divide divides GPUs into MIG instances, by index.
	divide(layouts map[int32][]string) (changed bool, err error)
	// watch calls report for events, and with nil periodically as a heartbeat. It never returns.
	watch(report func(*gpu.RawEvent))
}

// Serve answers the requests of in on out, one a line, until in ends.
func Serve(in io.Reader, out io.Writer) error { return serve(open(), in, out) }

func serve(s source, in io.Reader, out io.Writer) error {
	var mu sync.Mutex
	say := func(reply gpu.Reply) error {
		line, err := gpu.Encode(reply)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		_, err = out.Write(line)
		return err
	}
	// It hangs if the library hangs, and ends with the process.
	go s.watch(func(event *gpu.RawEvent) {
		// When the reader ends, in ends as well.
		_ = say(gpu.Reply{Event: event, Beat: event == nil})
	})
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), gpu.MaxLine)
	for lines.Scan() {
		request, err := gpu.DecodeRequest(lines.Bytes())
		if err != nil {
			return err
		}
		if err := say(answer(s, request)); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("requests: %w", err)
	}
	return nil
}

func answer(s source, request gpu.Request) gpu.Reply {
	reply := gpu.Reply{ID: request.ID}
	var err error
	switch request.Op {
	case "inventory":
		var host gpu.Host
		if host, err = s.inventory(); err == nil {
			reply.Host = &host
		}
	case "processes":
		if reply.Processes, err = s.processes(request.UUIDs); err == nil {
			reply.Memory = s.memory(request.UUIDs)
		}
	case "loads":
		reply.Loads = s.loads(request.UUIDs)
	case "divide":
		reply.Changed, err = s.divide(request.Layouts)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}
